"""Translation of an Apache namesrv.properties to our settings, and of our settings to Apache's keys."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pydantic import SecretStr

from namesrv.settings.catalog import SETTINGS, Given, complaint, text_of
from namesrv_remoting.bodies.properties import format_properties
from namesrv_runtime.log import quoted
from namesrv_runtime.suggestions import did_you_mean

# Our setting -> the key of Apache's server with the same meaning.
_APACHE_KEYS = {
    "listen_host": "bindAddress",
    "listen_port": "listenPort",
    "tls_mode": "tls.server.mode",
    "tls_client_auth": "tls.server.need.client.auth",
    "tls_cert_file": "tls.server.certPath",
    "tls_key_file": "tls.server.keyPath",
    "tls_key_password": "tls.server.keyPassword",
    "tls_ca_file": "tls.server.trustCertPath",
    "scan_interval_seconds": "scanNotActiveBrokerInterval",
    "wait_for_service_seconds": "waitSecondsForService",
    "drain_seconds": "shutdownWaitTimeSeconds",
    "order_message_enable": "orderMessageEnable",
    "support_acting_master": "supportActingMaster",
    "notify_min_broker_id_changed": "notifyMinBrokerIdChanged",
    "delete_topic_with_broker_registration": "deleteTopicWithBrokerRegistration",
    "enable_topic_list": "enableTopicList",
    "enable_all_topic_list": "enableAllTopicList",
}
_MILLISECONDS = frozenset({"scan_interval_seconds"})
# Our setting -> names of Apache's server for some of its values.
_APACHE_VALUES = {"tls_mode": {"off": "disabled"}}


class _Switch(NamedTuple):
    """A key that Apache's server requires before it uses another key."""

    key: str
    apache_default: str  # of the setting, once switched on
    when_off: str


# Our setting -> its switch. A switch that is off leaves our default, since `off` in a file that Apache's server wrote
# is not the operator's decision.
_SWITCHES = {
    "wait_for_service_seconds": _Switch(
        "needWaitForService",
        "45",
        "this server waits only for brokers that it knows from its last run; "
        "wait-for-service-seconds 0 switches that off, too",
    ),
    "drain_seconds": _Switch(
        "enableShutdownGracefully", "30", "this server always drains; drain-seconds 0 switches that off"
    ),
}


# Our setting -> its key in the response to GET_NAMESRV_CONFIG; settings that Apache's server lacks have keys in its
# style.
JAVA_NAMES: dict[str, str] = {
    name: _APACHE_KEYS.get(name) or re.sub("_(.)", lambda match: match[1].upper(), name) for name in SETTINGS
}
_SETTING_NAMES = {key: name for name, key in JAVA_NAMES.items()}

# Key -> the value that needs no remark, and the remark for all other values.
_REMARKS = {
    "kvConfigPath": (None, "the KV configuration is kept in the data directory, see data-dir"),
    "serverChannelMaxIdleTimeSeconds": ("120", "see broker-expiry-seconds; an idle client has 10 minutes"),
    "tls.test.mode.enable": ("false", "this server has no built-in certificate for tests; set tls-cert-file"),
    "tls.server.authClient": ("true", "certificates of clients are always verified, see tls-client-auth"),
    "tls.config.file": (None, "name that file with --tls-properties"),
    "returnOrderTopicConfigToBroker": (
        "true",
        "this server always answers a registration with the order configuration of topics",
    ),
    "clusterTest": ("false", "this server has no cluster test mode"),
    "enableControllerInNamesrv": ("false", "this server has no controller; run one separately"),
}
# Keys without effect for any value, with the reason: keys that NamesrvConfig, NettyServerConfig, NettyClientConfig and
# ControllerConfig of 4.2 to 5.5 read, and keys of brokers and clients that operators put there nevertheless.
_WITHOUT_EFFECT = {
    "this server has one event loop instead of thread pools": """
        clientRequestThreadPoolNums clientRequestThreadPoolQueueCapacity defaultThreadPoolNums
        defaultThreadPoolQueueCapacity serverAsyncSemaphoreValue serverCallbackExecutorThreads
        serverNettyWorkerGroupEnable serverOnewaySemaphoreValue serverSelectorThreads serverWorkerThreads
        unRegisterBrokerQueueCapacity
        """,
    "this server does not use Netty": """
        serverPooledByteBufAllocatorEnable serverSocketBacklog serverSocketRcvBufSize serverSocketSndBufSize
        useEpollNativeSelector writeBufferHighWaterMark writeBufferLowWaterMark
        """,
    "this server keeps its files in the data directory, see data-dir": "configBlackList configStorePath rocketmqHome",
    "this server has no cluster test mode": "productEnvName",
    "this server does not connect to brokers": """
        channelNotActiveInterval clientAsyncSemaphoreValue clientCallbackExecutorThreads
        clientChannelMaxIdleTimeSeconds clientCloseSocketIfTimeout clientOnewaySemaphoreValue
        clientPooledByteBufAllocatorEnable clientSocketRcvBufSize clientSocketSndBufSize clientWorkerThreads
        connectTimeoutMillis disableCallbackExecutor disableNettyWorkerGroup enableReconnectForGoAway
        enableTransparentRetry maxReconnectIntervalTimeSeconds scanAvailableNameSrv socksProxyConfig
        tls.client.authServer tls.client.certPath tls.client.keyPassword tls.client.keyPath tls.client.trustCertPath
        tls.enable useTLS
        """,
    "TLS 1.2 and 1.3 have OpenSSL's own ciphers here": "tls.ciphers tls.protocols",
    "name servers do not know each other; brokers and clients need their addresses": """
        namesrvAddr nsAddr nsaddr rocketmq.namesrv.addr
        """,
    "this server has no controller; run one separately": """
        controllerDLegerGroup controllerDLegerPeers controllerDLegerSelfId controllerRequestThreadPoolQueueCapacity
        controllerStorePath controllerThreadPoolNums controllerType electMasterMaxRetryCount enableElectUncleanMaster
        jRaftControllerRPCAddr jRaftElectionTimeoutMs jRaftGroupId jRaftInitConf jRaftScanWaitTimeoutMs jRaftServerId
        jRaftSnapshotIntervalSecs jraftConfig mappedFileSize metricGrpcExporterIntervalInMills
        metricGrpcExporterTimeOutInMills metricLoggingExporterIntervalInMills metricsExporterType
        metricsGrpcExporterHeader metricsGrpcExporterTarget metricsInDelta metricsLabel metricsPromExporterHost
        metricsPromExporterPort notifyBrokerRoleChanged processReadEvent scanInactiveMasterInterval
        """,
}
_KEYS_BY_REASON = {reason: keys.split() for reason, keys in _WITHOUT_EFFECT.items()}
_KNOWN = {
    *_SETTING_NAMES,
    *_REMARKS,
    *(key for keys in _KEYS_BY_REASON.values() for key in keys),
    *(switch.key for switch in _SWITCHES.values()),
}


