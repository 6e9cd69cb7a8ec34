"""The loop is the one that was asked for."""

import asyncio
import sys

import pytest

from namesrv_runtime.loops import LoopName, loop_factory, new_event_loop, run


async def loop_module() -> str:
    """Where the running loop comes from."""
    return type(asyncio.get_running_loop()).__module__.partition(".")[0]


@pytest.mark.parametrize(("loop", "module"), [("auto", "uvloop"), ("uvloop", "uvloop"), ("asyncio", "asyncio")])
def test_runs_on_the_loop_that_was_asked_for(loop: LoopName, module: str) -> None:
    """Where uvloop is installed, auto means uvloop."""
    pytest.importorskip("uvloop")

    assert module == run(loop_module, loop=loop)


def test_auto_falls_back_to_asyncio(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where uvloop cannot be imported, auto means asyncio."""
    monkeypatch.setitem(sys.modules, "uvloop", None)

    assert "asyncio" == run(loop_module)


def test_uvloop_by_name_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks for uvloop by name is told that it is missing, and how to get it."""
    monkeypatch.setitem(sys.modules, "uvloop", None)

    with pytest.raises(ImportError, match=r"event loop 'uvloop' is not installed: pip install 'namesrv\[server\]'"):
        loop_factory("uvloop")


def test_global_policy_is_left_alone() -> None:
    """Neither making a loop nor running on one changes the policy."""
    before = asyncio.get_event_loop_policy()

    new_event_loop().close()
    run(loop_module)

    assert before is asyncio.get_event_loop_policy()


def test_run_returns_what_the_coroutine_returns_and_raises_what_it_raises() -> None:
    """The answer and the exception come out as they are."""

    async def answers() -> int:
        return 42

    async def fails() -> None:
        raise LookupError("broker-a")

    assert 42 == run(answers, loop="asyncio")
    with pytest.raises(LookupError, match="broker-a"):
        run(fails, loop="asyncio")
