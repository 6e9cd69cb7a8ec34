"""The deadline ends a process whose threads do not."""

import json
import subprocess
import sys

import pytest

from namesrv_runtime.deadline import ExitDeadline
from tests.support.threads import without_new_threads

_SCRIPT = """if True:
    import asyncio, sys, threading
    from namesrv_runtime import log, loops
    from namesrv_runtime.deadline import ExitDeadline

    async def main():
        asyncio.get_running_loop().run_in_executor(None, threading.Event().wait, eval(sys.argv[1]))
        deadline.move(3600, 3)
        deadline.move(eval(sys.argv[2]), 4)

    log.configure("info", "json")
    with ExitDeadline() as deadline:
        loops.run(main)
    sys.exit(5)
"""


async def test_end_of_a_process_that_can_start_no_thread_has_no_deadline() -> None:
    """Then only the deadline is missing: the rest of the stop goes on."""
    with ExitDeadline() as deadline:
        deadline.move(3600, 3)
        with without_new_threads():
            deadline.move(3600, 4)


@pytest.mark.parametrize(
    ("thread_seconds", "code", "events"),
    # the thread ends first; the thread never ends
    [(0.0, 5, []), (None, 4, ["threads_left_behind", "stopped"])],
)
def test_latest_deadline_counts(thread_seconds: float | None, code: int, events: list[str]) -> None:
    """The process ends by itself, or at the deadline set last, with the exit code set with it."""
    seconds = 3600.0 if thread_seconds is not None else 0.1
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, repr(thread_seconds), repr(seconds)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, [json.loads(line)["event"] for line in done.stderr.splitlines()]) == (code, events)
