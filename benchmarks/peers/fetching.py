"""Fetches peers with the tools of their languages (Maven, Go, Cargo), once, into a cache in the home directory."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.harness.rounds import Bench

_HERE: Final = Path(__file__).resolve().parent
# Building rocketmq-rust takes half an hour on two slow cores.
_PATIENCE_SECONDS: Final = 3600
# placeholder in a command for the directory to be filled
_INTO: Final = "{into}"


class AbsentError(Exception):
    """A peer is not available on this machine; the message has the reason."""


def jars(bench: Bench, name: str, version: str) -> Path:
    """A directory with the jars that maven/NAME.xml lists. Raises AbsentError."""
    command = [
        *(
            "mvn",
            "--batch-mode",
            "--quiet",
            "--file",
            str(_HERE / "maven" / f"{name}.xml"),
            f"-Dpeer.version={version}",
        ),
        *("dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={_INTO}"),
    ]
    return fetched(bench, f"{name}-{version}", ("java", "mvn"), command)


def go_program(bench: Bench, name: str, package: str, version: str) -> Path:
    """The program of a Go package, with the dependencies that its own go.mod names. Raises AbsentError."""
    # `go install PACKAGE@VERSION` refuses modules that replace dependencies, as etcd's does.
    module = f"cd {_INTO} && go mod init {name} && go get {package}@v{version}"
    command = ["sh", "-c", f"{module} && go build -o {name} {package}"]
    return fetched(bench, f"{name}-{version}", ("go",), command) / name


def crate_program(bench: Bench, crate: str, version: str, program: str) -> Path:
    """A program of a crate. Raises AbsentError."""
    command = ["cargo", "install", "--locked", "--quiet", "--root", _INTO, "--version", version, crate]
    return fetched(bench, f"{crate}-{version}", ("cargo", "cc"), command) / "bin" / program


def fetched(bench: Bench, name: str, tools: Sequence[str], command: Sequence[str]) -> Path:
    """A directory of the cache, filled by a command when it is not there.

    Raises:
        AbsentError: a tool is missing, or the command failed.
    """
    # The cache is outside the tree, so that `make clean` does not remove it.
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "namesrv-bench-peers"
    kept = cache / name
    if kept.exists():
        return kept
    for tool in tools:
        if shutil.which(tool) is None:
            raise AbsentError(f"{name}: no {tool} on PATH")
    cache.mkdir(parents=True, exist_ok=True)
    bench.progress(f"fetching {name}, which takes minutes and happens once")
    with tempfile.TemporaryDirectory(prefix=f"{name}.", dir=cache) as scratch:
        into = Path(scratch, "unfinished")
        into.mkdir()
        _run(name, [word.replace(_INTO, str(into)) for word in command])
        # A rename, so that an incomplete peer is never kept.
        into.rename(kept)
    return kept


def _run(name: str, command: Sequence[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_PATIENCE_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise AbsentError(f"{name}: {command[0]} is not done after {_PATIENCE_SECONDS} s") from error
    if done.returncode:
        printed = " ".join((done.stderr or done.stdout).split())
        raise AbsentError(f"{name}: {command[0]} failed: {printed[-200:]}")
