"""Java clients notice nothing when `--client-connection-max-age` closes their connections, and use every server."""

from functools import partial
from itertools import count
from pathlib import Path
from threading import Event
from typing import Final

import pytest

from tests.interop.peers.broker import Broker
from tests.interop.peers.driver import Driver
from tests.interop.peers.waiting import until, until_equal
from tests.interop.test_java_client import LOST_CONNECTION
from tests.support.daemon import Daemon

_CLOSES: Final = 2
# The longest time until each server has closed that many, on a machine with other work.
_CLOSED_SECONDS: Final = 300.0
# The pause between two unused topics.
_BETWEEN_SECONDS: Final = 0.5


@pytest.fixture(scope="module")
def daemon_flags() -> tuple[str, ...]:
    """Flags with which the connection of a client is closed at 4 to 6 s."""
    return ("--client-connection-max-age=5", "--log-level=debug")


def test_no_send_fails_over_several_closes(
    two_daemons: tuple[Daemon, Daemon], name_servers: list[str], clients: Driver, tmp_path: Path
) -> None:
    """A stream and its consumer go on, and a producer of new topics gets each route, while connections are closed.

    Each server closes connections twice, so the clients have moved between the servers and back. A connection is closed
    between two bursts of requests. A burst may begin at that moment, and is then lost with the connection: the
    application sends again.
    """
    with Broker(tmp_path / "broker", name_servers) as broker:
        for daemon in two_daemons:
            daemon.wait_for("broker_registered", broker_name=broker.booted().name)
        for name in ("writer", "explorer"):
            clients.start_producer(name, name_servers, poll=500)
        assert len(clients.send("writer", "stream", 1, "first")) == 1
        clients.start_consumer("reader", name_servers, "stream", poll=500)
        clients.start_stream("writer", "stream", "s")
        closed = [len(daemon.lines("connection_closed")) for daemon in two_daemons]

        def closes() -> list[int]:
            return [len(daemon.lines("connection_closed")) - n for daemon, n in zip(two_daemons, closed, strict=True)]

        numbers = count()

        def are_closed() -> bool:
            """Send to one more unused topic; True once each server has closed enough connections."""
            topic = f"topic-{next(numbers)}"
            if not clients.send("explorer", topic, 1, "m"):
                clients.excuse(LOST_CONNECTION)
                assert clients.send("explorer", topic, 1, "m")
            # The explorer polls all of its topics: with many of them its connection would never be quiet.
            Event().wait(_BETWEEN_SECONDS)
            return min(closes()) >= _CLOSES

        until(are_closed, within=_CLOSED_SECONDS)
        clients.halt_stream("writer")

        assert clients.failures() == []
        assert len(clients.events("failed")) <= 1
        until_equal(clients.bodies("acked", name="writer"), partial(clients.bodies, "received", name="reader"))
