"""Fixtures for tests of the agent in processes and threads."""

from collections.abc import Iterator

import pytest

from tests.support.daemon import Daemon


@pytest.fixture(scope="session")
def namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A NameServer process for all tests; each test uses a broker of its own."""
    with Daemon(tmp_path_factory.mktemp("data")) as daemon:
        yield daemon.listening()
