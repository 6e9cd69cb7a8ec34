"""The audit trail of real servers: changes, refusals, and the lines that survive a crash or a full disk."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemon import Start
from tests.support.heartbeat_files import Line, of, read_log
from tests.support.peer import Broker, Connect

# No test of this file depends on the event loop.
pytestmark = pytest.mark.parametrize("loop", ["auto"])

BROKER = Broker()
QUEUES = {"broker_name": "broker-a", "read": 8, "write": 8, "perm": 6}


def trail(data_dir: Path) -> list[Line]:
    """All lines of the audit trail so far, in order; lines about brokers have numbers of their own."""
    return sorted(read_log(data_dir / "audit"), key=lambda line: line["ts_ms"])


def numbers(data_dir: Path) -> list[int]:
    """The numbers of the lines about operators and refusals."""
    return [line["seq"] for line in read_log(data_dir / "audit", without="-registrations-")]


def changes(data_dir: Path, request: str | None) -> list[list[dict[str, Any]]]:
    """The changes in the lines of one kind of request."""
    return [line["changes"] for line in of(trail(data_dir), "change") if line["request"] == request]


def test_every_change_is_a_line(start: Start, connect: Connect, data_dir: Path, tmp_path: Path) -> None:
    """Each change of a broker or an operator is a line with the peer and the values before and after."""
    config = tmp_path / "namesrv.toml"
    config.write_text("")
    daemon = start("--config", str(config), "--admin-enabled", "--nameserver-name=ns-1")
    broker, operator = connect(daemon), connect(daemon)
    BROKER.register(broker)
    # An equal registration changes nothing.
    BROKER.register(broker)
    assert operator.ask(205, {"brokerName": "broker-a"}).code == 0
    assert operator.ask(205, {"brokerName": "broker-a"}).code == 0
    assert operator.ask(216, {"topic": "bills"}).code == 0
    assert operator.ask(216, {"topic": "bills"}).code == 0
    assert operator.ask(100, {"namespace": "NS", "key": "k", "value": "1"}).code == 0
    assert operator.ask(100, {"namespace": "NS", "key": "k", "value": "2"}).code == 0
    assert operator.ask(100, {"namespace": "NS", "key": "k", "value": "2"}).code == 0
    assert operator.ask(102, {"namespace": "NS", "key": "k"}).code == 0
    assert operator.ask(318, None, b"orderMessageEnable=true\nenableTopicList=true\n").code == 0
    config.write_text("max_topics = 5\n")
    daemon.send_signal(signal.SIGHUP)
    daemon.wait_for("reloaded")
    assert BROKER.unregister(broker) == 0
    assert daemon.stop() == 0

    lines, seqs = trail(data_dir), numbers(data_dir)
    assert seqs == [*range(1, len(seqs) + 1)]
    settings = lines[0]["settings"]
    found = [settings.get(name) for name in ("nameserver_name", "listen_port", "admin_enabled", "max_topics")]
    assert found == ["ns-1", daemon.address[1], True, None]
    assert [(lines[at]["event"], lines[at]["nameserver"]) for at in (0, -1)] == [("start", "ns-1"), ("stop", "ns-1")]
    assert {(line["request"], line["peer"]) for line in of(lines, "change")} == {
        ("REGISTER_BROKER", broker.address),
        ("UNREGISTER_BROKER", broker.address),
        ("WIPE_WRITE_PERM_OF_BROKER", operator.address),
        ("DELETE_TOPIC_IN_NAMESRV", operator.address),
        ("PUT_KV_CONFIG", operator.address),
        ("DELETE_KV_CONFIG", operator.address),
        ("UPDATE_NAMESRV_CONFIG", operator.address),
        ("SIGHUP", None),
    }

    ((routes, joined),) = changes(data_dir, "REGISTER_BROKER")
    assert {"topic": "bills", "before": [], "after": [QUEUES]} in routes["named"]
    assert (routes["what"], routes["topics"], len(routes["named"])) == ("routes", 2, 2)
    assert (joined["before"], joined["after"]["broker_name"], joined["after"]["broker_id"]) == (None, "broker-a", 0)
    assert (joined["cluster"], joined["broker_addr"]) == ("cluster-a", BROKER.addr)

    ((routes, wiped),) = changes(data_dir, "WIPE_WRITE_PERM_OF_BROKER")
    assert {"topic": "bills", "before": [QUEUES], "after": [{**QUEUES, "perm": 4}]} in routes["named"]
    about = {"what": "write_permission", "broker_name": "broker-a", "topics": 2, "reason": "operator"}
    assert wiped == {**about, "before": True, "after": False}
    read_only = {**QUEUES, "perm": 4}
    assert changes(data_dir, "DELETE_TOPIC_IN_NAMESRV") == [
        [{"what": "routes", "topics": 1, "named": [{"topic": "bills", "before": [read_only], "after": []}]}]
    ]

    kv = {"what": "kv", "namespace": "NS", "key": "k"}
    assert changes(data_dir, "PUT_KV_CONFIG") == [
        [{**kv, "before": None, "after": "1"}],
        [{**kv, "before": "1", "after": "2"}],
    ]
    assert changes(data_dir, "DELETE_KV_CONFIG") == [[{**kv, "before": "2", "after": None}]]

    setting = {"what": "setting", "setting": "order_message_enable", "before": False, "after": True}
    assert changes(data_dir, "UPDATE_NAMESRV_CONFIG") == [[setting]]
    # The reload restores the file's value of a setting that a request had changed.
    bound = {"what": "setting", "setting": "max_topics", "before": 1_000_000, "after": 5}
    assert changes(data_dir, "SIGHUP") == [[{**setting, "before": True, "after": False}, bound]]

    ((routes, left, restored),) = changes(data_dir, "UNREGISTER_BROKER")
    assert restored == {**about, "topics": 0, "before": False, "after": True, "reason": "unregistered"}
    assert routes["named"] == [{"topic": "orders", "before": [read_only], "after": []}]
    assert left == {**joined, "before": joined["after"], "after": None, "reason": "unregistered"}


def test_takeovers_and_removals_name_their_connections(start: Start, connect: Connect, data_dir: Path) -> None:
    """A takeover of a broker's address or id names both connections; a removal by the server names no peer."""
    daemon = start()
    owner, stranger = connect(daemon), connect(daemon)
    address = stranger.address
    BROKER.register(owner)
    BROKER.register(stranger)
    Broker(addr="10.6.6.6:10911").register(stranger)
    stranger.close()
    daemon.wait_for("broker_evicted", reason="disconnected")
    daemon.stop()

    _, moved, taken, removed = of(trail(data_dir), "change")
    assert [moved["peer"], taken["peer"]] == [address, address]
    (broker,) = moved["changes"]
    assert broker["before"]["connection"] < broker["after"]["connection"]
    gone, new = (change for change in taken["changes"] if change["what"] == "broker")
    assert (gone["broker_addr"], gone["reason"], gone["after"]) == (BROKER.addr, "superseded", None)
    assert (new["broker_addr"], new["before"]) == ("10.6.6.6:10911", None)
    assert (removed["request"], removed["peer"], removed["account"]) == (None, None, None)
    routes, broker = removed["changes"]
    assert (routes["topics"], broker["reason"]) == (2, "disconnected")


