"""Compaction of closed heartbeat log files to Parquet, by the report's program in a process of its own."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

_PROGRAM: Final = "namesrv_spark_jobs"
_POLL_SECONDS: Final = 0.2
# A file takes seconds. The files that are closed meanwhile wait: they are not compressed, and no old ones are removed.
MAX_SECONDS: Final = 600.0


def compaction(mode: str) -> Callable[[Path, threading.Event], None] | None:
    """The function that compacts a closed file; None if the mode is `off`.

    The function raises OSError if the compaction fails, and gives it up once the event `closing` is set.
    """
    if mode == "off":
        return None
    flags = ["--drop-lines"] if mode == "drop" else []

    def compact(path: Path, closing: threading.Event) -> None:
        # The process inherits the niceness of the calling thread.
        command = [sys.executable, "-m", _PROGRAM, "compact", str(path), "--quiet", *flags]
        process = subprocess.Popen(  # noqa: S603 - a program of ours, and a path that no peer chose
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        ends = time.monotonic() + MAX_SECONDS
        errors: bytes | None = None
        while errors is None:
            try:
                _, errors = process.communicate(timeout=_POLL_SECONDS)
            except subprocess.TimeoutExpired:
                # `namesrv-staleness compact` can compact the file later.
                if closing.is_set():
                    _kill(process)
                    return
                if time.monotonic() > ends:
                    _kill(process)
                    raise OSError(f"not finished after {MAX_SECONDS:g} s") from None
        if process.returncode != 0:
            lines = errors.decode(errors="replace").strip().splitlines()
            raise OSError(lines[-1] if lines else f"exit code {process.returncode}")

    return compact


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    # A process that waits for a broken disk ends only when the disk responds.
    with suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=_POLL_SECONDS)
