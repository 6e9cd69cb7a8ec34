"""A report with --follow has the numbers of a report that reads all files at once."""

import json
import os
from pathlib import Path

import duckdb
import pytest

from namesrv_spark_jobs.command.cli import main
from namesrv_spark_jobs.command.follow import followed_directory, inherit, take_in, to_read
from namesrv_spark_jobs.engines.engine import Engine
from namesrv_spark_jobs.errors import UsageError
from tests.support.spark_logs import SMALL_GRID, first_server, second_server, write_closed, write_plain


def _tables(out: Path) -> set[str]:
    return {path.name for path in (out / ".follow" / "lines").glob("*.parquet")}


def _report(logs: Path, out: Path, *options: str) -> bytes:
    assert main([str(logs), "--out", str(out), "--what-if", SMALL_GRID, "--quiet", *options]) == 0
    return (out / "summary.json").read_bytes()


@pytest.mark.parametrize("is_compacted", [False, True])
def test_file_that_is_still_copied_is_read_again(tmp_path: Path, *, is_compacted: bool) -> None:
    """A truncated file is read again after a change, and counts once; a deleted file keeps its lines."""
    logs, out = tmp_path / "logs", tmp_path / "report"
    lines = second_server().lines
    write_closed(logs, "ns-2-boot-2-1.jsonl.gz", lines[:4])
    half = write_closed(logs, "ns-1-boot-1-1.jsonl.gz", first_server().lines, torn_by=9)
    gone = write_closed(logs, "ns-2-boot-2-2.jsonl.gz", lines[4:], torn_by=9)
    write_plain(logs, "ns-3-boot-3-1.jsonl", [])
    torn = _report(logs, out, "--follow")
    tables = _tables(out)
    gone.unlink()
    assert _report(logs, out, "--follow") == torn
    assert (json.loads(torn)["input"]["truncated_files"], _tables(out)) == (2, tables)

    write_closed(logs, gone.name, lines[4:], torn_by=9)
    write_closed(logs, half.name, first_server().lines)
    at_once = _report(logs, tmp_path / "at-once")
    if is_compacted:
        assert main(["compact", str(logs), "--drop-lines", "--quiet"]) == 0

    for _ in range(2):
        assert _report(logs, out, "--follow").replace(b".parquet", b".jsonl.gz") == at_once
    assert json.loads(at_once)["input"]["truncated_files"] == 1


def test_file_that_grows_into_reserved_space_is_read_again(tmp_path: Path) -> None:
    """A copy may reserve its whole size first, so that at its end only the time of the last change differs."""
    logs, out = tmp_path / "logs", tmp_path / "report"
    copied = write_closed(logs, "ns-1-boot-1-1.jsonl.gz", first_server().lines)
    whole = copied.read_bytes()
    os.truncate(copied, len(whole) // 2)
    os.truncate(copied, len(whole))
    os.utime(copied, ns=(0, 1))
    assert json.loads(_report(logs, out, "--follow"))["input"]["truncated_files"] == 1

    copied.write_bytes(whole)

    read = json.loads(_report(logs, out, "--follow"))["input"]
    assert (read["truncated_files"], read["lines"]) == (0, len(first_server().lines))


def test_report_refuses_to_follow_other_input(tmp_path: Path) -> None:
    """A list of files cannot grow; and another input would silently mix the lines of two logs."""
    assert followed_directory([str(tmp_path)]) == tmp_path
    for given, message in (
        ([str(tmp_path)] * 2, "takes one INPUT, a directory; 2 given"),
        (["/x"], "no such directory"),
    ):
        with pytest.raises(UsageError, match=message):
            followed_directory(given)
    out, aside = tmp_path / "report", tmp_path / "aside"
    out.mkdir()
    inherit(tmp_path / "nothing", out, tmp_path / "logs")
    aside.mkdir()

    with pytest.raises(UsageError, match=f"follows {tmp_path}/logs, not {tmp_path}/other; use another --out"):
        inherit(out, aside, tmp_path / "other")

    inherit(out, aside, tmp_path / "logs")
    assert (aside / ".follow" / "source.json").read_text() == (out / ".follow" / "source.json").read_text()


def test_kept_lines_are_not_replaced_by_another_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A report without --follow does not replace a followed one, whose files retention may have removed."""
    logs, out = tmp_path / "logs", tmp_path / "report"
    write_closed(logs, "ns-1-00aa-1.jsonl.gz", first_server().lines)
    _report(logs, out, "--follow")
    source = (out / ".follow" / "source.json").read_text()

    for command in ([str(logs)], ["compare", str(out), str(out)]):
        assert main([*command, "--out", str(out)]) == 2
        assert f"--out {out}: has the lines that --follow keeps; " in capsys.readouterr().err

    assert (out / ".follow" / "source.json").read_text() == source


@pytest.mark.parametrize(
    "state", ['{"source": "LOGS", "files": {}}', '{"source": "LOGS", "files": [], "truncated": {}}', "{"]
)
def test_state_of_another_version_is_refused(tmp_path: Path, state: str) -> None:
    """State of another version is refused: without the list of read files, lines would count twice or never."""
    out, aside, logs = tmp_path / "report", tmp_path / "aside", tmp_path / "logs"
    (out / ".follow").mkdir(parents=True)
    (out / ".follow" / "source.json").write_text(state.replace("LOGS", str(logs)))
    aside.mkdir()

    with pytest.raises(UsageError, match=f"{out}/.follow was not written by this version of namesrv-staleness"):
        inherit(out, aside, logs)


def test_size_of_what_is_followed_is_known_before_an_engine_is_chosen(tmp_path: Path, engine: Engine) -> None:
    """The size includes new files and the tables that either engine made of earlier files."""
    logs, aside = tmp_path / "logs", tmp_path / "aside"
    lines = first_server().lines
    early = write_closed(logs, "ns-1-boot-1-1.jsonl.gz", lines)
    # later lines of an open file would never be read
    write_plain(logs, "ns-3-boot-3-1.jsonl.open", lines)
    aside.mkdir()
    inherit(tmp_path / "nothing", aside, logs)
    assert to_read(logs, aside) == [str(early)]
    tables, _ = take_in(engine, logs, aside)
    late = write_closed(logs, "ns-2-boot-2-1.jsonl.gz", second_server().lines)

    assert to_read(logs, aside) == [str(late), *tables]
    assert len(duckdb.read_parquet(tables).fetchall()) == len(lines)
