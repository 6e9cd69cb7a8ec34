"""Compiles the programs written in C into `build/benchmarks/`, again when a source is newer."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from benchmarks.harness.figures import BenchError

ROOT: Final = Path(__file__).resolve().parents[2]
_SOURCES: Final = ROOT / "benchmarks" / "programs"
# Compiled programs and the results of every run; git ignores this folder.
BUILT: Final = ROOT / "build" / "benchmarks"
# Without -Werror: a newer compiler with new warnings can still build the programs.
_FLAGS: Final = ("-O2", "-Wall", "-Wextra")


def program(name: str) -> Path:
    """The path of the program, or of the shared library NAME.so, compiled anew when a source is newer.

    Raises:
        BenchError: the program cannot be compiled.
    """
    built = BUILT / name
    # Any newer source counts, without a list of dependencies: every program compiles in a second.
    newest = max(path.stat().st_mtime_ns for path in _SOURCES.iterdir())
    if not built.exists() or built.stat().st_mtime_ns < newest:
        _compile(_SOURCES / f"{built.stem}.c", built)
    return built


def _compile(source: Path, built: Path) -> None:
    if sys.platform != "linux":
        raise BenchError(f"the benchmarks need Linux (epoll), this is {sys.platform}")
    compiler = os.environ.get("CC") or "cc"
    if shutil.which(compiler) is None:
        raise BenchError(f"no C compiler {compiler} on PATH; install gcc or clang, or set CC")
    built.parent.mkdir(parents=True, exist_ok=True)
    # The compiler writes a temporary file, so that a second build at the same time never runs half a program.
    unfinished = built.with_name(f"{built.name}.{os.getpid()}")
    flags = (*_FLAGS, "-shared", "-fPIC") if built.suffix == ".so" else _FLAGS
    done = subprocess.run(
        [compiler, *flags, "-o", str(unfinished), str(source)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        unfinished.unlink(missing_ok=True)
        raise BenchError(f"{compiler} cannot compile {source.name}:\n{done.stderr.strip()}")
    sys.stderr.write(done.stderr)
    unfinished.replace(built)
