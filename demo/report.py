"""The staleness report of the logs that the demo has just written."""

import asyncio
import importlib.util
import shlex
import shutil
import sys
from pathlib import Path
from typing import Final

from demo.screen import Screen
from demo.times import Times

_PACKAGE: Final = "namesrv_spark_jobs"
_EXIT_OK: Final = 0
# what Spark gets to end by itself
_END_SECONDS: Final = 10.0


def missing() -> str | None:
    """What the report needs and this machine lacks; None when it has everything."""
    for package in ("pyspark", "jinja2"):
        if importlib.util.find_spec(package) is None:
            return package
    return None if shutil.which("java") else "Java"


async def report(logs: list[Path], directory: Path, times: Times, screen: Screen) -> int:
    """Run `namesrv-staleness`, or say how to; the exit code."""
    what_if = (
        f"expiry={times.expiry_seconds / 4:g},{times.expiry_seconds / 2:g},{times.expiry_seconds:g} "
        f"scan={times.scan_seconds / 2:g},{times.scan_seconds:g} poll={times.poll_seconds / 6:g},{times.poll_seconds:g}"
    )
    told = ("--poll", f"{times.poll_seconds:g}", "--what-if", what_if)
    arguments = [*map(str, logs), "--out", str(directory), *told]
    screen.heading("How long did stale routes last? The staleness report of these logs, by Spark:")
    if (lacking := missing()) is not None:
        screen.note(f"It needs {lacking}, which is not installed. These commands install it and make the report:")
        screen.note("  make setup-spark")
        screen.note(f"  .venv/bin/namesrv-staleness {shlex.join(arguments)}")
        return _EXIT_OK
    code = await _run(sys.executable, "-m", _PACKAGE, *arguments)
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
