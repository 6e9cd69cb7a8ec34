"""Configuration of all tests: event loops, budgets of hypothesis, and the marking of slow tests.

`make test` runs tests that are not marked `slow`, each async test on uvloop, with the profile `quick`. `make test-rest`
runs the other tests, those of connections also on asyncio's own loop, with the profile `full`. See docs/testing.md.
"""

import asyncio
import functools
import gc
import inspect
import logging
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# loops of async tests; the quick suite uses the first one
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
try:
    import uvloop
except ImportError:  # daemon and tests run without it
    pass
else:
    LOOPS = {"uvloop": uvloop.new_event_loop, **LOOPS}

# A background job of a script ignores Ctrl-C, and so would every process that a test starts and interrupts.
if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# contexts saved by a developer must not affect tests
os.environ["XDG_CONFIG_HOME"] = "/nonexistent"

HERE = Path(__file__).parent
# async tests at these places run on both loops, because sockets, transports and processes differ between the loops
BOTH_LOOPS = [
    *(HERE / folder for folder in ("broker_agent", "golden", "remoting", "runtime")),
    *(HERE / "namesrv" / folder for folder in ("net", "server")),
    HERE / "client" / "test_client.py",
]
# tests in these folders are slow; other ones are marked in their file
SLOW_FOLDERS = ("demo", "fuzz", "interop", "netns")
# An async test that waits longer fails, before faulthandler_timeout would end the process with the other tests.
ASYNC_SECONDS = 500.0
# longer values are shortened in test ids
ID_LENGTH = 200

# without deadlines: a slow moment of the machine must not fail a test
_ALWAYS = settings(deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", _ALWAYS, max_examples=25, stateful_step_count=30)
settings.register_profile("full", _ALWAYS, max_examples=200, stateful_step_count=50)
# for hours: pytest --hypothesis-profile=long tests/namesrv/routeinfo
settings.register_profile(
    "long", _ALWAYS, max_examples=20_000, stateful_step_count=60, suppress_health_check=list(HealthCheck)
)
settings.load_profile("quick")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option for asyncio's own loop."""
    parser.addoption("--all-loops", action="store_true", help="run tests of connections on asyncio's own loop, too")


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Loops of an async test; with two of them the name is part of the test id."""
    on_both = config.getoption("--all-loops") and any(item.path.is_relative_to(folder) for folder in BOTH_LOOPS)
    return LOOPS if on_both else dict([*LOOPS.items()][:1])


def pytest_make_parametrize_id(val: object) -> str | None:
    """A test id of readable length: each worker sends all ids, and each running test four more."""
    if isinstance(val, str | bytes) and len(val) > ID_LENGTH:
        return f"{ascii(val[:ID_LENGTH])[:ID_LENGTH]}...{len(val)}"
    return None


@pytest.hookimpl(tryfirst=True)  # before `-m` and `-k` choose
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests in slow folders, and second runs on asyncio's own loop, as slow; bound the time of async tests."""
    first, *others = LOOPS
    for item in items:
        if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
            item.obj = _bounded(item.obj)
        callspec = getattr(item, "callspec", None)
        loop = callspec.params.get("_asyncio_loop_factory") if callspec else None
        if loop in [LOOPS[name] for name in others] or item.path.relative_to(HERE).parts[0] in SLOW_FOLDERS:
            item.add_marker(pytest.mark.slow)
        elif loop is not None:
            # `-k uvloop` selects the same tests with and without --all-loops
            item.extra_keyword_matches.add(first)


def _bounded(test: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    @functools.wraps(test)
    async def bounded(**fixtures: object) -> None:
        async with asyncio.timeout(ASYNC_SECONDS):
            await test(**fixtures)

    return bounded


def pytest_collection_finish() -> None:
    """Keep full garbage collections from visiting the thousands of collected tests."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Undo the freeze, because DuckDB's module complains at the exit otherwise."""
    gc.unfreeze()


@pytest.fixture(autouse=True)
def _log_as_before() -> Iterator[None]:
    """Restore the root logger after each test, because programs that ran in this process configure it."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """With FAIL_ON_SKIP in the environment, fail if a test was skipped; workers of pytest-xdist have no reporter."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("FAIL_ON_SKIP") and reporter is not None and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List skipped tests with their reasons."""
    skipped = terminalreporter.stats.get("skipped", [])
    if skipped:
        terminalreporter.section("NOT TRIED", sep="!", red=True, bold=True)
    for report in skipped:
        terminalreporter.write_line(f"{report.nodeid}: {report.longrepr[2]}")
