"""Every mqadmin command that sends requests to a NameServer prints the same for ours and for Apache's.

The same real brokers are registered with both servers, and each command runs against both at the same moment. Values
that must differ are made equal first: the NameServer's address, the name of a topic that only one side has, and figures
that the brokers count. Unordered output is compared without its order. Intended differences are in DIFFERENCES, with
their reasons, and a test confirms each entry.
"""

import json
import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from tests.interop.peers.apache import ApacheNameServer, MqAdmin, Output
from tests.interop.peers.broker import Broker
from tests.interop.peers.driver import Driver
from tests.interop.peers.route import brokers_of, topics_of, until_routed
from tests.interop.peers.waiting import until_equal
from tests.support.daemon import Daemon
from tests.support.ports import free_port

# Command -> the intended difference and its reason.
DIFFERENCES: Final[Mapping[str, str]] = {
    "updateNamesrvConfig": "refused unless the daemon runs with --admin-enabled, and then sets only what can safely "
    "change in a running server: Apache's lets everybody who reaches the port rewrite its files",
    "getNamesrvConfig": "ours has settings of its own, lacks those of thread pools and Netty, and scans every 10 s "
    "(as Apache's 4.x) where 5.x does every 5 s; it always waits for known brokers, and always drains",
    "addWritePerm": "makes every topic of the broker 6 (read and write) on both, also one that was 7 (and inherited): "
    "ours has it back with the broker's next registration, Apache's when the broker changes a topic",
    "topicClusterList": "names one cluster of a topic that is in several: that of the first broker in the route, which "
    "has no order that counts (ours: by name; Apache's: by hash)",
    "topicList -c": "the same, in its first column",
}

# The names have equal lengths, since mqadmin pads tables.
OURS: Final = "ours"
APACHES: Final = "them"
# The lines that only our remark of code 17 has: the server, and the cause.
_NO_ROUTE_REASON: Final = re.compile(r"\nNameServer \S+, up since \S+, has \d+ brokers?\.\n[^\n]*")
Comparable = Callable[[str], object]


class Sides:
    """Our NameServer and Apache's, the brokers that both know, and an mqadmin for each."""

    def __init__(self, place: Path, stack: ExitStack) -> None:
        port = free_port()
        ours = Daemon(place / "ours", "--listen-port", str(port), "--admin-enabled")
        stack.enter_context(ours)
        apaches = stack.enter_context(ApacheNameServer(place / "apaches"))
        self.addresses = {OURS: f"127.0.0.1:{port}", APACHES: apaches.address}
        both = list(self.addresses.values())
        ours.listening()
        apaches.booted()
        self.master, self.slave, self.other = brokers = (
            stack.enter_context(Broker(place / "a0", both, name="broker-a")),
            stack.enter_context(Broker(place / "a1", both, name="broker-a", broker_id=1, role="SLAVE")),
            stack.enter_context(Broker(place / "b0", both, name="broker-b", cluster="OtherCluster")),
        )
        for broker in brokers:
            broker.booted()
        known = {"broker-a": {0: self.master.address, 1: self.slave.address}, "broker-b": {0: self.other.address}}
        until_equal([known, known], lambda: [brokers_of(address) for address in both])
        self._admins = {
            side: stack.enter_context(MqAdmin(place / f"mqadmin-{side}", address))
            for side, address in self.addresses.items()
        }
        self._threads = stack.enter_context(ThreadPoolExecutor(len(self.addresses)))

    def run(self, command: str) -> dict[str, Output]:
        """The output of a command on each side; {side} in it is the side's name, {master} the address of a broker."""

        def run_on(side: str) -> Output:
            words = command.format(side=side, master=self.master.address).split()
            return self._admins[side](*words)

        return dict(zip(self.addresses, self._threads.map(run_on, self.addresses), strict=True))

    def same(self, command: str, comparable: Comparable = str) -> object:
        """The compared part of the outputs, which must be equal and not empty.

        Raises:
            AssertionError: the outputs differ.
        """
        outputs = self.run(command)
        ours, apaches = (comparable(self._alike(side, output)) for side, output in outputs.items())
        assert apaches == ours
        assert any((output.stdout + output.stderr).strip() for output in outputs.values())
        return ours

    def _alike(self, side: str, output: Output) -> str:
        text = _NO_ROUTE_REASON.sub("", output.stdout + output.stderr)
        return text.replace(self.addresses[side], "NAMESRV").replace(f"-{side}", "-SIDE")


# -- the compared parts of outputs ------------------------------------------------------------------------------------


