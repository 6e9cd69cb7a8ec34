"""Fixtures of tests against real peers: the tests run only when named, and are skipped without their tools."""

import itertools
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.interop.peers.apache import MqAdmin
from tests.interop.peers.driver import Driver
from tests.interop.peers.pair import Pair
from tests.interop.peers.place import absent_tools
from tests.support.daemon import Daemon

HERE = Path(__file__).parent
# The tools for every peer from Apache; a file with other needs has its own `pytestmark`.
JAVA = ("java", "javac", "mvn")

_numbers = itertools.count()


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line("markers", "needs(*tools): skip the test without these tools (default: java, javac, mvn)")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignore this folder unless the command line names a path in it, as `make interop` does."""
    named = [config.invocation_params.dir / arg.partition("::")[0] for arg in config.args]
    is_asked_for = any(path.resolve() == HERE or HERE in path.resolve().parents for path in named)
    return None if is_asked_for else True


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests that need a tool that this machine lacks; anything else that is missing is a failure."""
    marker = item.get_closest_marker("needs")
    missing = sorted(absent_tools().intersection(marker.args if marker else JAVA))
    if missing:
        pytest.skip(f"not installed on this machine: {', '.join(missing)}")


@pytest.fixture
def unique() -> str:
    """A name that no topic, group or client of this test run has used before."""
    return f"u{next(_numbers)}"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory for the homes of the processes that a module's tests share."""
    return tmp_path_factory.mktemp("peers")


@pytest.fixture(scope="module")
def stack() -> Iterator[ExitStack]:
    """The stack that ends the processes that a module's tests share, the last one first."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture(scope="module")
def daemon_flags() -> tuple[str, ...]:
    """Flags of both daemons of a module; a file that needs other flags overrides this fixture."""
    return ()


@pytest.fixture(scope="module")
def two_daemons(place: Path, stack: ExitStack, daemon_flags: tuple[str, ...]) -> tuple[Daemon, Daemon]:
    """Two of our NameServers."""
    first, second = (stack.enter_context(Daemon(place / name, *daemon_flags)) for name in ("namesrv-1", "namesrv-2"))
    return first.listening(), second.listening()


@pytest.fixture(scope="module")
def name_servers(two_daemons: tuple[Daemon, Daemon]) -> list[str]:
    """The addresses of the two daemons."""
    return [daemon.where for daemon in two_daemons]


@pytest.fixture(scope="module")
def mqadmin(place: Path, stack: ExitStack, name_servers: list[str]) -> MqAdmin:
    """Apache's mqadmin with the addresses of both daemons."""
    return stack.enter_context(MqAdmin(place / "mqadmin", *name_servers))


@pytest.fixture(scope="module")
def clients(place: Path, stack: ExitStack) -> Driver:
    """A JVM for producers and consumers."""
    return stack.enter_context(Driver(place / "clients"))


@pytest.fixture
def pair(request: pytest.FixtureRequest, pairs: dict[str, Pair]) -> Pair:
    """A pair of the requested kind, as soon as both NameServers know both brokers."""
    return pairs[request.param].complete()
