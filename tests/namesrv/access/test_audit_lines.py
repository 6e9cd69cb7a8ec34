"""Lines of the audit trail for any names of peers and any number of changes."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from namesrv.access.audit_lines import AuditLines, Change, KVChanged, Refusal, RepeatedChange
from namesrv.routeinfo.tables.effects import Registered, RouteChanged, WritePermissionChanged
from namesrv.routeinfo.tables.records import BrokerAddrInfo, BrokerLiveInfo
from namesrv.routeinfo.tables.rows import RowChange, TopicRow
from namesrv_remoting.bodies.route import QueueData
from namesrv_runtime.line_log.queue import Item

WHO: dict[str, Any] = {"account": "", "peer": "10.0.0.1:1", "proxied": None, "certificate": []}
# with lone surrogates: a peer can spell them in JSON
TEXTS = st.text(st.characters(exclude_categories=[]), max_size=400)


def line_of(item: Any) -> dict[str, Any]:
    """The parsed line of an item, asserted to be one line of printable ASCII."""
    raw = AuditLines("ns", "0a").line(Item(1_700_000_000.0, 1.0, item))
    assert raw.endswith(b"\n")
    assert all(0x20 <= byte < 0x7F for byte in raw[:-1])
    line: dict[str, Any] = json.loads(raw)
    return line


def live(name: str, **fields: Any) -> BrokerLiveInfo:
    """A live entry on connection 1."""
    return BrokerLiveInfo(name, 0, 0.0, 120.0, None, 1, None, 1, **fields)


@given(TEXTS, TEXTS)
def test_names_are_shortened_and_written_in_ascii(name: str, other: str) -> None:
    """Any name is one field of one line, cut to 256 characters."""
    registered = Registered(BrokerAddrInfo(other, name), live(name, agent_id=other), "full", 1, True, 0.0)  # noqa: FBT003
    kv = KVChanged(name, other, name, None)
    (broker, changed) = line_of(Change("REGISTER_BROKER", WHO, [registered, kv]))["changes"]
    assert broker["after"]["broker_name"].startswith(name[:256])
    assert (changed["key"][:256], changed["after"]) == (other[:256], None)
    line_of(Refusal("X", WHO, "anonymous", name))
    assert max(map(len, (broker["broker_addr"], changed["namespace"]))) < 300


@given(st.integers(0, 300), st.integers(0, 300), st.integers(1, 30))
def test_first_twenty_changed_routes_are_named(changed: int, same: int, queues: int) -> None:
    """The line counts the routes that differ and names the first twenty; routes with equal rows are left out."""
    row = TopicRow(tuple(QueueData(f"broker-{number:02}", 8, 8, 6) for number in range(queues)))
    topics = [f"topic-{number}" for number in range(changed + same)]
    parts = [[RowChange([topic], row if number < same else None, row) for number, topic in enumerate(topics)]]
    made = Change(
        "X",
        WHO,
        [RouteChanged({*topics}, 1, parts), WritePermissionChanged("b", 1, is_removed=True, reason="operator")],
    )

    routes, permission = ([None] * 2 + line_of(made)["changes"])[-2:]

    assert (permission["before"], permission["after"]) == (True, False)
    if not changed:
        assert routes is None
        return
    assert (routes["topics"], len(routes["named"])) == (changed, min(changed, 20))
    for each in routes["named"]:
        assert (each["before"], len(each["after"])) == ([], min(queues, 10))


def test_change_without_visible_effect_has_no_line() -> None:
    """A group whose zone changed has other routes with the same queues: no line, not even for the last of many."""
    row = TopicRow((QueueData("broker-a", 8, 8, 6),))
    change = Change("REGISTER_BROKER", WHO, [RouteChanged({"T"}, 1, [[RowChange(["T"], row, row)]])])

    for what in (change, RepeatedChange(change, 2, 1.0, 2.0)):
        assert AuditLines("ns", "0a").line(Item(1_700_000_000.0, 1.0, what)) == b""
