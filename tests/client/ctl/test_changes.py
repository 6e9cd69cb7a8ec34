"""The commands `wipe-write-perm`, `add-write-perm` and `delete-topic`."""

from pathlib import Path

import pytest

from tests.support.apache_server import ApacheFront
from tests.support.ctl import address_of, at, ctl
from tests.support.in_process import InProcess, namesrv_in_process
from tests.support.namesrv_peer import Broker, registration, topic_config

MASTER = Broker()
ELSEWHERE = Broker("broker-c", 0, "10.0.1.1:10911", "cluster-2")


def perms(server: InProcess, topic: str) -> dict[str, int]:
    """Broker name -> permission of a topic."""
    return {queues.broker_name: queues.perm for queues in server.namesrv.manager.tables.topic_queue_table[topic]}


@pytest.mark.parametrize("is_apache", [False, True], ids=["native", "rocketmq"])
async def test_write_permission_is_wiped_and_added(tmp_path: Path, *, is_apache: bool) -> None:
    """The answer says how many topics the broker has; adding makes what was read-only writable, too."""
    async with namesrv_in_process(tmp_path) as ours, ApacheFront(ours.address) as apache:
        server = apache if is_apache else ours
        peer = await ours.connect()
        await peer.register(MASTER, registration("T", topic_config("U", perm=4)))
        await peer.register(ELSEWHERE)

        wiped = await ctl(*at(server), "wipe-write-perm", "broker-a", "--yes")
        assert (0, [["SERVER", "RESULT", "TOPICS"], [address_of(server), "done", "2"]]) == (wiped.code, wiped.cells)
        assert {"broker-a": 4, "broker-c": 6} == perms(ours, "T")

        added = await ctl(*at(server), "add-write-perm", "broker-a", "--yes", "-o", "json")
        assert {"broker": "broker-a", "servers": [{"server": address_of(server), "topics": 2}]} == added.json
        assert ({"broker-a": 6, "broker-c": 6}, {"broker-a": 6, "broker-c": 6}) == (perms(ours, "T"), perms(ours, "U"))


@pytest.mark.parametrize("command", ["wipe-write-perm", "add-write-perm"])
async def test_unknown_broker_is_a_no(tmp_path: Path, command: str) -> None:
    """Most likely its name is misspelt."""
    async with namesrv_in_process(tmp_path) as server:
        found = await ctl(*at(server), command, "broker-x", "-y")

        assert (1, f"namesrvctl: {address_of(server)}: no topics of broker broker-x\n") == (found.code, found.err)


@pytest.mark.parametrize(
    ("command", "asked"),
    [
        (("wipe-write-perm", "broker-a"), "wipe the write permission of broker broker-a"),
        (("add-write-perm", "broker-a"), "make all topics of broker broker-a readable and writable"),
        (("delete-topic", "T"), "delete topic T"),
        (("delete-topic", "T", "-c", "cluster-1"), "delete topic T of cluster cluster-1"),
        (("config", "set", "a=b", "c=d"), "set a to b, c to d"),
        (("kv", "delete", "ns", "k\x1b"), r"delete k\x1b from ns"),
        (("wipeWritePerm", "-b", "broker-a"), "wipe the write permission of broker broker-a"),
    ],
)
async def test_change_without_a_yes_is_not_made(tmp_path: Path, command: tuple[str, ...], asked: str) -> None:
    """Where nobody can be asked it is refused before any server hears of it, and says what it would have done."""
    async with namesrv_in_process(tmp_path) as server:
        await (await server.connect()).register(MASTER)
        before = server.namesrv.manager.revisions.revision
        where = address_of(server)

        refused = await ctl(*command, env={"NAMESRV_ADDR": f"{where};127.0.0.1:1"})

        reason = "No terminal to ask on; pass --yes to confirm"
        assert (2, "", f"namesrvctl: {asked} on {where}, 127.0.0.1:1? {reason}\n") == refused
        assert (before, 1) == (server.namesrv.manager.revisions.revision, len(server.namesrv.connections))


@pytest.mark.parametrize("is_apache", [False, True], ids=["native", "rocketmq"])
async def test_topic_is_deleted(tmp_path: Path, *, is_apache: bool) -> None:
    """Everywhere, or on one cluster's brokers."""
    async with namesrv_in_process(tmp_path) as ours, ApacheFront(ours.address) as apache:
        server = apache if is_apache else ours
        peer = await ours.connect()
        await peer.register(MASTER)
        await peer.register(ELSEWHERE)

        one = await ctl(*at(server), "delete-topic", "T", "--cluster", "cluster-2", "--yes")
        assert (0, [["SERVER", "RESULT", "EXISTED"], [address_of(server), "done", "yes"]]) == (one.code, one.cells)
        assert {"broker-a": 6} == perms(ours, "T")

        everywhere = await ctl(*at(server), "delete-topic", "T", "--yes", "-o", "json")
        assert (
            0,
            {"topic": "T", "cluster": None, "servers": [{"server": address_of(server), "existed": True}]},
        ) == (everywhere.code, everywhere.json)
        assert "T" not in ours.namesrv.manager.tables.topic_queue_table

        again = await ctl(*at(server), "delete-topic", "T", "--yes")
        assert (1, "namesrvctl: no topic T\n") == (again.code, again.err)


async def test_topic_that_one_server_had_was_deleted(tmp_path: Path) -> None:
    """That is what was wanted: none of them has it now."""
    async with namesrv_in_process(tmp_path / "1") as first, namesrv_in_process(tmp_path / "2") as second:
        await (await second.connect()).register(MASTER)

        done = await ctl(*at(first, second), "delete-topic", "T", "-y")

        assert (0, "", [[address_of(first), "done", "no"], [address_of(second), "done", "yes"]]) == (
            done.code,
            done.err,
            done.cells[1:],
        )


async def test_topic_is_deleted_from_a_server_that_is_not_ready(tmp_path: Path) -> None:
    """It refuses questions for routes only."""
    async with namesrv_in_process(tmp_path) as server:
        await (await server.connect()).register(MASTER)
    async with namesrv_in_process(tmp_path) as server:
        await (await server.connect()).register(ELSEWHERE)

        done = await ctl(*at(server), "delete-topic", "T", "-y", "-o", "json")

        assert (0, True) == (done.code, done.json["servers"][0]["existed"])
        assert ["U"] == list(server.namesrv.manager.tables.topic_queue_table)


async def test_topic_is_deleted_where_topics_are_not_listed(tmp_path: Path) -> None:
    """Whether it was there is not known then, and no no."""
    async with namesrv_in_process(tmp_path, enable_all_topic_list=False) as server:
        await (await server.connect()).register(MASTER)

        done = await ctl(*at(server), "delete-topic", "T", "-y", "-o", "json")

        assert (0, None) == (done.code, done.json["servers"][0]["existed"])
        assert ["U"] == list(server.namesrv.manager.tables.topic_queue_table)


@pytest.mark.parametrize(
    "command", [("wipe-write-perm", "b"), ("kv", "put", "n", "k", "v"), ("watch", "T"), ("bench",)]
)
async def test_what_changes_or_follows_is_not_repeated(command: tuple[str, ...]) -> None:
    """--watch is for commands that only ask."""
    refused = await ctl(*command, "--watch", "1s", "--yes")

    assert 2 == refused.code
    assert "cannot be repeated" in refused.err
