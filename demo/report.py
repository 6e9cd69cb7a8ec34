"""The staleness report of the logs that the demo has just written."""

import asyncio
import sys
from pathlib import Path
from typing import Final

from demo.screen import Screen
from demo.times import Times

_PACKAGE: Final = "namesrv_spark_jobs"
_EXIT_OK: Final = 0
# what it gets to end by itself
_END_SECONDS: Final = 10.0


async def report(logs: list[Path], directory: Path, times: Times, screen: Screen) -> int:
    """Run `namesrv-staleness`; the exit code."""
    what_if = (
        f"expiry={times.expiry_seconds / 4:g},{times.expiry_seconds / 2:g},{times.expiry_seconds:g} "
        f"scan={times.scan_seconds / 2:g},{times.scan_seconds:g} poll={times.poll_seconds / 6:g},{times.poll_seconds:g}"
    )
    told = ("--poll", f"{times.poll_seconds:g}", "--what-if", what_if)
    screen.heading("How long did stale routes last? The staleness report of these logs:")
    code = await _run(sys.executable, "-m", _PACKAGE, *map(str, logs), "--out", str(directory), *told)
    if code == _EXIT_OK:
        screen.note(f"Look at it: {(directory / 'report.html').resolve().as_uri()}")
    return code


async def _run(*command: str) -> int:
    """Run a command that shows its own progress; it does not outlive the demo."""
    process = await asyncio.create_subprocess_exec(*command)
    try:
        return await process.wait()
    except BaseException:
        process.terminate()
        try:
            async with asyncio.timeout(_END_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
        raise