ACCESS = """
[accounts.operator]
secrets = ["hunter2-operator"]
may = ["admin-write", "admin-read"]

[accounts.brokers]
networks = ["127.0.0.1/32"]
may = [{ access = "broker-control", clusters = ["cluster-a"] }]
"""


def test_accounts_are_named(start: Start, connect: Connect, data_dir: Path, tmp_path: Path) -> None:
    """Lines of changes, refusals, takeovers and access files name accounts and reasons, and no secret."""
    file = tmp_path / "access.toml"
    file.write_text(ACCESS)
    daemon = start("--access", str(file), "--takeover=refuse")
    owner, stranger = connect(daemon), connect(daemon)
    BROKER.register(owner)
    assert owner.ask(216, {"topic": "orders"}).code == 16
    assert stranger.ask(216, {"topic": "orders", "AccessKey": "operator", "Signature": "d3Jvbmc="}).code == 16
    Broker(addr="10.6.6.6:10911").send_registration(stranger)
    assert stranger.receive().code == 16
    file.write_text(ACCESS.replace("hunter2-operator", "hunter2-changed").replace('"admin-write", ', ""))
    daemon.send_signal(signal.SIGHUP)
    daemon.wait_for("reloaded")
    daemon.stop()

    lines = trail(data_dir)
    joined = next(line for line in of(lines, "change") if line["request"] == "REGISTER_BROKER")
    assert (joined["account"], joined["peer"], joined["certificate"]) == ("brokers", owner.address, [])
    refusals = [(line["request"], line["account"], line["peer"], line["reason"]) for line in of(lines, "refusal")]
    assert refusals == [
        ("DELETE_TOPIC_IN_NAMESRV", "brokers", owner.address, "not_granted"),
        ("DELETE_TOPIC_IN_NAMESRV", "", stranger.address, "mismatch"),
        ("REGISTER_BROKER", "brokers", stranger.address, "takeover"),
    ]
    ((account,),) = changes(data_dir, "SIGHUP")
    assert (
        account["account"],
        account["before"]["may"],
        account["after"]["may"],
        account["rotated"],
    ) == ("operator", ["admin-write", "admin-read"], ["admin-read"], True)
    assert "hunter2" not in json.dumps(lines)
