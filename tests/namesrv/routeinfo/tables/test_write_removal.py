"""How long the removal of a broker group's write permission lasts."""

from typing import NamedTuple

import pytest

from namesrv.routeinfo.tables.liveness import NEVER
from namesrv.routeinfo.tables.records import BrokerLiveInfo, Reason
from namesrv.routeinfo.tables.write_removal import RemovalEnd, WriteRemoval, ended_removals, removal_ends


class Left(NamedTuple):
    """A broker of a group has left."""

    broker_id: int
    last_seen: float
    reason: Reason = "disconnected"
    is_last: bool = False


class Registered(NamedTuple):
    """A broker of a group has registered."""

    broker_id: int


MASTER_LEFT = Left(0, last_seen=30.0)


@pytest.mark.parametrize(
    ("changes", "ends_at"),
    [
        ([], NEVER),
        ([MASTER_LEFT], 150.0),
        ([Left(1, 20.0), MASTER_LEFT], 150.0),
        ([Left(1, 40.0), MASTER_LEFT], 150.0),
        ([MASTER_LEFT, Left(1, 40.0, is_last=True)], 150.0),
        ([MASTER_LEFT, Left(1, 40.0, "unregistered", is_last=True)], None),
        ([Left(0, 30.0, "unregistered")], None),
        ([Left(1, 30.0, "unregistered")], NEVER),
        ([Left(1, 30.0)], NEVER),
        ([Left(1, 30.0), Left(2, 10.0, is_last=True)], 150.0),
        ([Left(1, 10.0), Left(2, 30.0, is_last=True)], 150.0),
        ([Left(1, 30.0, "unregistered"), Left(2, 10.0, is_last=True)], 130.0),
        ([MASTER_LEFT, Registered(1)], 150.0),
        ([MASTER_LEFT, Registered(0)], NEVER),
        ([MASTER_LEFT, Left(1, 40.0, is_last=True), Registered(1)], 150.0),
        ([MASTER_LEFT, Left(1, 40.0, is_last=True), Registered(1), Registered(0)], NEVER),
        ([MASTER_LEFT, Left(1, 40.0, is_last=True), Registered(0)], NEVER),
        ([Left(0, 30.0, is_last=True), Registered(1)], 150.0),
        ([Left(0, 30.0, is_last=True), Registered(1), Registered(0)], NEVER),
        ([Left(1, 30.0, is_last=True), Registered(2)], NEVER),
        ([Left(1, 30.0, is_last=True), Registered(2), Left(2, 20.0, is_last=True)], 140.0),
    ],
)
def test_end_of_a_removal(changes: list[Left | Registered], ends_at: float | None) -> None:
    """It is the expiry of the master, or of the slave of a group without one that was seen last; None: at once."""
    removal: WriteRemoval | None = WriteRemoval()
    for change in changes:
        assert removal is not None
        if isinstance(change, Registered):
            removal = removal.after_registration(change.broker_id)
        else:
            live = BrokerLiveInfo("b1", change.broker_id, change.last_seen, 120.0, None, 1, None, 1)
            removal = removal.after_departure(live, change.reason, is_last=change.is_last)

    assert (None if removal is None else removal.ends_at) == ends_at


@pytest.mark.parametrize(("now", "ended"), [(150.0, []), (150.1, ["b1"])])
def test_removal_ends_strictly_after_the_expiry(now: float, ended: list[str]) -> None:
    """A broker may come back for exactly its expiry."""
    assert ended_removals({"b1": WriteRemoval(150.0), "b2": WriteRemoval()}, now) == ended


def test_ends_that_a_restart_keeps() -> None:
    """They have whole seconds, rounded up: a master that returns within its expiry is never late."""
    removals = {"c": WriteRemoval(150.5, awaits_master=True), "a": WriteRemoval(), "b": WriteRemoval(131.0)}

    ends = removal_ends(removals, now=100.0)

    assert ends == (RemovalEnd("b", 31, awaits_master=False), RemovalEnd("c", 51, awaits_master=True))
    assert [end.restored(7.0, least_seconds=35.0) for end in ends] == [
        WriteRemoval(42.0, awaits_master=False),
        WriteRemoval(58.0, awaits_master=True),
    ]
