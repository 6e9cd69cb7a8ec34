"""Fixes the hashes of strings in all simulations, because the order of a set depends on them."""

import os
import sys


def fix_hashes() -> None:
    """Restart this process with fixed hashes, unless it has them."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.execve(sys.executable, sys.orig_argv, {**os.environ, "PYTHONHASHSEED": "0"})  # noqa: S606 - itself
