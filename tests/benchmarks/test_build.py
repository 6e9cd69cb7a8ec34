"""The C programs compile, and say how they are used."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import build

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="they need epoll")

COMPILER = next(filter(shutil.which, ("cc", "gcc", "clang")), None)
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C compiler")


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty place for the programs."""
    monkeypatch.setattr(build, "BUILT", tmp_path / "build")
    monkeypatch.delenv("CC", raising=False)
    return tmp_path / "build"


@needs_compiler
@pytest.mark.parametrize("name", build.PROGRAMS)
def test_a_program_compiles_without_a_warning_and_runs(
    name: str, built: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """From nothing, in one call, and again only when a source is newer; --help names its options."""
    path = build.program(name)

    assert built / name == path
    assert capfd.readouterr().err == ""
    assert "--port" in subprocess.run([path, "--help"], capture_output=True, text=True, check=True).stdout

    path.write_text("as it was")
    build.program(name)
    assert path.read_text() == "as it was"
    os.utime(path, ns=(0, max(path.stat().st_mtime_ns for path in build.SOURCES.iterdir()) // 2))
    build.program(name)
    assert path.read_bytes().startswith(b"\x7fELF")


def test_a_missing_compiler_is_named(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever wants to measure learns what to install."""
    monkeypatch.setenv("CC", "no-such-compiler")

    with pytest.raises(build.BuildError, match="none of no-such-compiler is on PATH"):
        build.program("limit")
    assert not built.joinpath("limit").exists()
