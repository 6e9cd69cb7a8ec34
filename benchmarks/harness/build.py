"""Compiles the programs written in C into `build/benchmarks/`, again when a source is newer."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from benchmarks.harness.figures import BenchError

PROGRAMS: Final = ("limit", "load")
ROOT: Final = Path(__file__).resolve().parents[2]
SOURCES: Final = ROOT / "benchmarks" / "programs"
# programs, and the results of every run; never committed
BUILT: Final = ROOT / "build" / "benchmarks"
# Warnings stay warnings here: those of a newer compiler must not keep anybody from measuring.
_FLAGS: Final = ("-O2", "-Wall", "-Wextra")


def program(name: str) -> Path:
    """The program of `programs/<name>.c`, up to date.

    Raises:
        BenchError: the program had to be compiled and could not be.
    """
    built = BUILT / name
    # which program includes which header does not matter: all of them compile in a second
    newest = max(path.stat().st_mtime_ns for path in SOURCES.iterdir())
    if not built.exists() or built.stat().st_mtime_ns < newest:
        _compile(SOURCES / f"{name}.c", built)
    return built


def _compile(source: Path, built: Path) -> None:
    if sys.platform != "linux":
        raise BenchError(f"the benchmarks need Linux (epoll), this is {sys.platform}")
    compiler = _compiler()
    built.parent.mkdir(parents=True, exist_ok=True)
    # renamed when complete, so that two builds at once never run half a program
    unfinished = built.with_name(f"{built.name}.{os.getpid()}")
    done = subprocess.run(
        [compiler, *_FLAGS, "-o", str(unfinished), str(source)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        unfinished.unlink(missing_ok=True)
        raise BenchError(f"{compiler} cannot compile {source.name}:\n{done.stderr.strip()}")
    sys.stderr.write(done.stderr)
    unfinished.replace(built)


def _compiler() -> str:
    chosen = os.environ.get("CC")
    names = (chosen,) if chosen else ("cc", "gcc", "clang")
    for name in names:
        if found := shutil.which(name):
            return found
    raise BenchError(f"no C compiler: none of {', '.join(names)} is on PATH; install gcc or clang, or set CC")
