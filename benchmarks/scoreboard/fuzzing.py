"""Rows about malformed input: coverage-guided fuzzing of decoders, and frames for a whole server (tests/fuzz)."""

import json
from collections.abc import Sequence
from typing import Any, Final

from benchmarks.harness.figures import BenchError, Figure
from benchmarks.scoreboard.programs import Measure, passing, run_command
from benchmarks.scoreboard.slices import JOURNALS, failed, finished

_SLICE_SECONDS: Final = 60
_TARGETS: Final = "frames bodies"


def decoders(name: str, files: Sequence[str]) -> Measure:
    """A measure that fuzzes the decoders of frames and bodies with at least as many inputs as its size, in slices."""

    def measured(total: int) -> list[Figure]:
        slices = finished(JOURNALS / f"{name}.jsonl", files, total, _run_slice)
        return [failed("inputs", "inputs that failed", slices)]

    return measured


def _run_slice(_first: int, _left: int) -> dict[str, Any]:
    # The fuzzer goes on with the inputs that it has found before.
    done = run_command("make", "fuzz-coverage", f"SECONDS={_SLICE_SECONDS}", f"ARGS=--only {_TARGETS}")
    try:
        targets = json.loads(done.stdout.splitlines()[-1]).values()
    except (ValueError, IndexError, AttributeError) as error:
        raise BenchError(f"make fuzz-coverage ended with {done.returncode}: {done.stderr[-1000:]}") from error
    if not all(target["runs"] or target["failed"] for target in targets):
        raise BenchError(f"make fuzz-coverage ran nothing: {done.stderr[-1000:]}")
    failures = [path for target in targets for path in target["failed"]]
    return {"count": sum(target["runs"] for target in targets), "failed": failures}


def whole_server(examples: int) -> Measure:
    """A measure that sends this many examples to a whole server; it ignores the row's size."""
    run = passing(["tests/fuzz"], ["-o", "faulthandler_timeout=0"], variable="NAMESRV_FUZZ_EXAMPLES")
    return lambda _: run(examples)
