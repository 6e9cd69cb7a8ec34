"""The commands that change a server, `kv get`, `kv list` and `config show`, and their mqadmin names."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from namesrv.routeinfo.tables.rows import queues_of
from namesrv_remoting.codes import RequestCode
from tests.support.agents import real, registrations
from tests.support.apache_server import ApacheFront
from tests.support.certificates import Authority
from tests.support.ctl import address_of, at, ctl, one_server, refusing_address, run, two_servers
from tests.support.daemon import Daemon
from tests.support.in_process import InProcess, namesrv_in_process
from tests.support.namesrv_peer import ELSEWHERE, MASTER, registration, topic_config

BOTH = pytest.mark.parametrize("protocol", ["native", "rocketmq"])


def perms(server: InProcess, topic: str) -> dict[str, int]:
    """Broker name -> permission of a topic."""
    row = server.namesrv.manager.tables.topic_queue_table.get(topic)
    return {queues.broker_name: queues.perm for queues in queues_of(row)}


@BOTH
async def test_write_permission_is_removed_and_added(tmp_path: Path, protocol: str) -> None:
    """The response contains the broker's number of topics; `add` also makes read-only topics writable."""
    async with one_server(tmp_path, protocol) as (server, where):
        peer = await server.connect()
        await peer.register(MASTER, registration("T", topic_config("U", perm=4)))
        await peer.register(ELSEWHERE)

        wiped = await ctl(*at(where), "wipe-write-perm", "broker-a", "--yes")
        assert (wiped.code, wiped.cells) == (0, [["SERVER", "RESULT", "TOPICS"], [where, "done", "2"]])
        assert perms(server, "T") == {"broker-a": 4, "broker-c": 6}

        added = await ctl(*at(where), "add-write-perm", "broker-a", "--yes", "-o", "json")
        assert added.json == {"broker": "broker-a", "servers": [{"server": where, "topics": 2}]}
        assert [perms(server, "T"), perms(server, "U")] == [{"broker-a": 6, "broker-c": 6}] * 2

        for command in ("wipe-write-perm", "add-write-perm"):
            unknown = await ctl(*at(where), command, "broker-x", "-y")
            assert (unknown.code, unknown.err) == (1, f"namesrvctl: {where}: no topics of broker broker-x\n")
            assert unknown.cells[1:] == [[where, "nothing changed", "0"]]


@BOTH
async def test_topic_is_deleted(tmp_path: Path, protocol: str) -> None:
    """The topic is deleted everywhere, or on the brokers of one cluster."""
    async with one_server(tmp_path, protocol) as (server, where):
        peer = await server.connect()
        await peer.register(MASTER)
        await peer.register(ELSEWHERE)

        one = await ctl(*at(where), "delete-topic", "T", "--cluster", "cluster-2", "--yes")
        assert (one.code, one.cells) == (0, [["SERVER", "RESULT", "EXISTED"], [where, "done", "yes"]])
        assert perms(server, "T") == {"broker-a": 6}

        twice = await ctl(*at(where), "delete-topic", "T", "--cluster", "cluster-2", "--yes")
        assert (twice.code, twice.err) == (1, "namesrvctl: no topic T of cluster cluster-2\n")
        assert twice.cells[1:] == [[where, "nothing changed", "no"]]

        everywhere = await ctl(*at(where), "delete-topic", "T", "--yes", "-o", "json")
        done = {"topic": "T", "cluster": None, "servers": [{"server": where, "existed": True}]}
        assert (everywhere.code, everywhere.json, perms(server, "T")) == (0, done, {})


async def test_topic_is_deleted_if_only_one_server_has_it(tmp_path: Path) -> None:
    """A topic known to one of two servers is gone afterwards, and the exit code is 0; without it nothing changes."""
    async with two_servers(tmp_path) as (_, second, one, two):
        await second.register(MASTER)

        done = await ctl(*at(one, two), "delete-topic", "T", "-y")
        again = await ctl(*at(one, two), "delete-topic", "T", "-y")

    assert (done.code, done.err, done.cells[1:]) == (0, "", [[one, "nothing changed", "no"], [two, "done", "yes"]])
    assert (again.code, again.err) == (1, "namesrvctl: no topic T\n")
    assert again.cells[1:] == [[where, "nothing changed", "no"] for where in (one, two)]