def rows(output: str) -> list[list[str]]:
    """Rows of a table in any order, without the brokers' own figures (rates, loads, progress of the timer)."""
    output = re.sub(r"\d+\.\d+|\d+-\d+\(|\(\d+,\d+ms(\|\d+,\d+ms)?\)", "N", output)
    return sorted(line.split() for line in output.splitlines())


def rows_without_cluster(output: str) -> list[list[str]]:
    """Rows of `topicList -c` without the cluster; see DIFFERENCES."""
    return sorted(row[1:] if row[0].endswith("Cluster") else row for row in rows(output))


def rows_without_name_servers(output: str) -> list[list[str]]:
    """Rows of `getBrokerConfig` without the NameServers' addresses, since a broker knows both servers."""
    return [row for row in rows(output) if row[:1] != ["namesrvAddr"]]


def route(output: str) -> Any:
    """A route without the order of its brokers."""
    found = json.loads(re.sub(r"([{,]\s*)(\d+):", r'\1"\2":', output))
    return {key: sorted(map(json.dumps, value)) if isinstance(value, list) else value for key, value in found.items()}


def result(output: str) -> object:
    """The result of a query without the order of lists, rates and traces; or its error."""
    if not output.startswith("{"):
        return re.sub(r"\n\s+at .*", "", output)
    return unordered(json.loads(output))


def unordered(value: Any) -> Any:
    """The value with sorted lists, without rates."""
    if isinstance(value, list):
        return sorted(json.dumps(unordered(each), sort_keys=True) for each in value)
    if isinstance(value, dict):
        return {key: unordered(each) for key, each in value.items() if key != "consumeTps"}
    return value


def names(output: str) -> list[list[str]]:
    """The names in statistics of brokers, without their values."""
    return sorted(re.sub("[:=].*", "", line[15:]).split() for line in output.splitlines())


def without_rate(output: str) -> str:
    """The output without numbers with two decimals, such as kilobytes that a slave copies in a second."""
    return re.sub(r"\d+\.\d\d\b", "", output)


def without_identity(output: str) -> str:
    """The output without the ids and times that a broker gives each message."""
    return re.sub(r"\b[0-9A-F]{20,}\b|(?<=hysicOffset=)\d+|(?<=hysicSize=)\d+|\d{4}-\d\d-\d\d \S+|\s+", " ", output)


# -- the brokers and their messages -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sides(place: Path, stack: ExitStack) -> Sides:
    """Both sides, started once for all commands."""
    return Sides(place, stack)


@pytest.fixture(scope="module")
def shop(sides: Sides, clients: Driver) -> None:
    """Create a topic with two queues and messages, and a group that has consumed them."""
    addresses = list(sides.addresses.values())
    sides.same("updateTopic -b {master} -t shop -r 2 -w 2")
    until_routed(addresses, "shop")
    clients.start_producer("seller", addresses[:1])
    clients.start_consumer("buyer", addresses[:1], "shop", group="buyers")
    sent = clients.send("seller", "shop", 6, "m")
    assert len(sent) == 6
    until_equal(sent, lambda: clients.bodies("received", name="buyer"))
    until_routed(addresses, "%RETRY%buyers")
    until_equal(topics_of(addresses[0]), lambda: topics_of(addresses[1]))


# -- commands that only read -------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize(
    ("command", "comparable"),
    [
        ("clusterList", rows),
        ("clusterList -m", rows),
        ("topicList", rows),
        ("topicList -c", rows_without_cluster),
        ("topicRoute -t TBW102", route),
        ("topicRoute -t shop", str),
        ("topicRoute -t shop -l", str),
        ("topicRoute -t no-such-topic", str),
        ("topicStatus -t shop", str),
        ("topicStatus -t no-such-topic", str),
        ("topicClusterList -t shop", str),
        ("topicClusterList -t no-such-topic", str),
        ("allocateMQ -t shop -i 10.0.0.1,10.0.0.2", str),
        ("queryCq -t shop -q 0 -i 0 -c 1", without_identity),
        ("statsAll", rows),
        ("statsAll -t shop", rows),
        ("consumerProgress", rows),
        ("consumerProgress -g buyers", rows),
        ("consumerProgress -g unknown", str),
        ("consumerConnection -g buyers", str),
        ("brokerStatus -c DefaultCluster", names),
        ("getBrokerConfig -c DefaultCluster", rows_without_name_servers),
        ("haStatus -c DefaultCluster", without_rate),
        ("updateTopic -c unknown -t x", str),
        ("listUser -c DefaultCluster", str),
        ("listAcl -c DefaultCluster", str),
    ],
)
def test_reading_command_prints_the_same(sides: Sides, command: str, comparable: Comparable) -> None:
    """Lists, routes and statistics of existing and missing names are equal."""
    sides.same(command, comparable)


