"""Runs Python code in a process that the test may kill."""

import os
import subprocess
import sys


def run_script(script: str, *arguments: object) -> subprocess.Popen[str]:
    """A Python process of its own that imports what we import; its output is text in a pipe."""
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
