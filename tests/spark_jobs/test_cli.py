"""Options of the command, and errors that are found before Spark starts."""

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from namesrv_spark_jobs.command.cli import _interruptible, main
from tests.support.fake_clock import GUARD_SECONDS
from tests.support.spark_logs import SMALL_GRID, write_log

ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-m", "namesrv_spark_jobs")
_REMEDY = "in a clone make setup brings it, elsewhere pip install -r namesrv-report.txt of make dist"
# The command in an environment without a package.
_WITHOUT = """
import importlib.util as u, sys
find = u.find_spec
u.find_spec = lambda name, *rest: None if name == "{package}" else find(name, *rest)
sys.modules["{package}"] = None
from namesrv_spark_jobs.command.cli import main
sys.exit(main())
"""


def _run(*arguments: str, command: tuple[str, ...] = COMMAND, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run the command with changes to its environment."""
    env = {**os.environ, "PYTHONPATH": str(ROOT / "spark_jobs"), **environ}
    return subprocess.run(
        [*command, *arguments], capture_output=True, text=True, timeout=GUARD_SECONDS, check=False, env=env
    )


@pytest.fixture
def log(tmp_path: Path) -> str:
    """A file that looks like a log."""
    file = tmp_path / "a.jsonl"
    file.write_text("{}\n")
    return str(file)


def code_of(argv: list[str]) -> int:
    """The exit code of the command in this process, also if argparse raises SystemExit."""
    try:
        return main(argv)
    except SystemExit as ended:
        return int(ended.code or 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--what-if", "expiry=fast"], "argument --what-if: expiry: 'fast' is not a number"),
        (["--fail-if", "p98>1"], "argument --fail-if: 'p98' is not a measure"),
        (["--poll", "0"], "argument --poll: '0' is not a number of seconds from 0.001 to 86,400"),
        (["--max-bad-ratio", "2"], "argument --max-bad-ratio: '2' is not a ratio from 0 to 1"),
        (["--since", "soon"], "argument --since: not a valid time: 'soon'"),
        (["--conf", "spark.x"], "argument --conf: 'spark.x' is not KEY=VALUE"),
        (["--clustr", "c1"], "unrecognized arguments: --clustr c1"),
        (["--since", "2026-03-02", "--until", "2026-03-01"], "--until is not after --since"),
        (["--deploy-mode", "cluster"], "--deploy-mode cluster needs spark-submit; --print-submit"),
        (["--master", "spark://127.0.0.1:1"], "--master spark://127.0.0.1:1: 127.0.0.1:1 Connection refused\n"),
        (["--follow"], "--follow takes a directory of closed logs"),
        (["--follow", "--redact"], "--redact cannot be combined with --follow, which keeps unredacted lines in --out"),
        (["--fail-if", "false>nan"], "argument --fail-if: 'false>nan': 'nan' is not a number"),
        (["--engine", "embedded", "--master", "yarn"], "--master and --conf cannot be combined with --engine embedded"),
    ],
)
def test_wrong_option_is_named(
    log: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    """The error names the option, the exit code is 2, and no directory is made."""
    assert code_of([log, "--out", str(tmp_path / "report"), *options]) == 2

    assert message in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


@pytest.mark.parametrize(
    ("given", "command", "message"),
    [
        ("{tmp}/logs", COMMAND, "{tmp}/logs: no such file or directory"),
        (
            "{tmp}/a.jsonl --engine spark",
            COMMAND,
            "Java 17 or newer is needed, but `java` was not found; `make setup-spark` installs it, or set JAVA_HOME",
        ),
        # The base package does not depend on PySpark, which has half a gigabyte.
        (
            "{tmp}/a.jsonl --engine spark",
            (sys.executable, "-c", _WITHOUT.format(package="pyspark")),
            "pyspark is not installed; run pip install 'pyspark>=3.5,<5'",
        ),
        (
            "{tmp}/a.jsonl --engine embedded",
            (sys.executable, "-c", _WITHOUT.format(package="duckdb")),
            f"duckdb is not installed; {_REMEDY}",
        ),
        (
            "{tmp}/a.jsonl",
            (sys.executable, "-c", _WITHOUT.format(package="jinja2")),
            f"jinja2 is not installed; {_REMEDY}",
        ),
    ],
    ids=["input", "java", "pyspark", "duckdb", "jinja2"],
)
@pytest.mark.usefixtures("log")
def test_missing_requirement_is_one_line(tmp_path: Path, given: str, command: tuple[str, ...], message: str) -> None:
    """The message has one line with a remedy; a missing path is found before Java starts."""
    out = str(tmp_path / "report")
    ended = _run(
        *given.format(tmp=tmp_path).split(), "--out", out, "--quiet", command=command, PATH="/nowhere", JAVA_HOME=""
    )

    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == f"namesrv-staleness: {message.format(tmp=tmp_path)}\n"
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


@pytest.mark.parametrize(
    ("redirection", "gate", "code", "message"),
    [
        (">&-", "p99>10m", 1, "standard output: bad file descriptor"),
        (">/dev/full", "p99>1", 1, "standard output: no space left on device"),
        ("| true", "p99>10m", 0, ""),
        ("2>&-", "p99>10m", 0, ""),
        ("2>/dev/full", "p99>10m", 0, ""),
    ],
)
def test_failing_output_leaves_the_report(tmp_path: Path, redirection: str, gate: str, code: int, message: str) -> None:
    """The error has one line, and a failed gate still fails the command."""
    logs, out = write_log(tmp_path / "logs"), tmp_path / "report"
    words = [*COMMAND, str(logs), "--out", str(out), "--engine", "embedded", "--what-if", SMALL_GRID, "--fail-if", gate]
    # The exit code of the command, not of the reader of the pipe.
    script = f"set -o pipefail; {shlex.join(words)} {redirection}"

    ended = _run("-c", script, command=("bash",))

    assert ended.returncode == code
    assert message in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ("FAILED" in ended.stderr) == (gate == "p99>1")
    assert (out / "report.html").is_file()
    assert [gate == "p99>1"] == [each["failed"] for each in json.loads((out / "run.json").read_text())["gates"]]


def test_submit_line_does_the_same(log: str, tmp_path: Path) -> None:
    """Options for Spark come before the entry point, other options after it in their order; nothing else happens."""
    odd = str(tmp_path / "re port")
    options = ["--conf", "spark.x=a b", "--cluster", "c1", "--master", "spark://h:7077", "--fail-if", "p99>45"]

    shown = _run(log, "--out", odd, *options, "--conf", "spark.y=1", "--print-submit", PATH="/nowhere")

    assert (shown.returncode, shown.stderr) == (0, "")
    assert [
        *("spark-submit", "--master", "spark://h:7077", "--conf", "spark.x=a b", "--conf", "spark.y=1"),
        *("--py-files", str(ROOT / "dist/namesrv_spark_jobs.zip"), str(ROOT / "spark_jobs/stale_routes.py")),
        *(log, "--out", odd, "--cluster", "c1", "--fail-if", "p99>45"),
    ] == shlex.split(shown.stdout)
    # The default master is local[*]; for a cluster the line names the mode.
    shown = _run(log, "--out", odd, "--deploy-mode", "cluster", "--print-submit")
    assert shlex.split(shown.stdout)[:5] == ["spark-submit", "--master", "local[*]", "--deploy-mode", "cluster"]
    assert not Path(odd).exists()


def test_failure_after_an_interruption_is_an_interruption() -> None:
    """After an interrupted call to Java, pyspark's clean-up, another call to Java, fails."""

    @_interruptible()
    def run() -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            raise RuntimeError("broken off")

    with pytest.raises(KeyboardInterrupt):
        run()


def test_interrupted_import_has_our_exit_code(log: str, tmp_path: Path) -> None:
    """Ctrl-C may arrive while an imported package compiles a class from text, as dataclasses do."""
    packages = tmp_path / "packages"
    packages.mkdir()
    (packages / "jinja2.py").write_text("exec('import signal; signal.raise_signal(signal.SIGINT)')")

    ended = _run(log, "--out", str(tmp_path / "r"), PYTHONPATH=f"{packages}{os.pathsep}{ROOT / 'spark_jobs'}")

    assert (ended.returncode, ended.stderr) == (130, "namesrv-staleness: interrupted; nothing was written\n")
