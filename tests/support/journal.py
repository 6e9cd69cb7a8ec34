"""A file of JSON lines to which a long run adds its progress, so that a later session goes on where it ended."""

import json
import subprocess
from pathlib import Path
from typing import Any, Final

_ROOT: Final = Path(__file__).parents[2]


class Journal:
    """The finished slices of a run, oldest first; a line that was cut off by a kill is ignored."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def entries(self) -> list[dict[str, Any]]:
        """All slices so far."""
        if not self._path.exists():
            return []
        return [json.loads(line) for line in self._path.read_text().splitlines(keepends=True) if line.endswith("\n")]

    def add(self, **figures: Any) -> None:
        """Add a slice, with the commit that was run, and drop an unfinished line."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps(entry) for entry in [*self.entries(), {"commit": _commit(), **figures}]]
        written = self._path.with_suffix(".new")
        written.write_text("".join(f"{line}\n" for line in lines))
        written.replace(self._path)

    def total(self, name: str) -> int:
        """The sum of one figure over all slices."""
        return sum(int(entry[name]) for entry in self.entries())


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    return subprocess.run(command, cwd=_ROOT, check=False, capture_output=True, text=True).stdout.strip()
