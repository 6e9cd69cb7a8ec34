"""mqadmin's commands work with mqadmin's options."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.ctl import address_of, ctl, run
from tests.support.in_process import namesrv_in_process
from tests.support.namesrv_peer import Broker

MASTER = Broker()
ELSEWHERE = Broker("broker-c", 0, "10.0.1.1:10911", "cluster-2")


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (["clusterList"], ["clusters"]),
        (["clusterList", "-c", "cluster-1"], ["clusters", "--cluster", "cluster-1"]),
        (["topicList"], ["topics"]),
        (["topicRoute", "-t", "T"], ["route", "T"]),
        (["topicRoute", "--topic", "X"], ["route", "X"]),
        (["getNamesrvConfig"], ["config", "show"]),
        (["wipeWritePerm", "-b", "broker-a", "-y"], ["wipe-write-perm", "broker-a", "-y"]),
        (["addWritePerm", "-b", "broker-a", "-y"], ["add-write-perm", "broker-a", "-y"]),
        (["updateKvConfig", "-s", "ns", "-k", "k", "-v", "v"], ["kv", "put", "ns", "k", "v"]),
        (["deleteKvConfig", "-s", "ns", "-k", "k", "-y"], ["kv", "delete", "ns", "k", "-y"]),
        (
            ["updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "true", "--yes"],
            ["config", "set", "orderMessageEnable=true", "--yes"],
        ),
        (
            ["updateOrderConf", "-m", "put", "-t", "T", "-v", "broker-a:4"],
            ["kv", "put", "ORDER_TOPIC_CONFIG", "T", "broker-a:4"],
        ),
        (["updateOrderConf", "-m", "get", "-t", "X"], ["kv", "get", "ORDER_TOPIC_CONFIG", "X"]),
        (["updateOrderConf", "-m", "delete", "-t", "T", "-y"], ["kv", "delete", "ORDER_TOPIC_CONFIG", "T", "-y"]),
    ],
    ids=" ".join,
)
async def test_mqadmins_spelling_does_the_same(tmp_path: Path, theirs: Sequence[str], ours: Sequence[str]) -> None:
    """With mqadmin's own options, on all servers that -n names."""
    async with (
        namesrv_in_process(tmp_path / "1", admin_enabled=True) as first,
        namesrv_in_process(tmp_path / "2") as second,
    ):
        for server in (first, second):
            await (await server.connect()).register(MASTER)
            await (await server.connect()).register(ELSEWHERE)
        servers = f"{address_of(first)};{address_of(second)}"

        assert await ctl(*ours, "-s", servers, "-o", "json") == await ctl(*theirs, "-n", servers, "-o", "json")


async def test_topic_is_deleted_as_mqadmin_says_it(tmp_path: Path) -> None:
    """From one cluster's brokers."""
    async with namesrv_in_process(tmp_path) as server:
        peer = await server.connect()
        await peer.register(MASTER)
        await peer.register(ELSEWHERE)

        done = await ctl("deleteTopic", "-n", address_of(server), "-c", "cluster-1", "-t", "T", "--yes")

        assert 0 == done.code
        (queues,) = server.namesrv.manager.tables.topic_queue_table["T"]
        assert "broker-c" == queues.broker_name


async def test_clusters_of_a_topic(tmp_path: Path) -> None:
    """TopicClusterList has no other spelling here; an absent topic is a no."""
    async with namesrv_in_process(tmp_path) as server:
        peer = await server.connect()
        await peer.register(MASTER)
        await peer.register(ELSEWHERE)
        where = ("-n", address_of(server))

        shown = await ctl("topicClusterList", *where, "-t", "T")
        found = await ctl("topicClusterList", *where, "-t", "X", "-o", "json")

        assert (0, ["CLUSTER", "cluster-1", "cluster-2"]) == (shown.code, shown.lines)
        assert (1, {"servers": [{"server": address_of(server), "clusters": []}]}) == (found.code, found.json)


def test_order_configuration_is_not_put_without_a_value() -> None:
    """Wrong usage."""
    refused = run("updateOrderConf", "-m", "put", "-t", "T")

    assert (2, "") == (refused.code, refused.out)


def test_servers_may_be_named_as_usual_too() -> None:
    """-s is the namespace in some of mqadmin's commands, so that only --server is left."""
    refused = run("--server", "127.0.0.1:1", "topicList", "--timeout", "1s")

    assert (2, True) == (refused.code, refused.problems[0].startswith("no connection to 127.0.0.1:1"))
