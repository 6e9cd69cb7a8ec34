"""Compaction of closed heartbeat log files to Parquet, by the report's program in a process of its own."""

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

_PROGRAM: Final = "namesrv_spark_jobs"
_POLL_SECONDS: Final = 0.2


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
        while process.poll() is None:
            if closing.wait(_POLL_SECONDS):
                # `namesrv-staleness compact` can compact the file later.
                process.kill()
                process.communicate()
                return
        _, errors = process.communicate()
        if process.returncode != 0:
            lines = errors.decode(errors="replace").strip().splitlines()
            raise OSError(lines[-1] if lines else f"exit code {process.returncode}")

    return compact
