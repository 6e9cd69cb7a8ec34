"""Fetches peers with the tools of their languages (Maven, Go, Cargo), once, into a cache in the home directory."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.harness.figures import BenchError
from benchmarks.harness.rounds import Bench

_HERE: Final = Path(__file__).resolve().parent
# Building rocketmq-rust takes half an hour on two slow cores.
_PATIENCE_SECONDS: Final = 3600
# placeholder in a command for the directory to be filled
INTO: Final = "{into}"


def jars(bench: Bench, name: str, version: str) -> Path:
    """A directory with the jars that maven/NAME.xml lists. Raises BenchError."""
    project = _HERE / "maven" / f"{name}.xml"
    command = [
        *("mvn", "--batch-mode", "--quiet", "--file", str(project), f"-Dpeer.version={version}"),
        *("dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={INTO}"),
    ]
    return fetched(bench, f"{name}-{version}", ("java", "mvn"), command)


def fetched(bench: Bench, name: str, tools: Sequence[str], command: Sequence[str]) -> Path:
    """A directory of the cache, filled by a command when it is not there.

    Raises:
        BenchError: a tool is missing, or the command failed.
    """
    # The cache is outside the tree, so that `make clean` does not remove it.
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "namesrv-bench-peers"
    kept = cache / name
    if kept.exists():
        return kept
    for tool in tools:
        if shutil.which(tool) is None:
            raise BenchError(f"{name}: no {tool} on PATH")
    cache.mkdir(parents=True, exist_ok=True)
    bench.progress(f"fetching {name}, which takes minutes and happens once")
    with tempfile.TemporaryDirectory(prefix=f"{name}.", dir=cache) as scratch:
        into = Path(scratch, "unfinished")
        into.mkdir()
        words = [word.replace(INTO, str(into)) for word in command]
        try:
            done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=_PATIENCE_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise BenchError(f"{name}: {words[0]} is not done after {_PATIENCE_SECONDS} s") from error
        if done.returncode:
            printed = " ".join((done.stderr or done.stdout).split())
            raise BenchError(f"{name}: {words[0]} failed: {printed[-200:]}")
        # A rename, so that an incomplete peer is never kept.
        into.rename(kept)
    return kept
