"""Packaging: the wheels, their lock files, and the set-up."""

import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import chain
from pathlib import Path, PurePosixPath

import pytest

from tools import dist
from tools.release_check import version_problems

ROOT = Path(__file__).parent.parent
LOCKS = ROOT / "locks"
CONFIGS = dist.wheels(dist.read_project())


def pinned(lock: Path) -> dict[str, frozenset[str]]:
    """Pinned requirement (with version and marker) to its hashes."""
    entries = re.split(r"\n(?=\S)", re.sub(r"^\s*#.*\n", "", lock.read_text(), flags=re.MULTILINE).strip())
    return {entry.split(" \\\n")[0]: frozenset(re.findall(r"--hash=(\S+)", entry)) for entry in entries}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, zipfile.ZipFile]]:
    """The wheels of this tree by name."""
    with ExitStack() as stack:
        built = dist.build_wheels(tmp_path_factory.mktemp("wheels"))
        yield {path.name.split("-")[0]: stack.enter_context(zipfile.ZipFile(path)) for path in built}


def of_metadata(wheel: zipfile.ZipFile, file: str) -> str:
    """A file of a wheel's metadata; empty without one."""
    (found,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    path = PurePosixPath(found).parent / file
    return wheel.read(str(path)).decode() if str(path) in wheel.namelist() else ""


PACKAGES = {
    "runtime/namesrv_runtime",
    "remoting/namesrv_remoting",
    "namesrv/namesrv",
    "broker_agent/namesrv_broker_agent",
    "client/namesrv_client",
    "testing/namesrv_testing",
    "console/namesrv_console",
    "spark_jobs/namesrv_spark_jobs",
}


def test_wheels_contain_only_our_import_packages(wheels: dict[str, zipfile.ZipFile]) -> None:
    """No two wheels contain the same file, and none contains `tests` or a top-level folder."""
    shipped = [name for wheel in wheels.values() for name in wheel.namelist() if ".dist-info/" not in name]
    ours = [
        str(file.relative_to((ROOT / package).parent))
        for package in PACKAGES
        for file in (ROOT / package).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    ]

    assert sorted(ours) == sorted(shipped)
    assert [
        name for name, wheel in wheels.items() if "Apache License" not in of_metadata(wheel, "licenses/LICENSE")
    ] == []


def test_wheels_need_the_projects_dependencies(wheels: dict[str, zipfile.ZipFile]) -> None:
    """The wheels' dependencies together are the project's; ours are pinned to the same version."""
    needed = {
        name: re.findall(r"^Requires-Dist: (.*)", of_metadata(wheel, "METADATA"), re.MULTILINE)
        for name, wheel in wheels.items()
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]

    everything = set(chain(*needed.values()))
    assert {*needed["namesrv_client"]} == {"namesrv-wire==0.1.0"}
    assert {*needed["namesrv_agent"]} == {"namesrv-wire==0.1.0"}
    assert {named(requirement) for requirement in listed} == {
        named(requirement) for requirement in everything if not requirement.startswith("namesrv")
    } | {"namesrv"}
    assert {re.split("==|;", requirement)[1] for requirement in everything if requirement.startswith("namesrv")} == {
        "0.1.0"
    }


def named(requirement: str) -> str:
    """The package name of a requirement."""
    return re.split(r"[^A-Za-z0-9_.-]", requirement)[0]


def test_wheels_are_reproducible(wheels: dict[str, zipfile.ZipFile], tmp_path: Path) -> None:
    """Two builds are equal to the byte."""
    again = {path.name.split("-")[0]: path.read_bytes() for path in dist.build_wheels(tmp_path)}

    assert {name: Path(wheel.filename or "").read_bytes() for name, wheel in wheels.items()} == again


# Imports every module of a wheel. Without site, the source tree of an editable installation is not on the path.
IMPORT_ALL = """
import importlib, sys
sys.path[:0] = sys.argv[1].split(":")
for module in sys.argv[2:]:
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        print(module, "needs", error.name)
"""
# These modules need a wheel that their own wheel does not require; the commands name that wheel.
NEED_ANOTHER_WHEEL = {"namesrv_history": "namesrv_spark_jobs.history.reading"}


@pytest.mark.parametrize("wheel", sorted(name.replace("-", "_") for name in CONFIGS))
def test_modules_import_from_their_own_wheels_only(
    wheels: dict[str, zipfile.ZipFile], tmp_path: Path, wheel: str
) -> None:
    """A wheel imports our packages only from itself and from the wheels that it requires."""
    for name in dist.needed_wheels(wheel.replace("_", "-"), CONFIGS):
        wheels[name.replace("-", "_")].extractall(tmp_path)  # noqa: S202  # wheels of ours
    modules = {
        name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for name in wheels[wheel].namelist()
        if name.endswith(".py") and not name.endswith("__main__.py")
    }
    if wheel in NEED_ANOTHER_WHEEL:
        modules = {module for module in modules if not module.startswith(f"{NEED_ANOTHER_WHEEL[wheel]}.")}
    path = ":".join((str(tmp_path), sysconfig.get_path("purelib")))
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", IMPORT_ALL, path, *sorted(modules)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_role_contains_its_own_wheels(tmp_path: Path) -> None:
    """The role is built as for the images."""
    built = {path.name.split("-")[0] for path in dist.build_wheels(tmp_path, ["namesrv-ctl"])}

    assert built == {"namesrv_wire", "namesrv_client", "namesrv_history", "namesrv_ctl"}


def test_version_is_the_same_everywhere() -> None:
    """Every place has the version, and the changelog has it after a release."""
    problems = version_problems(ROOT, tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])

    assert problems in ([], ["CHANGELOG.md: not of version 0.1.0"])
    assert len(version_problems(ROOT, "0.1.10")) == 9


def test_source_distribution_is_complete(tmp_path: Path) -> None:
    """The source distribution contains everything for its build and tests."""
    with tarfile.open(dist.build_sources(tmp_path)) as archive:
        names = set(archive.getnames())

    assert {
        f"namesrv-0.1.0/{name}"
        for name in ("pyproject.toml", "Makefile", "LICENSE", "locks/run.txt", "locks/dist.txt", "tests/conftest.py")
    } <= names


@pytest.mark.parametrize("lock", ["run.txt", "dev.txt", "report.txt", "spark.txt"])
def test_locks_pin_every_package_by_hash(lock: str) -> None:
    """All locked packages have hashes and are part of dev.txt, so that the tested bytes are installed."""
    found = pinned(LOCKS / lock)

    assert [name for name, hashes in found.items() if "==" not in name or not hashes] == []
    assert found.items() <= pinned(LOCKS / "dev.txt").items()
    assert "://" not in (LOCKS / lock).read_text()


def test_setup_with_an_old_python_fails_with_one_line(tmp_path: Path) -> None:
    """The set-up names the required version, prints no traceback and leaves nothing behind."""
    shutil.copytree(LOCKS, tmp_path / "locks")
    done = subprocess.run(
        ["sh", "locks/install.sh", "run"],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "PYTHON": "false"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines() == ["namesrv: Python 3.11 or newer is needed, and none of these is: false"]
    assert not (tmp_path / ".venv").exists()
