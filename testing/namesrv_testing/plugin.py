"""Fixtures for pytest: `namesrv`, `namesrv_session`, `namesrv_factory`, `namesrv_broker`, `namesrv_client`."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

# The classes are imported when a fixture is used, because pytest loads this file in every run of the environment.
if TYPE_CHECKING:
    from namesrv_testing import TestBroker, TestClient, TestNameServer


@pytest.fixture
def namesrv_factory() -> "Iterator[Callable[..., TestNameServer]]":
    """Starts NameServers that share a clock by default: `namesrv_factory(broker_expiry_seconds=60)`."""
    from namesrv_testing import TestClock, TestNameServer  # noqa: PLC0415 - see above

    clock = TestClock()
    with ExitStack() as stack:
        yield lambda **settings: stack.enter_context(TestNameServer(**{"clock": clock, **settings}))


@pytest.fixture
def namesrv(namesrv_factory: "Callable[..., TestNameServer]") -> "TestNameServer":
    """A NameServer for this test."""
    return namesrv_factory()


@pytest.fixture(scope="session")
def namesrv_session() -> "Iterator[TestNameServer]":
    """A NameServer for the whole session; registrations of one test are visible to later tests."""
    from namesrv_testing import TestNameServer  # noqa: PLC0415 - see above

    with TestNameServer() as server:
        yield server


@pytest.fixture
def namesrv_broker(request: pytest.FixtureRequest) -> "Iterator[Callable[..., TestBroker]]":
    """Starts brokers of the fixture `namesrv`, or of `servers`: `namesrv_broker("broker-a", ["orders"])`."""
    from namesrv_testing import TestBroker  # noqa: PLC0415 - see above

    with ExitStack() as stack:

        def start(broker_name: str, topics: Any = (), *, servers: Any = None, **settings: Any) -> TestBroker:
            chosen = [request.getfixturevalue("namesrv")] if servers is None else servers
            return stack.enter_context(TestBroker(chosen, broker_name, topics, **settings))

        yield start


@pytest.fixture
def namesrv_client(request: pytest.FixtureRequest) -> "Iterator[Callable[..., TestClient]]":
    """Starts clients of the fixture `namesrv`, or of `servers`: `namesrv_client()`."""
    from namesrv_testing import TestClient  # noqa: PLC0415 - see above

    with ExitStack() as stack:

        def start(*, servers: Any = None, **settings: Any) -> TestClient:
            chosen = [request.getfixturevalue("namesrv")] if servers is None else servers
            return stack.enter_context(TestClient(chosen, **settings))

        yield start
