"""Pauses and timeouts between attempts to register."""

import pytest

from namesrv_broker_agent.link.retries import Retries
from namesrv_remoting.errors import (
    ConnectError,
    ConnectionClosedError,
    RemotingError,
    RequestTimeoutError,
    SystemBusyError,
)


def caused_by(cause: OSError) -> ConnectError:
    """A failed connect with this cause."""
    error = ConnectError("no connection")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "is_slow"),
    [
        (RequestTimeoutError("no answer within 0.2 s"), True),
        (ConnectionClosedError("closed by the peer"), True),
        (caused_by(TimeoutError()), True),
        (SystemBusyError("requests over the quota"), True),
        (caused_by(ConnectionRefusedError()), False),
    ],
    ids=["no-response", "closed", "connect-timeout", "busy", "refused"],
)
def test_busy_or_silent_server_seems_overloaded(error: RemotingError, is_slow: bool) -> None:
    """An attempt that fails on an overloaded server makes the next one more patient, however short the timeouts are."""
    retries = Retries(0.8, 30.0, lambda: 1.0)
    retries.failed(error, was_registered=False)

    assert (retries.is_slow, retries.timeout_factor()) == (is_slow, 2.0 if is_slow else 1.0)


@pytest.mark.parametrize(
    ("error", "heartbeat_seconds", "bounds"),
    [
        (caused_by(ConnectionRefusedError()), 30.0, [0.1, 0.2, 0.4, 0.8, 0.8]),
        # Such a server is at its connection limit, or is dead behind a proxy that accepts connections.
        (ConnectionClosedError("closed"), 30.0, [1.0, 2.0, 4.0, 8.0, 15.0, 15.0]),
        # The restarted server does not have the broker until the pause ends.
        (ConnectionClosedError("closed"), 2.0, [1.0, 2.0, 2.0]),
    ],
    ids=["refused", "closed", "short-interval"],
)
def test_pauses_are_random_below_a_doubling_bound(
    error: RemotingError, heartbeat_seconds: float, bounds: list[float]
) -> None:
    """The bound stays below a heartbeat interval, and the end of a registered connection resets it."""
    retries = Retries(0.8, heartbeat_seconds, lambda: 0.25)
    pauses = []
    for _ in bounds:
        retries.failed(error, was_registered=False)
        pauses.append(retries.pause_seconds())
    assert pauses == [bound * 0.25 for bound in bounds]

    retries.failed(error, was_registered=True)
    assert (retries.is_slow, retries.pause_seconds()) == (False, 0.025)


def test_timeouts_stay_bounded_in_a_long_outage() -> None:
    """After any number of slow failures, timeouts are four times as long, and a pause takes 15 s at most.

    A server may be dead for days behind a proxy that accepts connections.
    """
    retries = Retries(0.8, 30.0, lambda: 1.0)
    for _ in range(2_000):
        retries.failed(ConnectionClosedError("closed"), was_registered=False)

    assert (retries.timeout_factor(), retries.pause_seconds()) == (4.0, 15.0)
