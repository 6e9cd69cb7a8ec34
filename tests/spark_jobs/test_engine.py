"""The choice of the engine, and the embedded engine's independence of Spark."""

import errno
import gzip
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest

from namesrv_spark_jobs.analysis import analyse
from namesrv_spark_jobs.command.arguments import read_settings
from namesrv_spark_jobs.command.cli import main
from namesrv_spark_jobs.command.engine import choose, opened
from namesrv_spark_jobs.engines.embedded.engine import EmbeddedEngine
from namesrv_spark_jobs.errors import UsageError
from namesrv_spark_jobs.log_files import log_files
from namesrv_spark_jobs.options import Options
from tests.support.peer import until
from tests.support.spark_logs import SMALL_GRID, write_log, write_plain


@pytest.mark.parametrize(
    ("options", "environ", "engine", "why"),
    [
        ((), {}, "embedded", "0 MB of log lines, 0 MB as they are stored, fit on this machine"),
        # An unset variable of a script.
        ((), {"SPARK_REMOTE": ""}, "embedded", "0 MB of log lines, 0 MB as they are stored, fit on this machine"),
        (("--engine", "spark"), {}, "spark", "--engine spark"),
        (("--engine", "embedded"), {"SPARK_REMOTE": "sc://h"}, "embedded", "--engine embedded"),
        (("--master", "local[2]"), {}, "spark", "--master local[2]"),
        (("--conf", "spark.x=1"), {}, "spark", "--conf is given"),
        ((), {"SPARK_REMOTE": "sc://h"}, "spark", "SPARK_REMOTE is set"),
        ((), {"PYSPARK_GATEWAY_PORT": "1"}, "spark", "started by spark-submit"),
        (("s3a://bucket/a.jsonl",), {}, "spark", "an input is a URL"),
    ],
)
def test_spark_is_taken_where_it_is_asked_for(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    environ: dict[str, str],
    engine: str,
    why: str,
) -> None:
    """A master, a URL or spark-submit selects Spark; otherwise the report needs no Java."""
    log = tmp_path / "a.jsonl"
    log.write_text("{}")
    settings = read_settings([str(log), *options, "--out", str(tmp_path / "report")])
    for name, value in environ.items():
        monkeypatch.setenv(name, value)

    chosen = choose(settings, settings.inputs, tmp_path / "report")

    assert (chosen.name, chosen.why) == (engine, why)


@pytest.mark.parametrize(
    ("share_of_the_disk", "remedy"),
    [(1, "take another disk, or --engine spark, which needs less"), (9, "take another disk")],
)
def test_log_that_does_not_fit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share_of_the_disk: int, remedy: str
) -> None:
    """The embedded engine refuses a log that does not fit, and suggests Spark if Spark's smaller tables fit."""
    log = tmp_path / "a.jsonl.gz"
    with log.open("wb") as file:
        # A sparse file: two fifths of its size, inflated fifteenfold, are a little more than the share of the disk.
        file.truncate(share_of_the_disk * 3 * shutil.disk_usage(tmp_path).free // 15)
    words = [str(log), "--out", str(tmp_path / "report")]

    with pytest.raises(UsageError, match=rf"^--out .*: no space left in {tmp_path}: .* needed, .* free; {remedy}$"):
        choose(read_settings(words), [str(log)], tmp_path / "report")
    for asked in (("--engine", "spark"), ("--master", "spark://h:1"), ("--conf", "spark.local.dir=/big")):
        assert choose(read_settings([*words, *asked]), [str(log)], tmp_path / "report").name == "spark"
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert choose(read_settings(words), [str(log)], tmp_path / "report").why == "duckdb is not installed"


def test_full_disk_under_duckdb_is_an_error_of_the_system(tmp_path: Path) -> None:
    """A full disk is an error of the system, not of the engine; DuckDB has one class for all errors of files."""
    log = write_log(tmp_path / "logs")
    settings = read_settings([str(log), "--out", str(tmp_path / "report"), "--engine", "embedded"])
    choice = choose(settings, [str(log)], tmp_path / "report")

    with (
        pytest.raises(OSError, match="No space left") as raised,
        opened(choice, settings, tmp_path / "staging", {}) as engine,
    ):
        cast(EmbeddedEngine, engine).write_sorted(str(next(log.rglob("*.gz"))), Path("/dev/full"))

    assert raised.value.errno == errno.ENOSPC


@pytest.mark.slow
def test_embedded_report_imports_nothing_of_spark(tmp_path: Path) -> None:
    """A complete report does not import PySpark."""
    logs = write_log(tmp_path / "logs")
    words = [str(logs), "--out", str(tmp_path / "report"), "--what-if", SMALL_GRID, "--quiet"]
    script = """
import sys
from namesrv_spark_jobs.command.cli import main
code = main(sys.argv[1:])
found = {name.partition(".")[0] for name in sys.modules} & {"pyspark", "py4j"}
sys.exit(code or ", ".join(sorted(found)) or 0)
"""

    ended = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, check=False)

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    assert (tmp_path / "report" / "report.html").exists()


