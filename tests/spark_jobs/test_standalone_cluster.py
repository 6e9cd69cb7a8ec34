"""The command on a real cluster, with spark-submit, and with Ctrl-C."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import duckdb
import pytest

from namesrv_spark_jobs.command.cli import main
from namesrv_spark_jobs.command.submit import build
from tests.spark_jobs.spark_cluster import SPARK_HOME, SparkCluster
from tests.support.spark_logs import BAD_LINE, SMALL_GRID, write_log, write_plain

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark")]
ROOT: Final = Path(__file__).parents[2]
GUARD_SECONDS: Final = 600.0
_COMMAND: Final = (sys.executable, "-m", "namesrv_spark_jobs")
# Neither adaptive execution nor generated code pays for a few lines.
_QUICK: Final = [
    f"--conf={setting}"
    for setting in (
        *("spark.sql.shuffle.partitions=2", "spark.executor.memory=512m", "spark.sql.adaptive.enabled=false"),
        *("spark.sql.codegen.wholeStage=false", "spark.sql.codegen.factoryMode=NO_CODEGEN"),
        *(f"spark.{of}.extraJavaOptions=-XX:TieredStopAtLevel=1" for of in ("driver", "executor")),
    )
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """A master and two workers."""
    with SparkCluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


def _environ() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
    python = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    return {**kept, "PYTHONPATH": str(ROOT / "spark_jobs"), **python}


def _run(*command: str, **environ: str) -> subprocess.CompletedProcess[str]:
    env = {**_environ(), **environ}
    return subprocess.run(command, capture_output=True, text=True, timeout=GUARD_SECONDS, check=False, env=env)


def _wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + GUARD_SECONDS
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_cluster_gives_the_bytes_of_one_machine(
    cluster: SparkCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The printed spark-submit line writes the same report as the embedded engine."""
    logs, here, there = write_log(tmp_path / "logs"), tmp_path / "local", tmp_path / "cluster"
    assert main([str(logs), "--out", str(here), "--engine", "embedded", "--what-if", SMALL_GRID, "-o", "json"]) == 0
    assert capsys.readouterr().out == (here / "summary.json").read_text()
    moved = shutil.copytree(logs, tmp_path / "elsewhere" / "logs")
    words = (f"{moved}/dt=*/**/*.jsonl*", "--out", str(there), "--what-if", SMALL_GRID, "--fail-if", "evictions>0")
    printed = _run(*_COMMAND, *words, "--master", cluster.url, *_QUICK, "--print-submit").stdout
    build(tmp_path / "namesrv_spark_jobs.zip")
    line = shlex.split(printed.replace(f"{ROOT}/dist/namesrv_spark_jobs.zip", f"{tmp_path}/namesrv_spark_jobs.zip"))

    ended = _run(str(SPARK_HOME / "bin" / "spark-submit"), *line[1:], PYTHONPATH="")

    # spark-submit returns the exit code of the gate.
    assert ended.returncode == 1, ended.stderr
    for name in ("summary.json", "report.html", "metrics.csv"):
        assert (there / name).read_bytes() == (here / name).read_bytes()
    assert {path.name for path in there.iterdir()} == {path.name for path in here.iterdir()}
    assert _tables(there) == _tables(here)
    # spark-submit merges both streams of the driver.
    assert "FAILED evictions>0: " in ended.stdout


def _tables(out: Path) -> tuple[list[str], list[Any]]:
    """The rows of both tables of a report."""
    intervals = duckdb.read_parquet(f"{out}/intervals/**/*.parquet", hive_partitioning=True)
    bad = [json.loads(line) for file in (out / "bad_records").glob("*.json") for line in file.read_text().splitlines()]
    for row in bad:
        # The logs are in another place.
        del row["file"]
    return sorted(str(row) for row in intervals.select(*sorted(intervals.columns)).fetchall()), bad


def test_command_runs_on_a_cluster(cluster: SparkCluster, tmp_path: Path) -> None:
    """With --master the workers read the lines; here no line is readable."""
    log = write_plain(tmp_path / "logs", "ns-1-boot-1-1.jsonl", [BAD_LINE] * 3)

    ended = _run(*_COMMAND, str(log), "--out", str(tmp_path / "report"), "--master", cluster.url, *_QUICK)

    assert ended.returncode == 2, ended.stderr
    assert _last(ended.stderr).endswith("no line of 3 could be read; is this a heartbeat log?")


def _last(text: str) -> str:
    return text.rstrip("\n").rpartition("\n")[2]


def _java_of(running: "subprocess.Popen[str]") -> list[str]:
    """The process id of the driver's Java, not of the `java` that prints its version."""
    found: list[str] = []
    for task in Path(f"/proc/{running.pid}/task").iterdir():
        # Threads and processes may end during the search.
        with suppress(FileNotFoundError, ProcessLookupError):
            children = (task / "children").read_text().split()
            found += [it for it in children if b"pyspark-shell" in Path(f"/proc/{it}/cmdline").read_bytes()]
    return found


@pytest.mark.parametrize("until", ["Java starts", "Spark works"])
def test_interrupted_run_leaves_nothing(until: str, tmp_path: Path) -> None:
    """Ctrl-C at any moment gives exit code 130, one line, no partial directory, and ends Java."""
    logs = write_log(tmp_path / "logs")
    command = [*_COMMAND, str(logs), "--out", str(tmp_path / "r"), "--master", "local[1]"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=_environ()) as running:
        try:
            if until == "Spark works":
                _wait_until(lambda: any(tmp_path.glob(".r.tmp-*/.staging/*")) or running.poll() is not None)
            _wait_until(lambda: bool(_java_of(running)) or running.poll() is not None)
            java = _java_of(running)
            running.send_signal(signal.SIGINT)
            _, printed = running.communicate(timeout=GUARD_SECONDS)
        finally:
            running.kill()

    assert running.returncode == 130, printed
    assert java
    _wait_until(lambda: not any(Path("/proc", process).exists() for process in java))
    # Java may print a line, before or after ours.
    assert printed.splitlines().count("namesrv-staleness: interrupted; nothing was written") == 1, printed
    assert "Traceback" not in printed
    assert "\tat " not in printed
    assert [path.name for path in tmp_path.iterdir()] == ["logs"]
