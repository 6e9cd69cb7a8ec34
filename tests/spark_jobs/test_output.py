"""The directory of a report: written aside, and replaced whole."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from namesrv_spark_jobs.command.output import out_directory, write_json, written_aside
from namesrv_spark_jobs.errors import UsageError
from namesrv_spark_jobs.log_folders import is_report


def _write(out: Path, number: int, then: Callable[[Path], object] = lambda _: None) -> None:
    """A report; something else may be done before it takes its place."""
    with written_aside(out) as aside:
        write_json(aside / "run.json", {"program": "namesrv-staleness", "number": number})
        then(aside)


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def _interrupt(aside: Path) -> None:
    (aside / "half").touch()
    raise KeyboardInterrupt


def test_report_appears_whole_and_replaces_the_older_one(tmp_path: Path) -> None:
    """Nothing of the older one stays, nothing beside it either; a run that fails leaves the older one as it was."""
    out = tmp_path / "report"
    _write(out, 1)
    (out / "of-the-old-one").touch()

    _write(out, 2)
    with pytest.raises(KeyboardInterrupt):
        _write(out, 3, _interrupt)

    assert json.loads((out / "run.json").read_text())["number"] == 2
    assert _names(out) == ["_SUCCESS", "run.json"]
    assert _names(tmp_path) == ["report"]


def test_full_disk_is_one_line_with_the_directory(tmp_path: Path) -> None:
    """The user can free space; no traceback is needed."""
    out = tmp_path / "report"
    _write(out, 1)

    with pytest.raises(UsageError, match=f"--out {out}: No space left on device"):
        _write(out, 2, lambda _: Path("/dev/full").write_text("x"))

    assert json.loads((out / "run.json").read_text())["number"] == 1
    assert _names(tmp_path) == ["report"]


def test_leftovers_of_a_killed_run_are_removed(tmp_path: Path) -> None:
    """A run that was killed could not tidy up; the next one does, but leaves what a living one writes."""
    out = tmp_path / "report"
    dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)

    def copied(aside: Path) -> None:
        for pid in (dead.stdout.decode().strip(), str(os.getppid())):
            shutil.copytree(aside, aside.with_name(aside.name.replace(str(os.getpid()), pid)))

    _write(out, 1, copied)
    _write(out, 2)

    left, report = _names(tmp_path)
    assert left.endswith(f"-{os.getppid()}")
    assert report == "report"


def test_directory_of_something_else_is_left_alone(tmp_path: Path) -> None:
    """Replacing is deleting: a mistyped --out must not cost a home directory, nor one that was filled meanwhile."""
    out = tmp_path / "home"

    def meet_a_thesis(_: Path) -> None:
        out.mkdir()
        (out / "thesis.txt").write_text("years of work")

    with pytest.raises(UsageError, match="neither empty nor a report of namesrv-staleness; left alone"):
        _write(out, 1, meet_a_thesis)
    with pytest.raises(UsageError, match="neither empty nor a report of namesrv-staleness; left alone"):
        out_directory(str(out))

    assert (out / "thesis.txt").read_text() == "years of work"
    assert _names(tmp_path) == ["home"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        # a page is for people with a file system
        ("s3a://bucket/report", "--out {given}: not a local directory"),
        ("hdfs://namenode/report", "--out {given}: not a local directory"),
        # neither is a link, whose target would be lost
        ("{tmp}/file", "--out {given}: exists and is not a directory"),
        ("{tmp}/link", "--out {given}: exists and is not a directory"),
        # a file stands where a directory would have to be
        ("{tmp}/file/below/report", "--out {given}: "),
    ],
)
def test_unusable_directory_is_named(tmp_path: Path, given: str, message: str) -> None:
    """The check runs before Java starts. Missing parents of a usable one are made, as `mkdir -p` does."""
    (tmp_path / "file").touch()
    assert out_directory(f"{tmp_path}/a/b") == tmp_path / "a" / "b"
    assert (tmp_path / "a").is_dir()
    (tmp_path / "link").symlink_to(tmp_path)
    given = given.format(tmp=tmp_path)

    with pytest.raises(UsageError) as raised:
        out_directory(given)

    assert str(raised.value).startswith(message.format(given=given))


@pytest.mark.parametrize(
    ("content", "is_ours"),
    [
        ('["something else"]', False),
        ("{", False),
        ("[" * 100_000, False),
        ('{"program": "namesrv-staleness"}', True),
    ],
)
def test_report_is_known_by_its_run_file(tmp_path: Path, content: str, is_ours: bool) -> None:
    """The content of run.json marks a report; a directory's name, or another file run.json, does not."""
    (tmp_path / "run.json").write_text(content)

    assert is_ours is is_report(tmp_path)


def test_directories_of_our_deployments_are_below_their_volumes() -> None:
    """A mount point cannot be replaced, so a report into one ends with code 2."""
    chart = Path("deploy/helm/namesrv/templates/report.yaml").read_text(encoding="utf-8")
    volumes = re.findall(r"mountPath: ([^,}]+)", chart)
    (out,) = re.findall(r"--out=(\S+)", chart)

    assert out not in volumes
    assert str(Path(out).parent) in volumes