@pytest.mark.parametrize("command", [("kv", "put", "ns", "k", "v"), ("delete-topic", "T", "-y")])
async def test_change_that_reaches_only_some_servers_exits_with_1(tmp_path: Path, command: Sequence[str]) -> None:
    """The reached server is changed; the exit code shows a script that another server lacks the change."""
    async with one_server(tmp_path) as (server, where):
        await (await server.connect()).register(MASTER)
        with refusing_address() as absent:
            done = await ctl(*at(where, absent), *command)

    assert (done.code, [row[:2] for row in done.cells[1:]]) == (1, [[where, "done"]])
    assert [problem.startswith(f"no connection to {absent}: ") for problem in done.problems] == [True]


async def test_an_agent_registers_a_deleted_topic_again_with_its_next_heartbeat(tmp_path: Path) -> None:
    """Its heartbeats have no topics, unlike those of RocketMQ's brokers, but their response asks for all of them."""
    async with real(tmp_path) as it:
        deleted = await ctl(*at(it.server), "delete-topic", "orders", "-y")
        assert (deleted.code, perms(it.server, "orders")) == (0, {})
        await it.passing(lambda: perms(it.server, "orders") == {"broker-a": 6})

        await it.agent.delete_topic("orders")
        await it.agent.registered()
        again = await ctl(*at(it.server), "delete-topic", "orders", "-y")
        beats = it.state.counts.heartbeats
        await it.passing(lambda: it.state.counts.heartbeats > beats + 1, at_most=60.0)
        assert (again.code, perms(it.server, "orders")) == (1, {})
        assert await registrations(it.server) == [("full", 2), ("full", 2), ("delta", 1)]


async def test_topic_is_deleted_on_a_server_that_refuses_route_requests(tmp_path: Path) -> None:
    """A server that is not ready deletes topics; whether the topic existed is unknown without a topic list."""
    async with one_server(tmp_path) as (server, _):
        await (await server.connect()).register(MASTER)
    for listed in (True, False):
        async with one_server(tmp_path, enable_all_topic_list=listed) as (server, where):
            await (await server.connect()).register(ELSEWHERE)

            done = await ctl(*at(where), "delete-topic", "T", "-y", "-o", "json")

            assert (done.code, done.json["servers"][0]["existed"]) == (0, True if listed else None)
            assert list(server.namesrv.manager.tables.topic_queue_table) == ["U"]
    async with one_server(tmp_path, enable_all_topic_list=False) as (_, where):
        shown = await ctl(*at(where), "delete-topic", "absent", "-y")
    assert shown.cells[1:] == [[where, "done, if it existed"]]


async def test_topic_is_not_deleted_without_the_tls_that_the_server_requires(tmp_path: Path) -> None:
    """The server closes the connection after its refusal, which must not look like a failure of the network."""
    tls = {"tls_mode": "enforcing", **Authority(tmp_path).issue("server").server_settings}
    async with one_server(tmp_path / "data", **tls) as (_, where):
        refused = await ctl(*at(where), "delete-topic", "T", "--yes")

    assert (refused.code, refused.out) == (1, "")
    assert "this server requires TLS" in refused.err


