"""Compiles the benchmark programs written in C into `build/benchmarks/`, again when a source is newer."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

PROGRAMS: Final = ("crowd", "limit", "load", "peers/registry")
SOURCES: Final = Path(__file__).resolve().parent
BUILT: Final = SOURCES.parent / "build" / "benchmarks"
# warnings stay warnings here: a newer compiler's must not keep anybody from measuring
FLAGS: Final = ("-O2", "-Wall", "-Wextra")


class BuildError(Exception):
    """A program cannot be compiled; the message says what is missing, in one line, or what the compiler said."""


def program(name: str) -> Path:
    """The program of `benchmarks/<name>.c`, up to date.

    Raises:
        BuildError: it had to be compiled and could not be.
    """
    built = BUILT / name
    if not _is_current(built):
        _compile(SOURCES / f"{name}.c", built)
    return built


def _is_current(built: Path) -> bool:
    if not built.exists():
        return False
    # which program includes which header is not worth knowing: all of it compiles in a second
    return max(path.stat().st_mtime_ns for path in SOURCES.rglob("*.[ch]")) <= built.stat().st_mtime_ns


def _compile(source: Path, built: Path) -> None:
    if sys.platform != "linux":
        raise BuildError(f"the benchmarks need Linux (epoll), this is {sys.platform}")
    compiler = _compiler()
    built.parent.mkdir(parents=True, exist_ok=True)
    # renamed when complete, so that two builds at once never run half a program
    unfinished = built.with_name(f"{built.name}.{os.getpid()}")
    done = subprocess.run(
        [compiler, *FLAGS, "-o", str(unfinished), str(source)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        unfinished.unlink(missing_ok=True)
        raise BuildError(f"{compiler} cannot compile {source.name}:\n{done.stderr.strip()}")
    sys.stderr.write(done.stderr)
    unfinished.replace(built)


def _compiler() -> str:
    chosen = os.environ.get("CC")
    names = (chosen,) if chosen else ("cc", "gcc", "clang")
    for name in names:
        if found := shutil.which(name):
            return found
    raise BuildError(f"no C compiler: none of {', '.join(names)} is on PATH; install gcc or clang, or set CC")


def main() -> int:
    """Compile what is not up to date, and say where everything is."""
    try:
        for name in PROGRAMS:
            print(program(name))
    except BuildError as error:
        print(f"build: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
