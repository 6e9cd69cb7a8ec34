"""Choice of the engine for a run, with its start and end."""

import errno
import importlib.util
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from namesrv_spark_jobs.command.arguments import AUTO, EMBEDDED, SPARK, Settings
from namesrv_spark_jobs.command.session import LOCAL_MASTER, SESSION_CONF, is_remote, is_submitted, spark_session
from namesrv_spark_jobs.engines.engine import Engine
from namesrv_spark_jobs.errors import EngineError, MissingPackageError, UsageError
from namesrv_spark_jobs.log_files import divided, is_url, require_utf8

if TYPE_CHECKING:
    from namesrv_spark_jobs.engines.embedded.engine import EmbeddedEngine

# Java's message for a missing class, usually of a connector that does not come with Spark
_MISSING_CLASS: Final = re.compile(r"ClassNotFoundException: (?:Class )?([\w.$]+)")
# Spark's and Hadoop's messages for a URL whose scheme they do not know, or cannot list
_UNKNOWN_SCHEME: Final = re.compile("No FileSystem for scheme|UNSUPPORTED_FILE_SYSTEM")
# DuckDB's message when a signal interrupted a query
_INTERRUPTED: Final = "Query interrupted"
# bytes of JSON; less than that is read before Java's optimising compiler pays off, and needs fewer tasks
_SMALL: Final = 400_000_000
_SOON_DONE: Final = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m",
    "spark.sql.shuffle.partitions": "4",
}
# bytes of JSON for each byte of a compressed log, about
_INFLATED: Final = 15
# the shares of the JSON's size that the engines may need on the disk of DIR; Spark's tables there are compressed
_SPILLED: Final = 0.4
_SPILLED_BY_SPARK: Final = 0.06


def _require_package(engine: str) -> None:
    """Raise UsageError, with a remedy, when the package of an engine is missing."""
    if engine == SPARK and importlib.util.find_spec("pyspark") is None:
        raise UsageError("pyspark is not installed; run pip install 'pyspark>=3.5,<5'")
    if engine == EMBEDDED and not _has_duckdb():
        raise MissingPackageError("duckdb")


@dataclass(frozen=True)
class Choice:
    """The chosen engine, and the reason in a few words."""

    name: str
    why: str
    # the approximate size of the input as JSON, in bytes
    size: int


def choose(settings: Settings, files: Sequence[str], out: Path) -> Choice:
    """The engine of --engine; with `auto`, Spark if an option demands it or duckdb is not installed.

    Raises UsageError when `auto` finds too little room for the embedded engine on the disk of `out`, and when the
    engine cannot open a file because of its name.
    """
    choice = _choice(settings, files, out)
    if choice.name == SPARK:
        _refuse_colons(files)
    # the embedded engine opens files of lines itself, whatever their names; DuckDB opens the tables
    for file in files if choice.name == SPARK else divided(files)[0]:
        require_utf8(file)
    return choice


def _refuse_colons(files: Sequence[str]) -> None:
    """Raise UsageError for a file whose name contains a colon: Spark takes it for a damaged file without a line."""
    for file in files:
        if not is_url(file) and ":" in Path(file).name:
            raise UsageError(f"{file}: Spark cannot read a file with a colon in its name; rename the file")


def _choice(settings: Settings, files: Sequence[str], out: Path) -> Choice:
    size = sum(_json_bytes(file) for file in files)
    if settings.engine != AUTO:
        return Choice(settings.engine, f"--engine {settings.engine}", size)
    for is_so, why in (
        (is_submitted(), "started by spark-submit"),
        (settings.master is not None, f"--master {settings.master}"),
        (is_remote(), "SPARK_REMOTE is set"),
        (bool(settings.conf), "--conf is given"),
        (any(is_url(file) for file in files), "an input is a URL"),
        (not _has_duckdb(), "duckdb is not installed"),
    ):
        if is_so:
            return Choice(SPARK, why, size)
    needed, room = size * _SPILLED, shutil.disk_usage(out.parent).free
    if needed > room:
        compared = f"{_shown_bytes(needed)} needed, {_shown_bytes(room)} free"
        spark = ", or --engine spark, which needs less" if size * _SPILLED_BY_SPARK < room else ""
        raise UsageError(f"--out {out}: no space left in {out.parent}: {compared}; take another disk{spark}")
    stored = sum(map(_file_bytes, files))
    why = f"{size / 1e6:,.0f} MB of log lines, {stored / 1e6:,.0f} MB as they are stored, fit on this machine"
    return Choice(EMBEDDED, why, size)


