"""Set-up of every test: event loops, budgets of hypothesis, and the line between the quick suite and the rest.

`make test` runs what is not marked `slow`, each async test on uvloop, with the budgets of the profile `quick`.
`make test-all` runs everything, on asyncio's own loop, too, with those of the profile `full`. See docs/testing.md.
"""

import asyncio
import gc
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# the loops that async tests run on, the first one in the quick suite, too
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
try:
    import uvloop
except ImportError:  # the daemon runs without it, and so do the tests
    pass
else:
    LOOPS = {"uvloop": uvloop.new_event_loop, **LOOPS}

# A script's background ignores Ctrl-C, and hands that on to every process that a test starts and ends by it.
if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# contexts that a developer has saved for namesrvctl are none of the tests'
os.environ["XDG_CONFIG_HOME"] = "/nonexistent"

HERE = Path(__file__).parent
# all that is in these folders is slow; a file or a test elsewhere says so by its own mark
SLOW_FOLDERS = ("demo", "fuzz", "interop", "netns")
# what is longer, a body of some megabytes, is cut in the id of a test
ID_LENGTH = 200

# no deadline, and no complaint about slow data: a slow moment of the machine says nothing about the code
_ALWAYS = settings(deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", _ALWAYS, max_examples=25, stateful_step_count=30)
settings.register_profile("full", _ALWAYS, max_examples=200, stateful_step_count=50)
# for hours: pytest --hypothesis-profile=long tests/namesrv/routeinfo
settings.register_profile(
    "long", _ALWAYS, max_examples=20_000, stateful_step_count=60, suppress_health_check=list(HealthCheck)
)
settings.load_profile("quick")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let whoever starts the tests choose the loops."""
    parser.addoption("--all-loops", action="store_true", help="run async tests on asyncio's own event loop, too")


def pytest_asyncio_loop_factories(config: pytest.Config) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loops of every async test; their names end up in its id when there are two."""
    return LOOPS if config.getoption("--all-loops") else dict([*LOOPS.items()][:1])


def pytest_make_parametrize_id(val: object) -> str | None:
    """A name of readable length: each worker tells those of all tests, and every one four times more as it runs."""
    if isinstance(val, str | bytes) and len(val) > ID_LENGTH:
        return f"{ascii(val[:ID_LENGTH])[:ID_LENGTH]}...{len(val)}"
    return None


@pytest.hookimpl(tryfirst=True)  # before `-m` and `-k` choose
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow what lies in a slow folder, and the second run of a test, on asyncio's own loop."""
    first, *others = LOOPS
    for item in items:
        callspec = getattr(item, "callspec", None)
        loop = callspec.params.get("_asyncio_loop_factory") if callspec else None
        if loop in [LOOPS[name] for name in others] or item.path.relative_to(HERE).parts[0] in SLOW_FOLDERS:
            item.add_marker(pytest.mark.slow)
        elif loop is not None:
            # `-k uvloop` chooses the same with and without --all-loops
            item.extra_keyword_matches.add(first)


def pytest_collection_finish() -> None:
    """What is there for the whole run, thousands of tests among it, is not looked at by every full collection."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """As before, or DuckDB's module complains at the end of what is left."""
    gc.unfreeze()


@pytest.fixture(autouse=True)
def _log_as_before() -> Iterator[None]:
    """A program that was run in the tests' own process goes on writing its log."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was not tried."""
    skipped = terminalreporter.stats.get("skipped", [])
    if skipped:
        terminalreporter.section("NOT TRIED", sep="!", red=True, bold=True)
    for report in skipped:
        terminalreporter.write_line(f"{report.nodeid}: {report.longrepr[2]}")