# -- the Dashboard and the Exporter ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize(
    "query",
    [
        "examineBrokerClusterInfo",
        "fetchAllTopicList",
        "examineTopicRouteInfo shop",
        "examineTopicRouteInfo no-such-topic",
        "examineTopicStats shop",
        "queryTopicConsumeByWho shop",
        "queryTopicConsumeByWho no-such-topic",
        "examineConsumerConnectionInfo buyers",
        "examineConsumerConnectionInfo unknown",
        "examineConsumeStats buyers",
        "examineConsumeStats buyers shop",
        "examineConsumeStats unknown shop",
        "examineProducerConnectionInfo producers-seller shop",
    ],
)
def test_dashboard_and_exporter_get_the_same(sides: Sides, query: str) -> None:
    """The queries of RocketMQ's Dashboard and Exporter have the same results.

    Their own programs are not published in Maven Central; these are their calls of MQAdminExt.
    """
    sides.same(f"query {query}", result)


def test_dashboard_gets_the_system_topics(sides: Sides) -> None:
    """The list has clusters and brokers; the client adds the topics of the one broker that the response names."""

    def of_name_server(output: str) -> list[str]:
        names = {"DefaultCluster", "OtherCluster", "broker-a", "broker-b"}
        return sorted(names.intersection(json.loads(output)["topicList"]))

    assert sides.same("query getSystemTopicList", of_name_server) == [
        "DefaultCluster",
        "OtherCluster",
        "broker-a",
        "broker-b",
    ]


# -- commands that change something -----------------------------------------------------------------------------------


def has_come(sides: Sides, command: str, *topics: str) -> None:
    """Create topics; return as soon as both sides have all of them."""
    sides.same(command)
    for topic in topics:
        until_routed(list(sides.addresses.values()), topic)
    until_equal(topics_of(sides.addresses[OURS]), lambda: topics_of(sides.addresses[APACHES]))