def _file_bytes(file: str) -> int:
    """Size of a file, or of a folder of tables; 0 if the file was renamed or removed."""
    path = Path(file.removeprefix("file://"))
    files = list(path.rglob("*")) if path.is_dir() else [path]
    try:
        return sum(each.stat().st_size for each in files)
    except OSError:
        return 0


def _json_bytes(file: str) -> int:
    """Approximate size of the JSON lines in a file, or in a folder of tables."""
    size = _file_bytes(file)
    return size if file.endswith((".jsonl", ".open")) else size * _INFLATED


@contextmanager
def opened(choice: Choice, settings: Settings, staging: Path, conf: Mapping[str, str]) -> Iterator[Engine]:
    """Context with the engine, which is closed at its end.

    Raises:
        EngineError: the engine failed.
        OSError: the disk is full.
        UsageError: a package, Java, the master or a connector is missing.
    """
    _require_package(choice.name)
    if choice.name == EMBEDDED:
        with embedded(staging) as engine:
            yield engine
    else:
        usual = _SOON_DONE if _is_little_for_spark(choice, settings) else {}
        with _spark(settings, staging, {**SESSION_CONF, **usual, **conf}) as engine:
            yield engine


def _shown_bytes(count: float) -> str:
    return f"{count / 1e9:,.0f} GB" if count >= 1e9 else f"{count / 1e6:,.1f} MB"  # noqa: PLR2004  # a thousand MB


def _is_little_for_spark(choice: Choice, settings: Settings) -> bool:
    return choice.size < _SMALL and (settings.master or LOCAL_MASTER).startswith("local")


def _has_duckdb() -> bool:
    return importlib.util.find_spec("duckdb") is not None


@contextmanager
def embedded(staging: Path) -> Iterator["EmbeddedEngine"]:
    """Context with the embedded engine, whose errors are EngineError, and OSError on a full disk."""
    import duckdb  # noqa: PLC0415  # not where Spark runs

    from namesrv_spark_jobs.engines.embedded.engine import EmbeddedEngine  # noqa: PLC0415  # imports duckdb

    try:
        with EmbeddedEngine(staging) as engine:
            yield engine
    except RuntimeError as error:
        if str(error) != _INTERRUPTED:
            raise
        # DuckDB turned the KeyboardInterrupt of our signal handler into a RuntimeError
        raise KeyboardInterrupt from error
    except duckdb.Error as error:
        if os.strerror(errno.ENOSPC) in str(error):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
        raise EngineError(f"DuckDB failed: {str(error).partition(chr(10))[0]}") from error


@contextmanager
def _spark(settings: Settings, staging: Path, conf: Mapping[str, str]) -> Iterator[Engine]:
    with spark_session(settings.master, conf, debug=settings.debug) as session:
        from py4j.protocol import Py4JJavaError  # noqa: PLC0415  # not where DuckDB runs
        from pyspark.errors import PySparkException  # noqa: PLC0415  # not where DuckDB runs

        from namesrv_spark_jobs.engines.spark import SparkEngine, first_line  # noqa: PLC0415  # imports pyspark

        try:
            yield SparkEngine(session, f"file://{staging}")
        except (PySparkException, Py4JJavaError) as error:
            message = first_line(error)
            if missing := _MISSING_CLASS.search(message):
                raise UsageError(
                    f"Spark lacks {missing[1]}: add its jars with --conf spark.jars.packages=...; "
                    "spark_jobs/README.md names those of s3a://"
                ) from error
            if _UNKNOWN_SCHEME.search(message):
                raise UsageError(f"Spark cannot read this URL: {message}") from error
            raise EngineError(f"Spark failed: {message}") from error
