"""A broker's exits, as our NameServers log them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Literal

from tests.interop.peers.broker import Broker
from tests.support.daemon import Daemon, LogLine

# A broker registers every 10 s at the shortest; with these flags one that hangs is found a second after 20.
EXPIRY_SECONDS: Final = 20
FOUND_SOON: Final = ("--broker-expiry-seconds", str(EXPIRY_SECONDS), "--scan-interval-seconds", "1")

Reason = Literal["disconnected", "silent", "unregistered"]


@contextmanager
def leaves(daemons: Sequence[Daemon], broker: Broker, reason: Reason) -> Iterator[list[LogLine]]:
    """Whatever is done inside makes the broker leave each of the daemons for this reason; ends once it has.

    What they log of it is in the list then.
    """
    told: list[LogLine] = []
    before = [len(daemon.lines("broker_evicted", reason=reason, broker_addr=broker.address)) for daemon in daemons]
    yield told
    for daemon, count in zip(daemons, before, strict=True):
        told.append(daemon.wait_for("broker_evicted", reason=reason, broker_addr=broker.address, count=count + 1))
