"""Fixtures for tests of the client in threads and processes."""

from collections.abc import Iterator

import pytest

from tests.support.daemon import Daemon
from tests.support.peer import Broker, Peer


@pytest.fixture(scope="session")
def two_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A NameServer process with two brokers, one of which has a slave; no test changes them."""
    with Daemon(tmp_path_factory.mktemp("data")) as daemon, Peer(daemon.listening().address) as peer:
        Broker(name="broker-a", addr="10.0.0.1:10911").register(peer)
        Broker(name="broker-a", broker_id=1, addr="10.0.0.11:10911").register(peer)
        Broker(name="broker-b", addr="10.0.0.2:10911").register(peer)
        yield daemon
