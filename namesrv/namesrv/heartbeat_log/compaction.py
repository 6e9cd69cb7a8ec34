"""Closed files of the heartbeat log become Parquet: by the report's own program, in a process of its own."""

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

_PROGRAM: Final = "namesrv_spark_jobs"
_POLL_SECONDS: Final = 0.2


def compaction(mode: str) -> Callable[[Path, threading.Event], None] | None:
    """What to do with each closed file; None if nothing."""
    if mode == "off":
        return None
    flags = ["--drop-lines"] if mode == "drop" else []

    def compact(path: Path, closing: threading.Event) -> None:
        # it has the niceness of the thread that starts it
        command = [sys.executable, "-m", _PROGRAM, "compact", str(path), "--quiet", *flags]
        process = subprocess.Popen(  # noqa: S603 - a program of ours, and a path that no peer chose
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        while process.poll() is None:
            if closing.wait(_POLL_SECONDS):
                # whatever it was about to do, `namesrv-staleness compact` can do later
                process.kill()
                process.communicate()
                return
        _, said = process.communicate()
        if process.returncode != 0:
            lines = said.decode(errors="replace").strip().splitlines()
            raise OSError(lines[-1] if lines else f"exit code {process.returncode}")

    return compact
