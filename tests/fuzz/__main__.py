"""Coverage-guided fuzzing: `python -m tests.fuzz` (or `make fuzz-coverage`) runs each target for some seconds.

Findings are kept in build/fuzz, where the next run continues; its journal.jsonl counts the inputs of all runs. --keep
copies some of the findings into the corpus of the repository. The exit code is 1 when a target raised a wrong error,
with the input in build/fuzz/failures.
"""

import argparse
import hashlib
import json
import math
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from tests.support.journal import Journal

ROOT: Final = Path(__file__).parents[2]
CORPUS: Final = Path(__file__).with_name("corpus")
_BUILD: Final = ROOT / "build" / "fuzz"
# per target; there are five targets
_MOST_CORPUS_BYTES: Final = 12 * 1024
_INSTRUMENTED: Final = ("namesrv", "namesrv_client", "namesrv_remoting", "namesrv_runtime", "tomllib", "json")
# keys of TARGETS, which is imported only where its imports are instrumented
_NAMES: Final = ("frames", "bodies", "snapshot", "access-file", "log-lines")


def main() -> int:
    """Fuzz one target in this process, or each one in a process of its own."""
    options, flags = _options().parse_known_args()
    if options.target is not None:
        _fuzz(options.target, flags)
    journal = Journal(_BUILD / "journal.jsonl")
    found = {}
    for name in options.only or _NAMES:
        found[name] = figures = _run(name, options.seconds)
        journal.add(target=name, **figures)
    sys.stderr.write(f"fuzz: {journal.total('runs'):,} inputs in all sessions\n")
    if options.keep:
        for name in found:
            _keep(name)
    sys.stdout.write(f"{json.dumps(found)}\n")
    return int(any(figures["failed"] for figures in found.values()))


def _fuzz(name: str, flags: list[str]) -> None:
    """Fuzz until the time is up, which ends the process."""
    # installed from a lock file of its own
    import atheris  # type: ignore[import-not-found,import-untyped,unused-ignore]  # noqa: PLC0415

    with atheris.instrument_imports(include=list(_INSTRUMENTED)):
        from tests.fuzz.targets import TARGETS  # noqa: PLC0415

    atheris.Setup([sys.argv[0], *flags], TARGETS[name])
    atheris.Fuzz()


def _run(name: str, seconds: int) -> dict[str, Any]:
    failures = _BUILD / "failures" / name
    for folder in (failures, _BUILD / name, CORPUS / name):
        folder.mkdir(parents=True, exist_ok=True)
    before = set(failures.iterdir())
    output = _libfuzzer(
        name, f"-max_total_time={seconds}", f"-artifact_prefix={failures}/", _BUILD / name, CORPUS / name
    )
    new = sorted(str(path.relative_to(ROOT)) for path in set(failures.iterdir()) - before)
    last = re.findall(r"^#(\d+)\s+\w+\s+cov: (\d+) ft: (\d+) corp: (\d+)", output, re.MULTILINE)
    runs, covered, features, corpus = map(int, last[-1]) if last else (0, 0, 0, 0)
    figures = {"runs": runs, "edges": covered, "features": features, "corpus": corpus, "failed": new}
    sys.stderr.write(f"fuzz: {name}: {figures}\n")
    if new or not runs:
        sys.stderr.write(output[-3000:])
    return figures


def _keep(name: str) -> None:
    """Keep as many findings as fit, evenly from the smallest to the largest."""
    found = {path.read_bytes() for folder in (CORPUS / name, _BUILD / name) for path in folder.iterdir()}
    every = math.ceil(sum(map(len, found)) / _MOST_CORPUS_BYTES)
    shutil.rmtree(CORPUS / name)
    (CORPUS / name).mkdir()
    for data in sorted(found, key=lambda data: (len(data), data))[:: max(1, every)]:
        # libFuzzer's names
        (CORPUS / name / hashlib.sha1(data, usedforsecurity=False).hexdigest()).write_bytes(data)


def _libfuzzer(name: str, *flags: object) -> str:
    command = [sys.executable, "-m", "tests.fuzz", "--target", name, "-max_len=4096", "-timeout=20", *map(str, flags)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, errors="replace", check=False).stderr


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Fuzz our readers, guided by coverage.")
    parser.add_argument("--seconds", type=int, default=60, help="for each target (60)")
    parser.add_argument("--only", nargs="+", choices=_NAMES, metavar="NAME", help=f"of {', '.join(_NAMES)}")
    parser.add_argument("--keep", action="store_true", help="take what was found into tests/fuzz/corpus")
    parser.add_argument("--target", choices=_NAMES, help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
