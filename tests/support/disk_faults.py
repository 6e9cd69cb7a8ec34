"""A disk that is full, read-only, broken or stuck for one process; `disk_faults.c` makes it so."""

import shutil
import subprocess
from pathlib import Path
from typing import Final

_SOURCE: Final = Path(__file__).with_suffix(".c")


def why_not() -> str | None:
    """The reason why this machine cannot simulate disk faults, or None."""
    return None if shutil.which("cc") else "no C compiler (cc) is installed"


class FaultyDisk:
    """A faulty disk below a directory, for processes started with `environ`."""

    def __init__(self, directory: Path, scratch: Path) -> None:
        library = scratch / "disk_faults.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, _SOURCE, "-ldl"], check=True)
        self._mode = scratch / "disk_faults.mode"
        self.environ = {
            "LD_PRELOAD": str(library),
            "DISK_FAULTS_DIR": str(directory),
            "DISK_FAULTS_MODE": str(self._mode),
        }
        self.turn("ok")

    def turn(self, mode: str) -> None:
        """Switch to `ok`, `full`, `read_only`, `error` (EIO) or `slow` (stuck until the next switch)."""
        new = self._mode.with_suffix(".new")
        new.write_text(mode)
        new.replace(self._mode)
