"""uvloop where it is installed, and asyncio's own loop elsewhere."""

import asyncio
import sys
from contextlib import ExitStack

import pytest

from namesrv_runtime.loops import run
from tests.support.threads import without_new_threads


async def loop_module() -> str:
    """The module of the running loop."""
    return type(asyncio.get_running_loop()).__module__.partition(".")[0]


def test_runs_on_uvloop_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without uvloop asyncio's loop is used; the global policy stays."""
    pytest.importorskip("uvloop")
    # the value of the deprecated get_event_loop_policy()
    before = asyncio.events._event_loop_policy  # type: ignore[attr-defined]  # private

    assert run(loop_module) == "uvloop"
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert run(loop_module) == "asyncio"
    assert before is asyncio.events._event_loop_policy  # type: ignore[attr-defined]


def test_loop_of_a_process_that_can_start_no_thread_ends_with_its_result() -> None:
    """The loop would start a thread to wait for those of its executor."""

    async def main() -> int:
        stack.enter_context(without_new_threads())
        return 5

    with ExitStack() as stack:
        assert run(main) == 5
