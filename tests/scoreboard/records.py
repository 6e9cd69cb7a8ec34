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
    """Bugs of docs/bugs.md of which a test that is named is not there, or none is named."""
    lines = (ROOT / "docs" / "bugs.md").read_text(encoding="utf-8").splitlines()
    bugs = [line.strip("|").split(" | ") for line in lines if line.startswith("| ") and not line.startswith("| bug ")]
    if not bugs:
        raise BenchError("no bug in docs/bugs.md")
    without = [bug for bug, _, tests, _ in bugs if not _are_there(tests)]
    return [none_of("without", "bugs without a test that is there", len(without), f"of {len(bugs)}")]


def _are_there(tests: str) -> bool:
    named = re.findall(r"[\w./-]*(?:tests|docker)/[\w./-]+", tests)
    return bool(named) and all((ROOT / name.rstrip(".")).exists() for name in named)


def mutation(count: int) -> list[Figure]:
    """So many small changes of each package, and what share of them its tests notice."""
    command = ["make", "mutation", f"MUTANTS={count}", "PACKAGES=namesrv namesrv_remoting"]
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
