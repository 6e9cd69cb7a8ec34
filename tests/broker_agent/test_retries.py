"""Pauses and timeouts between attempts to register."""

from namesrv_broker_agent.retries import Retries
from namesrv_remoting.errors import ConnectionClosedError


def test_timeouts_stay_bounded_in_a_long_outage() -> None:
    """After any number of slow failures, timeouts are four times as long, and a pause takes 15 s at most.

    A server may be dead for days behind a proxy that accepts connections.
    """
    retries = Retries(0.8, 30.0, lambda: 1.0)
    for _ in range(2_000):
        retries.failed(ConnectionClosedError("closed"), 0.0, was_registered=False)

    assert (retries.timeout_factor(), retries.pause_seconds()) == (4.0, 15.0)
