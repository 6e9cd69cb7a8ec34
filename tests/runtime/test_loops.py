"""Loops are uvloop's where it can be imported, and asyncio's own elsewhere."""

import asyncio
import sys

import pytest

from namesrv_runtime.loops import run


async def loop_module() -> str:
    """Where the running loop comes from."""
    return type(asyncio.get_running_loop()).__module__.partition(".")[0]


def test_runs_on_uvloop_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """And on asyncio's own where it is not; the global policy is left alone."""
    pytest.importorskip("uvloop")
    # what get_event_loop_policy() gives, which is deprecated
    before = asyncio.events._event_loop_policy  # type: ignore[attr-defined]  # private

    assert run(loop_module) == "uvloop"
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert run(loop_module) == "asyncio"
    assert before is asyncio.events._event_loop_policy  # type: ignore[attr-defined]
