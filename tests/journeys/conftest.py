"""Fixtures of the journeys: servers in separate processes, on both event loops, and peers that are closed."""

import importlib.util
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.daemon import Daemon, LoopName, Start
from tests.support.peer import Connect, Peer


@pytest.fixture(params=["uvloop", pytest.param("asyncio", marks=pytest.mark.slow)])
def loop(request: pytest.FixtureRequest) -> LoopName:
    """The event loop that servers run on."""
    if request.param == "asyncio":
        return "asyncio"
    if importlib.util.find_spec("uvloop") is None:
        pytest.skip("uvloop is not installed")
    return "auto"


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """The data directory of this test's server, which does not exist yet."""
    return tmp_path / "data"


@pytest.fixture
def start(loop: LoopName, data_dir: Path) -> Iterator[Start]:
    """Starts a server with these flags and waits until it listens; none may have logged a traceback at the end."""
    daemons: list[Daemon] = []
    with ExitStack() as stack:

        def start(*flags: str, data_dir: Path = data_dir) -> Daemon:
            daemons.append(stack.enter_context(Daemon(data_dir, *flags, loop=loop)))
            return daemons[-1].listening()

        yield start
    assert [
        line for daemon in daemons for line in daemon.log if "traceback" in line or line["event"] == "printed"
    ] == []


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Connects to a server."""
    with ExitStack() as stack:

        def connect(daemon: Daemon, *, native: bool = False, receive_buffer_bytes: int = 0) -> Peer:
            peer = Peer(daemon.address, native=native, receive_buffer_bytes=receive_buffer_bytes)
            return stack.enter_context(peer)

        yield connect
