"""The directory of a report: written aside, and replaced whole."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from namesrv_spark_jobs.command.output import out_directory, write_json, written_aside
from namesrv_spark_jobs.errors import UsageError
from namesrv_spark_jobs.log_files import is_report


def _write_report(out: Path, number: int) -> None:
    with written_aside(out) as aside:
        write_json(aside / "run.json", {"program": "namesrv-staleness", "number": number})


def _fail_half_way(out: Path) -> None:
    with written_aside(out) as aside:
        (aside / "half").touch()
        raise KeyboardInterrupt


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def _number(out: Path) -> int:
    return int(json.loads((out / "run.json").read_text())["number"])


def test_report_appears_whole_and_replaces_the_older_one(tmp_path: Path) -> None:
    """Nothing of the older one stays, nothing beside it either."""
    out = tmp_path / "report"
    _write_report(out, 1)
    (out / "of-the-old-one").touch()

    _write_report(out, 2)

    assert 2 == _number(out)
    assert ["_SUCCESS", "run.json"] == _names(out)
    assert ["report"] == _names(tmp_path)


def test_failure_leaves_the_older_report_as_it_was(tmp_path: Path) -> None:
    """Whatever is raised, even by Ctrl-C."""
    out = tmp_path / "report"
    _write_report(out, 1)

    with pytest.raises(KeyboardInterrupt):
        _fail_half_way(out)

    assert ["_SUCCESS", "run.json"] == _names(out)
    assert ["report"] == _names(tmp_path)


def test_leftovers_of_a_killed_run_are_removed(tmp_path: Path) -> None:
    """A run that was killed could not tidy up; the next one does, but leaves what a living one writes."""
    out = tmp_path / "report"
    with written_aside(out) as aside:
        (aside / "run.json").write_text('{"program": "namesrv-staleness"}')
        dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
        shutil.copytree(aside, aside.with_name(aside.name.replace(str(os.getpid()), dead.stdout.decode().strip())))
        alive = aside.with_name(aside.name.replace(str(os.getpid()), str(os.getppid())))
        alive.mkdir()

    _write_report(out, 2)

    assert sorted([alive.name, "report"]) == _names(tmp_path)


def test_directory_of_something_else_is_left_alone(tmp_path: Path) -> None:
    """Replacing is deleting: a mistyped --out must not cost a home directory."""
    out = tmp_path / "home"
    out.mkdir()
    (out / "thesis.txt").write_text("years of work")

    with pytest.raises(UsageError, match="neither empty nor a report of namesrv-staleness; left alone"):
        out_directory(str(out))

    assert "years of work" == (out / "thesis.txt").read_text()


def test_directory_that_was_filled_meanwhile_is_left_alone(tmp_path: Path) -> None:
    """It is looked at again in the moment of replacing."""
    out = tmp_path / "home"

    def meet_a_thesis() -> None:
        with written_aside(out):
            out.mkdir()
            (out / "thesis.txt").write_text("years of work")

    with pytest.raises(UsageError, match="left alone"):
        meet_a_thesis()

    assert ["thesis.txt"] == _names(out)
    assert ["home"] == _names(tmp_path)


@pytest.mark.parametrize("given", ["s3a://bucket/report", "hdfs://namenode/report"])
def test_url_is_no_directory(given: str) -> None:
    """A page is for people with a file system."""
    with pytest.raises(UsageError, match=f"--out {given}: not a local directory"):
        out_directory(given)


def test_file_is_no_directory(tmp_path: Path) -> None:
    """Neither is a link, whose target would be lost."""
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path)

    for name in ("file", "link"):
        with pytest.raises(UsageError, match="exists and is not a directory"):
            out_directory(str(tmp_path / name))


def test_place_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """A file stands where a directory would have to be."""
    (tmp_path / "file").touch()

    with pytest.raises(UsageError, match=f"--out {tmp_path}/file/below/report: "):
        out_directory(f"{tmp_path}/file/below/report")


def test_parents_are_made(tmp_path: Path) -> None:
    """As `mkdir -p` does."""
    assert tmp_path / "a" / "b" == out_directory(f"{tmp_path}/a/b")
    assert (tmp_path / "a").is_dir()


def test_report_is_known_by_its_run_file(tmp_path: Path) -> None:
    """Not by its name, nor by any file called run.json."""
    (tmp_path / "run.json").write_text('["something else"]')

    assert not is_report(tmp_path)
    (tmp_path / "run.json").write_text('{"program": "namesrv-staleness"}')
    assert is_report(tmp_path)
