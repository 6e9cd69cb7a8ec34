"""OpenSSF Scorecard's checks that work without a forge, on the files of a commit.

Scorecard itself is a Go module, pinned by hash in go.sum; main.go here runs its checks. PyPI does not have it: its
package `scorecard` is another program.
"""

import json
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

_GO: Final = Path(__file__).parent
# The expected score of each check, of 10, with the reason for a lower one.
SCORES: Final[Mapping[str, int]] = {
    "Binary-Artifacts": 10,
    # -1: the project has no workflow of a forge.
    "Dangerous-Workflow": -1,
    "Fuzzing": 10,
    # 10 needs the name of the licence in the name of its file.
    "License": 9,
    # The images install with --no-index, without hashes, from a directory that contains only packages which pip has
    # checked against the hashes of the locks.
    "Pinned-Dependencies": 7,
    # 10 needs an address for reports of vulnerabilities, which a project without a forge does not have.
    "Security-Policy": 4,
}


def results(root: Path) -> list[dict[str, Any]]:
    """Results of the checks for the last commit of a tree, in Scorecard's format; empty when Scorecard failed."""
    with tempfile.TemporaryDirectory() as clone:
        fetch = ("git", "clone", "--quiet", str(root), clone)
        subprocess.run(fetch, check=True)  # noqa: S603  # fixed
        check = ("go", "run", ".", clone, *SCORES)
        done = subprocess.run(check, cwd=_GO, check=False, stdout=subprocess.PIPE, text=True)  # noqa: S603  # our own
    checks: list[dict[str, Any]] = [] if done.returncode else json.loads(done.stdout)["checks"]
    return checks


def score_problems(checks: Iterable[Mapping[str, Any]]) -> list[str]:
    """The checks whose score is not the expected one, with Scorecard's reason and warnings."""
    found = {result["name"]: result for result in checks}
    return [
        f"scorecard: {name}: {_text(found.get(name))}; expected {expected} of 10"
        for name, expected in SCORES.items()
        if name not in found or found[name]["score"] != expected
    ]


def _text(result: Mapping[str, Any] | None) -> str:
    if result is None:
        return "no result"
    warnings = [line for line in result["details"] or () if line.startswith("Warn:")]
    return " ".join([f"{result['score']} of 10, {result['reason']}", *warnings])
