"""What a user gets: the wheel, the locks it is installed with, and the commands that do it."""

import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).parent.parent
LOCKS = ROOT / "locks"


def build(target: str, to: Path) -> Path:
    """Build one distribution of this tree, with the installed hatchling and no network."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(to)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (built,) = to.iterdir()
    return built


def pinned(lock: Path) -> dict[str, frozenset[str]]:
    """What a lock names: requirement (with version and marker) -> its hashes."""
    entries = re.split(r"\n(?=\S)", re.sub(r"^\s*#.*\n", "", lock.read_text(), flags=re.MULTILINE).strip())
    return {entry.split(" \\\n")[0]: frozenset(re.findall(r"--hash=(\S+)", entry)) for entry in entries}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    """The wheel of this tree."""
    with zipfile.ZipFile(build("wheel", tmp_path_factory.mktemp("wheel"))) as archive:
        yield archive


PACKAGES = {
    f"namesrv{part}"
    for part in ("", "_broker_agent", "_client", "_console", "_remoting", "_runtime", "_spark_jobs", "_testing")
}


def test_the_wheel_ships_our_import_packages_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    """No `tests`, no folder name of the tree lands in anyone's site-packages; each package is importable and typed."""
    names = set(wheel.namelist())

    assert {*PACKAGES, "namesrv-0.1.0.dist-info"} == {PurePosixPath(name).parts[0] for name in names}
    assert {f"{package}/{file}" for package in PACKAGES for file in ("__init__.py", "py.typed")} <= names
    assert "namesrv-0.1.0.dist-info/licenses/LICENSE" in names
    # what the console's pages are made of
    console = ("templates/base.html", "static/console.css", "static/console.js", "locales/en.toml", "locales/zh.toml")
    assert {f"namesrv_console/{file}" for file in console} <= names


def test_the_wheel_installs_the_commands(wheel: zipfile.ZipFile) -> None:
    """One command for each component that runs by itself and no other, and what others find by its name."""
    entry_points = wheel.read("namesrv-0.1.0.dist-info/entry_points.txt").decode().split("\n")

    assert [
        "[console_scripts]",
        "namesrv = namesrv_runtime.program:namesrv",
        "namesrv-broker-agent = namesrv_runtime.program:namesrv_broker_agent",
        "namesrv-console = namesrv_runtime.program:namesrv_console",
        "namesrv-staleness = namesrv_spark_jobs.command.cli:main",
        "namesrvctl = namesrv_runtime.program:namesrvctl",
        "[namesrvctl.logs]",
        "topic_past = namesrv_console.past.history:topic_past",
        "[pytest11]",
        "namesrv = namesrv_testing.plugin",
    ] == [line for line in entry_points if line]


def test_the_source_distribution_stands_alone(tmp_path: Path) -> None:
    """Who gets the sources gets what builds and tests them, too."""
    with tarfile.open(build("sdist", tmp_path)) as archive:
        names = set(archive.getnames())

    assert {
        f"namesrv-0.1.0/{name}"
        for name in ("pyproject.toml", "Makefile", "LICENSE", "locks/run.txt", "locks/dev.txt", "tests/conftest.py")
    } <= names


@pytest.mark.parametrize("lock", ["run.txt", "dev.txt", "spark.txt"])
def test_locks_pin_every_package_by_hash(lock: str) -> None:
    """Whatever index serves them, the bytes are the ones that were locked, and tested: all are part of dev.txt."""
    found = pinned(LOCKS / lock)

    assert [] == [name for name, hashes in found.items() if "==" not in name or not hashes]
    assert found.items() <= pinned(LOCKS / "dev.txt").items()
    assert "://" not in (LOCKS / lock).read_text()


def test_set_up_without_a_new_enough_python_says_so_in_one_line(tmp_path: Path) -> None:
    """The set-up names what it needs, prints no traceback and leaves nothing behind."""
    shutil.copytree(LOCKS, tmp_path / "locks")
    done = subprocess.run(
        ["sh", "locks/install.sh", "run"],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "PYTHON": "false"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (1, "") == (done.returncode, done.stdout)
    assert ["namesrv: Python 3.11 or newer is needed, and none of these is: false"] == done.stderr.splitlines()
    assert not (tmp_path / ".venv").exists()


def test_make_alone_lists_every_target_worth_calling() -> None:
    """The Makefile documents itself."""
    listed = subprocess.run(["make"], cwd=ROOT, check=True, capture_output=True, text=True).stdout

    targets = {line.split()[0] for line in listed.splitlines() if not line.startswith("make")}
    assert {
        "help", "setup", "run", "test", "check", "format", "bench", "bench-peers", "fuzz", "lock", "clean", "demo",
        "abuse", "mutation", "lint", "chart-check", "console", "docs", "screenshots",
        "interop", "docker-check", "test-all", "test-rest", "setup-spark", "spark-zip", "spark-data",
    } == targets  # fmt: skip