@BOTH
async def test_kv_value_is_put_shown_and_deleted(tmp_path: Path, protocol: str) -> None:
    """Both protocols behave the same."""
    async with one_server(tmp_path, protocol) as (server, name):
        where = at(name)
        put = await ctl(*where, "kv", "put", "ns", "k", "v=1; ü")
        assert (put.code, put.cells) == (0, [["SERVER", "RESULT"], [name, "done"]])
        assert server.namesrv.kv.get("ns", "k") == "v=1; ü"
        again = await ctl(*where, "kv", "put", "ns", "a", "2", "-o", "json")
        assert again.json == {"namespace": "ns", "key": "a", "value": "2", "servers": [{"server": name}]}

        got = await ctl(*where, "kv", "get", "ns", "k")
        assert (got.code, got.lines) == (0, ["VALUE", "v=1; ü"])
        listed = await ctl(*where, "kv", "list", "ns")
        assert (listed.code, listed.cells) == (0, [["KEY", "VALUE"], ["a", "2"], ["k", "v=1; ü"]])
        found = await ctl(*where, "kv", "list", "ns", "-o", "json")
        assert found.json == {"servers": [{"server": name, "values": {"a": "2", "k": "v=1; ü"}}]}

        deleted = await ctl(*where, "kv", "delete", "ns", "k", "--yes", "-o", "json")
        assert (deleted.code, deleted.json) == (0, {"namespace": "ns", "key": "k", "servers": [{"server": name}]})
        assert server.namesrv.kv.get("ns", "k") is None
        assert await ctl(*where, "kv", "get", "ns", "k") == (1, "", f"namesrvctl: {name}: no k in ns\n")
        absent = await ctl(*where, "kv", "get", "ns", "k", "-o", "json")
        assert absent.json == {"servers": [{"server": name, "value": None}]}
        assert await ctl(*where, "kv", "list", "other") == (1, "", f"namesrvctl: {name}: no namespace other\n")


@BOTH
async def test_settings_are_shown_and_changed(tmp_path: Path, protocol: str) -> None:
    """Settings have Apache's names; `show` filters by name, and `set` changes several if the server allows it."""
    async with one_server(tmp_path / "1", protocol) as (_, where):
        shown = await ctl(*at(where), "config", "show", "orderMessageEnable", "bindAddress")
        rows = [["KEY", "VALUE"], ["bindAddress", "127.0.0.1"], ["orderMessageEnable", "false"]]
        assert (shown.code, shown.cells) == (0, rows)
        everything = (await ctl(*at(where), "config", "show", "-o", "json")).json["servers"][0]["config"]
        # paths are hidden unless administration is enabled
        assert (everything["bindAddress"], "dataDir" not in everything) == ("127.0.0.1", True)
        absent = await ctl(*at(where), "config", "show", "noSuch")
        assert absent == (1, "", f"namesrvctl: {where}: no setting noSuch\n")
        refused = await ctl(*at(where), "config", "set", "orderMessageEnable=true", "--yes")
        reason = "administration is disabled on this server, see its setting admin-enabled"
        assert (refused.code, refused.out, refused.problems) == (1, "", [f"{where}: refused with code 16: {reason}"])
    async with one_server(tmp_path / "2", protocol, admin_enabled=True) as (server, where):
        settings = ("orderMessageEnable=true", "enableTopicList=false")
        done = await ctl(*at(where), "config", "set", *settings, "-y", "-o", "json")

        assert (done.code, done.json["config"]) == (0, {"orderMessageEnable": "true", "enableTopicList": "false"})
        assert (server.namesrv.settings.live.order_message_enable, server.namesrv.settings.live.enable_topic_list) == (
            True,
            False,
        )


async def test_unknown_and_fixed_settings_change_no_server(tmp_path: Path) -> None:
    """An unknown or fixed setting is an error before any server is changed."""
    async with one_server(tmp_path / "1", admin_enabled=True) as (server, where):
        misspelt = await ctl(*at(where), "config", "set", "orderMessageEnabel=true", "enableTopicList=false")
        fixed = await ctl(*at(where), "config", "set", "listenPort=1", "maxConnections=1", "--yes")

        assert server.namesrv.settings.live.enable_topic_list is True
    hint = "did you mean orderMessageEnable?"
    assert (misspelt.code, misspelt.out) == (1, "")
    assert misspelt.problems[0] == f"{where}: no setting orderMessageEnabel ({hint})"
    fixed_by = "cannot be changed by a request: change the server's configuration, and"
    assert (fixed.code, fixed.problems[:1]) == (1, [f"{where}: setting listenPort {fixed_by} restart it"])
    assert fixed.problems[1] == f"{where}: setting maxConnections {fixed_by} send it SIGHUP"
    (names,) = {each.problems[-1].removeprefix(f"{where}: a request can change ") for each in (misspelt, fixed)}
    assert {"enableTopicList", "orderMessageEnable"} <= set(names.split(", "))