@pytest.mark.slow
def test_interrupted_report_leaves_nothing(tmp_path: Path) -> None:
    """Ctrl-C during DuckDB's work gives exit code 130, one line, and no partial directory."""
    logs = tmp_path / "logs"
    make_log = (sys.executable, "-m", "tools.heartbeat_logs", "--lines", "300000", "--out", str(logs))
    subprocess.run(make_log, check=True, capture_output=True)
    command = (sys.executable, "-m", "namesrv_spark_jobs", str(logs), "--out", str(tmp_path / "r"))
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
        until(lambda: any(tmp_path.glob(".r.tmp-*/.staging/read-*/*.gz")))
        running.send_signal(signal.SIGINT)
        _, printed = running.communicate()

    assert running.returncode == 130, printed
    assert printed.endswith("\nnamesrv-staleness: interrupted; nothing was written\n")
    assert "Traceback" not in printed
    assert [path.name for path in tmp_path.iterdir()] == ["logs"]


def test_spark_refuses_names_with_colons(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Spark would skip a file with a colon in its name without an error; names of directories may have colons."""
    named = write_plain(tmp_path / "10.0.0.1:9876", "ns:1.jsonl", ["{}"])

    assert main([str(tmp_path), "--out", str(tmp_path / "report"), "--engine", "spark", "--quiet"]) == 2

    message = "Spark cannot read a file with a colon in its name; rename the file"
    assert capsys.readouterr().err == f"namesrv-staleness: {named}: {message}\n"


@pytest.mark.parametrize(
    ("name", "out", "options"),
    [
        # Java cannot open a file with such a name.
        (b"\xff.jsonl", b"report", ("--engine", "spark")),
        # DuckDB can open neither a table with such a name, nor such a directory for its tables.
        (b"\xff.parquet", b"report", ()),
        (b"a.jsonl", b"\xff", ()),
        # The names of read files are kept as JSON.
        (b"\xff.jsonl", b"report", ("--follow",)),
    ],
)
def test_names_that_are_not_utf8_are_wrong_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: bytes, out: bytes, options: tuple[str, ...]
) -> None:
    """The error has the path and the remedy."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / os.fsdecode(name)).write_text("{}")

    assert main([str(tmp_path / "logs"), "--out", str(tmp_path / os.fsdecode(out)), *options]) == 2

    assert "the name is not UTF-8; rename it" in capsys.readouterr().err


@pytest.mark.slow
def test_paths_are_not_taken_for_patterns(tmp_path: Path) -> None:
    """Paths with `*`, `?` or brackets are literal, for text files, compressed files, tables and directories."""
    plain, odd = tmp_path / "plain", tmp_path / "a[b]?*"
    write_log(plain)
    assert main(["compact", str(plain), "--quiet"]) == 0
    still_open = plain / "dt=2026-03-01" / "hour=00" / "ns-2-boot-2-1.jsonl.open"
    still_open.with_suffix(".gz").write_bytes(gzip.compress(still_open.read_bytes()))
    still_open.unlink()
    shutil.copytree(plain, odd)
    # A file that the name would match as a pattern.
    shutil.copytree(plain, tmp_path / "ab!!", copy_function=lambda _, file: Path(file).touch())
    found = []
    for folder in (plain, odd):
        with EmbeddedEngine(folder / ".staging") as engine:
            files = log_files([str(folder)])
            found.append(analyse(engine, files, Options(), lambda _: None).summary)
            # Only the file with a truncated line is read line by line.
            assert len(list((folder / ".staging").rglob("*.clean.jsonl"))) == 1

    assert found[0] == found[1]