@dataclass
class Translation:
    """The result of a translation: settings, problems, and remarks about keys without effect."""

    given: dict[str, Given] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def translate(properties: Mapping[str, str], source: str) -> Translation:
    """Translate properties to settings whose ranges are not checked yet; the source is for messages: `file F`."""
    translation = Translation()
    for key, value in properties.items():
        if key in _SETTING_NAMES:
            _add_setting(translation, _SETTING_NAMES[key], Given(value.strip(), f"{source}, {key}"))
    for name, switch in _SWITCHES.items():
        if switch.key in properties:
            _apply_switch(translation, name, Given(properties[switch.key].strip(), f"{source}, {switch.key}"))
    translation.warnings += _remarks(properties, source)
    return translation


def translate_tls(properties: Mapping[str, str], source: str) -> Translation:
    """Translate an Apache tls.properties; without a mode in the file, tls-mode is permissive, as in Apache's server."""
    translation = translate(properties, source)
    translation.given.setdefault("tls_mode", Given("permissive", f"{source}, as Apache's server"))
    return translation


def as_properties(values: Mapping[str, object]) -> str:
    """Return settings as the sorted lines of the response to GET_NAMESRV_CONFIG; -c reads them back."""
    properties = {switch.key: "true" for name, switch in _SWITCHES.items() if name in values}
    for name, value in values.items():
        shown = round(value * 1000) if isinstance(value, float) and name in _MILLISECONDS else value
        if not isinstance(value, SecretStr) or not value.get_secret_value():
            text = text_of(shown)
            properties[JAVA_NAMES[name]] = _APACHE_VALUES.get(name, {}).get(text, text)
    return format_properties(properties)


def _add_setting(translation: Translation, name: str, given: Given) -> None:
    text = str(given.value)
    if SETTINGS[name].kind is bool and _truth(text) is None:
        # Java takes `yes` for false, our other sources take it for true.
        translation.problems.append(complaint(given, SETTINGS[name], "is not true or false"))
    elif name in _APACHE_VALUES:
        ours = {theirs: ours for ours, theirs in _APACHE_VALUES[name].items()}
        translation.given[name] = Given(ours.get(text.lower(), text), given.origin)
    elif name not in _MILLISECONDS:
        translation.given[name] = given
    elif re.fullmatch("[0-9]{1,15}", text):
        translation.given[name] = Given(int(text) / 1000, given.origin)
    else:
        translation.problems.append(complaint(given, SETTINGS[name], "is not a whole number of milliseconds"))


def _apply_switch(translation: Translation, name: str, given: Given) -> None:
    switch = _SWITCHES[name]
    match _truth(str(given.value)):
        case True:
            translation.given.setdefault(name, Given(switch.apache_default, given.origin))
        case False:
            translation.given.pop(name, None)
            translation.warnings.append(f"{given.origin} has no effect when false: {switch.when_off}")
        case None:
            wrong = f"{switch.key}: {quoted(str(given.value))} is not true or false (from {given.origin})"
            translation.problems.append(wrong)


def _remarks(properties: Mapping[str, str], source: str) -> Iterable[str]:
    for key, (silent, remark) in _REMARKS.items():
        if properties.get(key, silent) != silent:
            yield f"{source}, {key} has no effect: {remark}"
    for reason, keys in _KEYS_BY_REASON.items():
        if given := sorted(properties.keys() & set(keys)):
            yield f"{source}, {', '.join(given)} {'has' if len(given) == 1 else 'have'} no effect: {reason}"
    if unknown := [f"{quoted(key)}{did_you_mean(key, _KNOWN)}" for key in properties if key not in _KNOWN]:
        yield f"{source} has unknown keys: {', '.join(unknown)}"


def _truth(text: str) -> bool | None:
    return {"true": True, "false": False}.get(text.lower())