async def test_settings_have_our_names_as_well(tmp_path: Path) -> None:
    """A setting may be given by the name that flags and files of our server have."""
    async with one_server(tmp_path, admin_enabled=True) as (server, where):
        shown = await ctl(*at(where), "config", "show", "listen_host", "drain-seconds", "-o", "json")
        done = await ctl(*at(where), "config", "set", "enable-topic-list=false", "--yes")
        misspelt = await ctl(*at(where), "config", "show", "listen_hots")

        assert server.namesrv.settings.live.enable_topic_list is False
    assert sorted(shown.json["servers"][0]["config"]) == ["bindAddress", "shutdownWaitTimeSeconds"]
    assert (done.code, done.err) == (0, "")
    assert misspelt == (1, "", f"namesrvctl: {where}: no setting listen_hots (did you mean listen-host?)\n")


def test_settings_of_several_servers_are_compared(tmp_path: Path) -> None:
    """The table shows settings that differ or have no default value, or all with --all; JSON always contains all."""
    with (
        Daemon(tmp_path / "1", "--nameserver-name", "ns", "--max-connections", "5000") as first,
        Daemon(tmp_path / "2", "--nameserver-name", "ns") as second,
    ):
        one, two = ["{}:{}".format(*each.listening().address) for each in (first, second)]
        shown = run("-s", one, "-s", two, "config", "show")
        single = run("-s", one, "config", "show")
        everything = run("-s", one, "-s", two, "config", "show", "--all")
        complete = run("-s", one, "-s", two, "config", "show", "-o", "json")
    document = complete.json

    rows = {row[0]: row[1:] for row in shown.cells[1:]}
    assert shown.cells[0] == ["KEY", one, two]
    assert (rows["maxConnections"], rows["nameserverName"]) == (["5000", "10000"], ["ns", "ns"])
    assert (single.cells[0], ["maxConnections", "5000", "flag"] in single.cells) == (["KEY", "VALUE", "FROM"], True)
    assert "needWaitForService" not in rows
    left_out = len(everything.lines) - len(shown.lines)
    assert left_out > 30
    assert shown.problems == [f"{left_out} settings with default values left out; use --all"]
    assert (len(everything.lines) - 1, complete.err) == (len(document["servers"][0]["config"]), "")


async def test_server_that_reports_no_settings_is_named_in_words(tmp_path: Path) -> None:
    """A server of another kind may send an empty list, which would otherwise look like a command that did nothing."""
    async with namesrv_in_process(tmp_path) as server, ApacheFront(server.address) as front:
        front.bodies[RequestCode.GET_NAMESRV_CONFIG] = b""
        shown = await ctl(*at(front), "config", "show")
        found = await ctl(*at(front), "config", "show", "-o", "json")

    assert shown == (0, "", "namesrvctl: no settings reported\n")
    assert found.json == {"servers": [{"server": address_of(front), "config": {}}]}


