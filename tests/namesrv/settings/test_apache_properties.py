"""An Apache namesrv.properties is accepted unchanged, and our settings can be written as one."""

import re

import pytest

from namesrv.settings.apache_properties import Translation, as_properties, translate

# Apache's server writes every key that it has on UPDATE_NAMESRV_CONFIG
FULL_FILE = dict(
    re.findall(
        r"(\S+)=(\S+)",
        """
        bindAddress=0.0.0.0 clientRequestThreadPoolNums=8 clientRequestThreadPoolQueueCapacity=50000 clusterTest=false
        configBlackList=configBlackList;configStorePath;kvConfigPath
        configStorePath=/home/mq/namesrv/namesrv.properties defaultThreadPoolNums=16
        defaultThreadPoolQueueCapacity=10000 deleteTopicWithBrokerRegistration=false enableAllTopicList=true
        enableControllerInNamesrv=false enableShutdownGracefully=false enableTopicList=true
        kvConfigPath=/home/mq/namesrv/kvConfig.json listenPort=9876 needWaitForService=false
        notifyMinBrokerIdChanged=false orderMessageEnable=false productEnvName=center
        returnOrderTopicConfigToBroker=true rocketmqHome=/opt/rocketmq scanNotActiveBrokerInterval=5000
        serverAsyncSemaphoreValue=64 serverCallbackExecutorThreads=0 serverChannelMaxIdleTimeSeconds=120
        serverNettyWorkerGroupEnable=true serverOnewaySemaphoreValue=256 serverPooledByteBufAllocatorEnable=true
        serverSelectorThreads=3 serverSocketBacklog=1024 serverSocketRcvBufSize=0 serverSocketSndBufSize=0
        serverWorkerThreads=8 shutdownWaitTimeSeconds=30 supportActingMaster=false unRegisterBrokerQueueCapacity=3000
        useEpollNativeSelector=false waitSecondsForService=45 writeBufferHighWaterMark=0 writeBufferLowWaterMark=0
        """,
    )
)
NO_MILLISECONDS = "is not a whole number of milliseconds (from {key})"


def values(translation: Translation) -> dict[str, object]:
    """The settings of a translation, without their origins."""
    return {name: given.value for name, given in translation.given.items()}


def test_full_file_is_accepted() -> None:
    """A file with every key of Apache's server is accepted: known keys count, and warnings name the others."""
    translation = translate(FULL_FILE, "file f")

    assert translation.problems == []
    assert values(translation) == {
        "listen_host": "0.0.0.0",
        "listen_port": "9876",
        "scan_interval_seconds": 5.0,
        "order_message_enable": "false",
        "support_acting_master": "false",
        "notify_min_broker_id_changed": "false",
        "delete_topic_with_broker_registration": "false",
        "enable_topic_list": "true",
        "enable_all_topic_list": "true",
    }
    assert translation.given["listen_port"].origin == "file f, listenPort"
    waits, drains, kv, *without_effect = translation.warnings
    assert waits.startswith("file f, needWaitForService has no effect when false: this server waits only for brokers")
    assert drains.startswith("file f, enableShutdownGracefully has no effect when false: this server always drains")
    assert kv == "file f, kvConfigPath has no effect: the KV configuration is kept in the data directory, see data-dir"
    threads = "this server has one event loop instead of thread pools"
    assert without_effect[0].startswith("file f, clientRequestThreadPoolNums, clientRequestThreadPoolQueueCapacity, ")
    assert without_effect[0].endswith(f", unRegisterBrokerQueueCapacity have no effect: {threads}")
    assert not [line for line in translation.warnings if "unknown" in line]


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, {}),
        ({"waitSecondsForService": "60"}, {"wait_for_service_seconds": "60"}),
        ({"needWaitForService": "true"}, {"wait_for_service_seconds": "45"}),
        ({"needWaitForService": "True ", "waitSecondsForService": "60"}, {"wait_for_service_seconds": "60"}),
        ({"needWaitForService": "false", "waitSecondsForService": "60"}, {}),
        ({"enableShutdownGracefully": "true"}, {"drain_seconds": "30"}),
        ({"enableShutdownGracefully": "true", "shutdownWaitTimeSeconds": "8"}, {"drain_seconds": "8"}),
        ({"enableShutdownGracefully": "false", "shutdownWaitTimeSeconds": "8"}, {}),
    ],
)
def test_switches_of_apache(properties: dict[str, str], expected: dict[str, str]) -> None:
    """A switch that is off leaves our default; one that is on without a number sets Apache's default."""
    assert values(translate(properties, "file f")) == expected


@pytest.mark.parametrize(
    ("key", "value", "problems", "warnings"),
    [
        # Java would read "yes" as false and ignore a wrong number
        ("enableTopicList", "yes", ["enable-topic-list: yes is not true or false (from {key})"], []),
        ("needWaitForService", "1", ["needWaitForService: 1 is not true or false (from {key})"], []),
        ("scanNotActiveBrokerInterval", "5s", [f"scan-interval-seconds: 5s {NO_MILLISECONDS}"], []),
        (
            "scanNotActiveBrokerInterval",
            "9" * 5000,
            [f"scan-interval-seconds: {'9' * 256}...[+4744] {NO_MILLISECONDS}"],
            [],
        ),
        # unknown keys are named, so that no operator takes them for settings
        ("listnPort", "1", [], ["file f has unknown keys: listnPort (did you mean listenPort?)"]),
        ("x\ny", "", [], ['file f has unknown keys: "x\\ny"']),
        # keys of Apache's clients and controller, which its server reads from the same file
        ("socksProxyConfig", "x", [], ["{key} has no effect: this server does not connect to brokers"]),
        ("jRaftGroupId", "x", [], ["{key} has no effect: this server has no controller; run one separately"]),
        ("clusterTest", "true", [], ["{key} has no effect: this server has no cluster test mode"]),
        (
            "enableControllerInNamesrv",
            "true",
            [],
            ["{key} has no effect: this server has no controller; run one separately"],
        ),
        (
            "serverChannelMaxIdleTimeSeconds",
            "60",
            [],
            ["{key} has no effect: see broker-expiry-seconds; an idle client has 10 minutes"],
        ),
    ],
)
def test_wrong_values_and_keys_without_effect_are_named(
    key: str, value: str, problems: list[str], warnings: list[str]
) -> None:
    """A wrong value is an error and a key without effect a warning; neither sets anything."""
    translation = translate({key: value}, "file f")

    assert [text.replace("{key}", f"file f, {key}") for text in problems] == translation.problems
    assert [text.replace("{key}", f"file f, {key}") for text in warnings] == translation.warnings
    assert translation.given == {}


def test_settings_as_properties() -> None:
    """Settings are written as sorted lines with Apache's names, units and booleans."""
    shown = {"listen_port": 9876, "scan_interval_seconds": 2.5, "evict_on_disconnect": True, "drain_seconds": 5.0}

    assert as_properties(shown) == (
        "enableShutdownGracefully=true\n"
        "evictOnDisconnect=true\n"
        "listenPort=9876\n"
        "scanNotActiveBrokerInterval=2500\n"
        "shutdownWaitTimeSeconds=5\n"
    )
