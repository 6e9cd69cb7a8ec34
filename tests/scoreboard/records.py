"""What is known of our tests: the bugs that they keep from coming back, and how many planted changes they notice."""

import re
import subprocess
from pathlib import Path
from typing import Final

from benchmarks.figures import BenchError, Figure, Target
from tests.scoreboard.row import none_of

ROOT: Final = Path(__file__).parents[2]
_PATIENCE_SECONDS: Final = 3_600


def track_record(_: int) -> list[Figure]:
    """Bugs of docs/bugs.md whose row names no test or command that is there."""
    lines = (ROOT / "docs" / "bugs.md").read_text(encoding="utf-8").splitlines()
    bugs = [line.strip("|").split(" | ") for line in lines if line.startswith("| ") and not line.startswith("| bug ")]
    if not bugs:
        raise BenchError("no bug in docs/bugs.md")
    without = [cells[0].strip()[:60] for cells in bugs if not _has_test(" ".join(cells[1:]))]
    return [none_of("without", "bugs without a test or command that is there", len(without), f"of {len(bugs)}")]


def _has_test(text: str) -> bool:
    named = re.findall(r"[\w./-]*(?:tests|docker)/[\w./-]+", text)
    return "`make " in text or any((ROOT / name.rstrip(".")).exists() for name in named)


def mutation(count: int) -> list[Figure]:
    """So many small changes of each package, and what share of them its tests notice."""
    command = ["make", "mutation", f"MUTANTS={count}", "ONLY=routeinfo\\|namesrv_remoting"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=_PATIENCE_SECONDS)
    found = re.findall(r"^(\w+): noticed (\d+) of (\d+)", done.stdout, re.MULTILINE)
    if done.returncode or not found:
        raise BenchError(f"make mutation ended with {done.returncode}: {(done.stdout + done.stderr)[-1000:]}")
    return [
        Figure(
            package,
            f"{package}: noticed, of all",
            "times",
            (int(noticed) / int(of),),
            Target(">=", 0.8),
            f"{noticed} of {of}",
        )
        for package, noticed, of in found
    ]