CHANGES: Final[Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    # Set, set again, deleted, and deleted twice.
    "kv": (
        (
            "updateKvConfig -s SPACE -k key -v one",
            "updateKvConfig -s SPACE -k key -v two",
            "deleteKvConfig -s SPACE -k key",
            "deleteKvConfig -s SPACE -k key",
        ),
        (),
    ),
    # A put value is returned, and a deleted one is gone.
    "order": (
        (
            "updateOrderConf -m put -t ordered -v broker-a:4;broker-b:4",
            "updateOrderConf -m get -t ordered",
            "updateOrderConf -m delete -t ordered",
            "updateOrderConf -m get -t ordered",
        ),
        (r"orderConf=\[broker-a:4;broker-b:4\]", "No config item, Namespace: ORDER_TOPIC_CONFIG Key: ordered"),
    ),
    # `updateTopic -o` reads the order configuration and writes it back with its own broker.
    "ordered topic": (
        (
            "updateOrderConf -m put -t merged-{side} -v broker-z:2",
            "updateTopic -b {master} -t merged-{side} -o true",
            "updateOrderConf -m get -t merged-{side}",
        ),
        (r"get orderConf success.*orderConf=\[(broker-a:8;broker-z:2|broker-z:2;broker-a:8)\]",),
    ),
    # Removed and added back, with the number of changed topics; also for an unknown broker.
    "write permission": (
        (
            "wipeWritePerm -b broker-b",
            "topicRoute -t closing",
            "addWritePerm -b broker-b",
            "topicRoute -t closing",
            "wipeWritePerm -b unknown",
        ),
        (r'(?s)"perm":4.*"perm":6', r"broker\[unknown\] in name server\[NAMESRV\] OK, 0"),
    ),
    # Closed for writing, then deleted from the brokers and from the NameServer.
    "topic": (
        (
            "updateTopicPerm -c DefaultCluster -t passing-{side} -p 4",
            "topicClusterList -t passing-{side}",
            "deleteTopic -c DefaultCluster -t passing-{side}",
            "topicRoute -t passing-{side}",
        ),
        (
            r"delete topic \[passing-SIDE\] from NameServer success\.",
            "No topic route info in name server for the topic: passing-SIDE",
        ),
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changing_commands_print_the_same(sides: Sides, change: str) -> None:
    """The outputs of all commands of a change match the patterns on both sides."""
    if change == "write permission":
        has_come(sides, "updateTopic -c OtherCluster -t closing", "closing")
    elif change == "topic":
        both = (f"passing-{OURS}", f"passing-{APACHES}")
        has_come(sides, "updateTopic -c DefaultCluster -t passing-{side} -r 3 -w 2", *both)
    commands, patterns = CHANGES[change]

    output = "\n".join(str(sides.same(command)) for command in commands)

    assert [pattern for pattern in patterns if not re.search(pattern, output)] == [], output


@pytest.mark.parametrize(
    "command",
    [
        "updateSubGroup -c DefaultCluster -g readers-{side}",
        "deleteSubGroup -c DefaultCluster -g readers-{side}",
        "updateBrokerConfig -c DefaultCluster -k flushDelayOffsetInterval -v 9000",
        "cleanExpiredCQ -c DefaultCluster",
        "cleanUnusedTopic -c DefaultCluster",
        "deleteExpiredCommitLog -c DefaultCluster",
        "sendMessage -t broker-b -p hello",
    ],
)
def test_command_for_a_cluster_finds_its_brokers(sides: Sides, command: str) -> None:
    """A command for a cluster or topic gets its brokers from the NameServer, and sends its requests to them."""
    sides.same(command, without_identity)


# -- intended differences ------------------------------------------------------------------------------------------


def _config(output: Output) -> dict[str, str]:
    found = (line.partition("=") for line in output.stdout.splitlines() if not line.startswith("==="))
    return {key.strip(): value.strip() for key, _, value in found}


def test_configuration_is_the_same_where_both_have_it(sides: Sides) -> None:
    """getNamesrvConfig: of the common keys of both servers only these differ; see DIFFERENCES."""
    outputs = sides.run("getNamesrvConfig")
    ours, apaches = _config(outputs[OURS]), _config(outputs[APACHES])

    assert {key for key in ours.keys() & apaches.keys() if ours[key] != apaches[key]} == {
        "listenPort",
        "scanNotActiveBrokerInterval",
        "needWaitForService",
        "enableShutdownGracefully",
        "shutdownWaitTimeSeconds",
    }
    assert (ours["scanNotActiveBrokerInterval"], apaches["scanNotActiveBrokerInterval"]) == ("10000", "5000")
    assert {"bindAddress", "orderMessageEnable", "supportActingMaster"} <= ours.keys() & apaches.keys()


def test_settings_are_set_where_they_may_change(sides: Sides) -> None:
    """With --admin-enabled updateNamesrvConfig succeeds, and the new value is shown.

    Apache's server also accepts a new port, and writes it to its file; ours refuses it.
    """
    output = sides.same("updateNamesrvConfig -k notifyMinBrokerIdChanged -v true")
    assert "update name server config success![NAMESRV]" in str(output)
    for output in sides.run("getNamesrvConfig").values():
        assert _config(output)["notifyMinBrokerIdChanged"] == "true"

    outputs = sides.run("updateNamesrvConfig -k listenPort -v 1")
    assert "success" in outputs[APACHES].stdout
    assert re.search("(?s)SubCommandException.*listenPort", outputs[OURS].stderr)


def test_administration_is_off_by_default(place: Path, stack: ExitStack) -> None:
    """updateNamesrvConfig: without --admin-enabled the error names the setting that allows it."""
    daemon = stack.enter_context(Daemon(place / "closed"))
    admin = stack.enter_context(MqAdmin(place / "mqadmin-closed", daemon.listening().where))

    output = admin("updateNamesrvConfig", "-k", "notifyMinBrokerIdChanged", "-v", "true")

    assert "CODE: 16  DESC: administration is disabled on this server, see its setting admin-enabled" in output.stderr


def test_added_permission_returns_to_the_brokers_own(sides: Sides) -> None:
    """addWritePerm: a topic with permission 7 has 6 on both servers, and on ours 7 again after a registration."""
    address = sides.addresses[OURS]
    until_equal({(1, 1, 7)}, lambda: _queues(address, "broker-b"))

    sides.same("wipeWritePerm -b broker-b")
    sides.same("addWritePerm -b broker-b")

    until_equal({(1, 1, 7)}, lambda: _queues(address, "broker-b"))


def _queues(address: str, topic: str) -> set[tuple[int, int, int]]:
    return set(until_routed([address], topic)[0].queues.values())


@pytest.mark.parametrize("command", ["topicClusterList -t TBW102", "topicList -c"])
def test_topic_of_several_clusters_is_shown_in_one_of_them(sides: Sides, command: str) -> None:
    """Each server shows one of the clusters, in no defined order."""
    clusters = {
        side: {word for word in output.stdout.split() if word in {"DefaultCluster", "OtherCluster"}}
        for side, output in sides.run(command).items()
    }

    assert all(clusters.values())
