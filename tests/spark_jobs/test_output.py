"""A report is written to a directory beside its output, which it then replaces as a whole."""

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
    """Write a report, with an optional action before it replaces the output directory."""
    with written_aside(out) as aside:
        write_json(aside / "run.json", {"program": "namesrv-staleness", "number": number})
        then(aside)


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def _interrupt(aside: Path) -> None:
    (aside / "half").touch()
    raise KeyboardInterrupt


def test_report_appears_whole_and_replaces_the_older_one(tmp_path: Path) -> None:
    """A report replaces the older one completely; a failed run does not change the older report."""
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
    """A full disk is an error of one line that names the directory."""
    out = tmp_path / "report"
    _write(out, 1)

    with pytest.raises(UsageError, match=f"--out {out}: No space left on device"):
        _write(out, 2, lambda _: Path("/dev/full").write_text("x"))

    assert json.loads((out / "run.json").read_text())["number"] == 1
    assert _names(tmp_path) == ["report"]


def test_leftovers_of_a_killed_run_are_removed(tmp_path: Path) -> None:
    """A run removes directories of killed runs, but not of running ones."""
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
    """Only reports are replaced, since replacing deletes: a mistyped --out must not cost a home directory."""
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
        # The page needs a local file system.
        ("s3a://bucket/report", "--out {given}: not a local directory"),
        ("hdfs://namenode/report", "--out {given}: not a local directory"),
        # A link is refused, too, since its target would be lost.
        ("{tmp}/file", "--out {given}: exists and is not a directory"),
        ("{tmp}/link", "--out {given}: exists and is not a directory"),
        # A file in place of a parent directory.
        ("{tmp}/file/below/report", "--out {given}: "),
    ],
)
def test_unusable_directory_is_named(tmp_path: Path, given: str, message: str) -> None:
    """An unusable directory is found before Java starts; missing parents are made, as by `mkdir -p`."""
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
    """The content of run.json marks a report; the directory's name, or another run.json, does not."""
    (tmp_path / "run.json").write_text(content)

    assert is_ours is is_report(tmp_path)


def test_directories_of_our_deployments_are_below_their_volumes() -> None:
    """A mount point cannot be replaced, so our deployments write to directories below their volumes."""
    chart = Path("deploy/helm/namesrv/templates/report.yaml").read_text(encoding="utf-8")
    volumes = re.findall(r"mountPath: ([^,}]+)", chart)
    (out,) = re.findall(r"--out=(\S+)", chart)

    assert out not in volumes
    assert str(Path(out).parent) in volumes
