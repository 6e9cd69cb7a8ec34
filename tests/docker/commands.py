"""Runs our commands as containers and units do."""

import os
import re
import subprocess
import sys

from tests.support.fake_clock import GUARD_SECONDS


def run(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Python with these words, without the developer's settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("NAMESRV_")}
    command = [sys.executable, *words]
    return subprocess.run(
        command, env=kept | environ, capture_output=True, text=True, timeout=GUARD_SECONDS, check=False
    )


def unknown_flags(flags: list[str], *helped: str) -> set[str]:
    """Flags that are missing in a command's --help."""
    shown = run(*helped, "--help")
    assert shown.returncode == 0, shown.stderr
    return {flag for flag in flags if flag.startswith("--")} - set(re.findall(r"--[a-z-]+", shown.stdout))