@pytest.mark.parametrize(
    ("command", "question"),
    [
        (("wipe-write-perm", "broker-a"), "wipe the write permission of broker broker-a"),
        (("add-write-perm", "broker-a"), "make all topics of broker broker-a readable and writable"),
        (("delete-topic", "T"), "delete topic T"),
        (("delete-topic", "T", "-c", "cluster-1"), "delete topic T of cluster cluster-1"),
        (("config", "set", "orderMessageEnable=true"), "set orderMessageEnable to true"),
        (("kv", "delete", "ns", "k\x1b"), r"delete k\x1b from ns"),
        (("wipeWritePerm", "-b", "broker-a"), "wipe the write permission of broker broker-a"),
    ],
)
async def test_change_needs_confirmation(tmp_path: Path, command: Sequence[str], question: str) -> None:
    """Without a terminal a change is refused with its confirmation question, and no server is changed."""
    async with one_server(tmp_path) as (server, where):
        refused = await ctl(*command, env={"NAMESRV_ADDR": f"{where};127.0.0.1:1"})

        reason = "No terminal to ask on; pass --yes to confirm"
        assert refused == (2, "", f"namesrvctl: {question} on {where}, 127.0.0.1:1? {reason}\n")
        assert (server.namesrv.settings.live.order_message_enable, server.namesrv.events.last_seq) == (False, 0)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("clusterList", "clusters"),
        ("clusterList -c cluster-1", "clusters --cluster cluster-1"),
        ("topicList", "topics"),
        ("topicRoute -t T", "route T"),
        ("topicRoute --topic X", "route X"),
        ("getNamesrvConfig", "config show --all"),
        ("wipeWritePerm -b broker-a -y", "wipe-write-perm broker-a -y"),
        ("addWritePerm -b broker-a -y", "add-write-perm broker-a -y"),
        ("updateKvConfig -s ns -k k -v v", "kv put ns k v"),
        ("deleteKvConfig -s ns -k k -y", "kv delete ns k -y"),
        ("updateNamesrvConfig -k orderMessageEnable -v true --yes", "config set orderMessageEnable=true --yes"),
        ("updateOrderConf -m put -t T -v broker-a:4", "kv put ORDER_TOPIC_CONFIG T broker-a:4"),
        ("updateOrderConf -m get -t X", "kv get ORDER_TOPIC_CONFIG X"),
        ("updateOrderConf -m delete -t T -y", "kv delete ORDER_TOPIC_CONFIG T -y"),
    ],
)
async def test_mqadmin_names_behave_like_ours(tmp_path: Path, theirs: str, ours: str) -> None:
    """The commands of mqadmin accept its own options, and -n names all servers."""
    async with (
        one_server(tmp_path / "1", admin_enabled=True) as (first, one),
        one_server(tmp_path / "2") as (second, two),
    ):
        for server in (first, second):
            peer = await server.connect()
            await peer.register(MASTER)
            await peer.register(ELSEWHERE)

        servers = f"{one};{two}"
        expected = await ctl(*ours.split(), "-s", servers, "-o", "json")
        assert await ctl(*theirs.split(), "-n", servers, "-o", "json") == expected


async def test_commands_that_exist_only_in_mqadmin(tmp_path: Path) -> None:
    """The topics of each cluster, the clusters of a topic; deleteTopic deletes a topic from one cluster's brokers."""
    async with one_server(tmp_path) as (server, where):
        peer = await server.connect()
        await peer.register(MASTER, registration("T", "V"))
        await peer.register(ELSEWHERE, registration("T", "U"))

        listed = await ctl("topicList", "-n", where, "-c")
        shown = await ctl("topicClusterList", "-n", where, "-t", "T")
        absent = await ctl("topicClusterList", "-n", where, "-t", "X", "-o", "json")
        rows = [["cluster-1", "T"], ["cluster-1", "V"], ["cluster-2", "T"], ["cluster-2", "U"]]
        assert listed.cells == [["CLUSTER", "TOPIC"], *rows]
        assert (shown.code, shown.lines) == (0, ["CLUSTER", "cluster-1", "cluster-2"])
        assert (absent.code, absent.json) == (1, {"servers": [{"server": where, "clusters": []}]})

        assert (await ctl("deleteTopic", "-n", where, "-c", "cluster-1", "-t", "T", "--yes")).code == 0
        assert perms(server, "T") == {"broker-c": 6}
