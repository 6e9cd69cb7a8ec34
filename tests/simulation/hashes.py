"""Strings have the same hashes in all simulations: the order of a set of names is a choice, too."""

import os
import sys


def fix_hashes() -> None:
    """Begin anew with these hashes, unless this process has them."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.execve(sys.executable, sys.orig_argv, {**os.environ, "PYTHONHASHSEED": "0"})  # noqa: S606 - itself
