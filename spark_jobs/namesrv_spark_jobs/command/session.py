"""The Spark session: its requirements, its master and its configuration."""

import os
import re
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Final

from namesrv_spark_jobs.errors import PROGRAM, UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL_MASTER: Final = "local[*]"
_MASTER_SECONDS: Final = 5.0
# the time within which a cluster has to start a first executor
_EXECUTOR_SECONDS: Final = 90.0
_JAVA_SECONDS: Final = 30.0
_STANDALONE: Final = re.compile(r"(?P<host>.+):(?P<port>[0-9]{1,5})")

_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
# settings that the analysis relies on everywhere
_ALWAYS: Final = {
    # tables of a handful of rows would otherwise take 200 tasks each
    "spark.sql.adaptive.enabled": "true",
    # otherwise Spark looks up the line of code of every column, and reports errors twice
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
# Settings for speed, which do not change results; --conf overrides them.
SESSION_CONF: Final[Mapping[str, str]] = {
    "spark.sql.shuffle.partitions": "64",
    # rows are written into their partitions as they come, without a sort by partition
    "spark.sql.maxConcurrentOutputFileWriters": "16",
    # Compressed logs cannot be split. With a few of them in a task, no core waits long for the last task.
    "spark.sql.files.maxPartitionBytes": "12m",
    "spark.sql.files.openCostInBytes": "1m",
    # windows over the heartbeats of a broker stay in memory unless there are very many
    "spark.sql.windowExec.buffer.in.memory.threshold": "100000",
    # a fast codec, since intermediate tables are kept for minutes only
    "spark.sql.parquet.compression.codec": "lz4_raw",
    # listing files with tasks pays off for thousands of files on an object store, not for hundreds
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000",
}
# settings for a Spark of our own on one machine
_LOCAL: Final = {
    "spark.driver.memory": "3g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # a tenth faster than Java's default garbage collector on few busy cores
    _JAVA_OPTIONS: "-XX:+UseParallelGC",
}


def require_java() -> None:
    """Raise UsageError, with a remedy, when the `java` that Spark's launcher will use is missing or too old."""
    home, remedy = os.environ.get("JAVA_HOME"), "`make setup-spark` installs it, or set JAVA_HOME"
    java = shutil.which(str(Path(home, "bin", "java"))) if home else shutil.which("java")
    try:
        # Spark 4 needs Java 17, Spark 3.5 needs Java 8
        needed = 17 if int(version("pyspark").partition(".")[0]) >= 4 else 8  # noqa: PLR2004
    except PackageNotFoundError:
        # a Spark distribution on PYTHONPATH, of unknown version, which reports a Java that is too old itself
        needed = 8
    if java is None:
        raise UsageError(f"Java {needed} or newer is needed, but `java` was not found; {remedy}")
    try:
        shown = subprocess.run(  # noqa: S603  # the user's own Java
            [java, "-version"], capture_output=True, text=True, timeout=_JAVA_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"{java} -version: {error}; {remedy}") from error
    # 17 of `openjdk version "17.0.15"`, 8 of `java version "1.8.0_402"`
    match = re.search(r'version "(?:1\.)?(\d+)', shown.stderr + shown.stdout)
    if match is None:
        raise UsageError(f"{java} -version prints no version; {remedy}")
    if int(match[1]) < needed:
        raise UsageError(f"Java {needed} or newer is needed, but {java} is Java {match[1]}; {remedy}")


def require_master(master: str) -> None:
    """Connect to a standalone master, or raise UsageError: Spark would try for a minute without a message."""
    if not master.startswith("spark://"):
        return
    addresses = []
    for part in master.removeprefix("spark://").split(","):
        match = _STANDALONE.fullmatch(part)
        if match is None or not 0 < int(match["port"]) < 1 << 16:
            raise UsageError(f"--master {master}: not of the form spark://HOST:PORT")
        addresses.append((match["host"].strip("[]"), int(match["port"])))
    refusals = []
    for host, port in addresses:
        try:
            with socket.create_connection((host, port), timeout=_MASTER_SECONDS):
                return
        except OSError as error:
            refusals.append(f"{host}:{port} {error.strerror or error}")
    raise UsageError(f"--master {master}: {'; '.join(refusals)}")


def is_submitted() -> bool:
    """True if spark-submit started this process; spark-submit has chosen the master then, so it is not set here."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def is_remote() -> bool:
    """True if Spark's own variable `SPARK_REMOTE` has the address of a Spark Connect server, which has the session."""
    return bool(os.environ.get("SPARK_REMOTE"))


@contextmanager
def spark_session(master: str | None, conf: Mapping[str, str], *, debug: bool = False) -> Iterator["SparkSession"]:
    """Context with a session, stopped at its end unless it existed before.

    Raises UsageError without pyspark, Java or a master, or with a master beside a Spark Connect server.
    """
    from pyspark.sql import SparkSession  # noqa: PLC0415  # half a gigabyte, installed with the extra only

    existing = SparkSession.getActiveSession()
    if existing is not None:
        yield existing
        return
    if is_remote() and master is not None:
        raise UsageError(f"--master {master}: SPARK_REMOTE is set, and a Spark Connect server has a master of its own")
    master = master or LOCAL_MASTER
    ours = None if is_submitted() or is_remote() else _builder(master, conf, debug=debug)
    with _begun(SparkSession.builder if ours is None else ours) as session:
        if ours is None:
            _set(session, conf)
        elif not master.startswith("local"):
            _require_executor(session, master)
        yield session


@contextmanager
def _begun(builder: "SparkSession.Builder") -> Iterator["SparkSession"]:
    """Context with the session of a builder, stopped at its end.

    The session is built in another thread, which signals do not reach. An interruption while Java starts would leave a
    Java that prints a stack trace and never ends, and in the main thread pyspark would install a handler for SIGINT
    that cancels its own calls.
    """
    with ThreadPoolExecutor(1, "spark-begins") as pool:
        beginning = pool.submit(builder.getOrCreate)
        try:
            yield beginning.result()
        except BaseException:
            # an interruption may also appear as an error of pyspark's, so Spark's log ends after any exception
            if beginning.exception() is None:
                _silence(beginning.result())
            raise
        finally:
            if beginning.exception() is None:
                _stop(beginning.result())


def _silence(session: "SparkSession") -> None:
    """Switch off Spark's log, since the failures of its tasks are expected now."""
    with suppress(Exception):
        session.sparkContext.setLogLevel("OFF")


def _stop(session: "SparkSession") -> None:
    """Stop Spark. An error, as of a Spark that has ended already, must not hide the exception that ends the run."""
    with suppress(Exception):
        session.stop()


def session_conf(master: str, conf: Mapping[str, str], *, debug: bool = False) -> dict[str, str]:
    """The configuration of a session of our own. The user's `conf` wins; the user's Java options follow ours."""
    ours = {**_ALWAYS, **(_LOCAL if master.startswith("local") else {})}
    logging = Path(__file__).with_name("log4j2.properties")
    if _JAVA_OPTIONS in ours and not debug and logging.is_file():
        # Spark's own start-up lines and warnings would bury ours: this file shows errors only
        ours[_JAVA_OPTIONS] += f" -Dlog4j2.configurationFile={logging.as_uri()}"
    options = " ".join(each[_JAVA_OPTIONS] for each in (ours, conf) if _JAVA_OPTIONS in each)
    return {**ours, **conf, **({_JAVA_OPTIONS: options} if options else {})}


def _set(session: "SparkSession", conf: Mapping[str, str]) -> None:
    """Set the settings that spark-submit did not set, as far as they can be changed in a running session.

    In a session of a Spark Connect server all settings are set that can be changed.
    """
    # A client of Spark Connect has no sparkContext, and cannot find out what the server's own spark-submit has set.
    submitted = None if is_remote() else session.sparkContext.getConf()
    for key, value in {**_ALWAYS, **conf}.items():
        is_set = submitted is not None and submitted.contains(key)
        if not is_set and session.conf.isModifiable(key):
            session.conf.set(key, value)


def _builder(master: str, conf: Mapping[str, str], *, debug: bool) -> "SparkSession.Builder":
    """The builder of a session of our own. Raises UsageError without Java or a master."""
    from pyspark.sql import SparkSession  # noqa: PLC0415  # see spark_session

    # workers on this machine would otherwise use any `python3` of the PATH
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    require_java()
    require_master(master)
    builder = SparkSession.builder.appName(PROGRAM).master(master)
    for key, value in session_conf(master, conf, debug=debug).items():
        builder = builder.config(key, value)
    return builder


def _require_executor(session: "SparkSession", master: str) -> None:
    """Run the smallest job, or raise UsageError: with a cluster without a free worker we would wait for ever."""
    done = threading.Event()

    def probe() -> None:
        # an error occurs again, with a better message, in the first real job
        with suppress(Exception):
            session.range(1).count()
        done.set()

    threading.Thread(target=probe, name="first-job", daemon=True).start()
    if not done.wait(_EXECUTOR_SECONDS):
        raise UsageError(
            f"--master {master}: no executor within {_EXECUTOR_SECONDS:g} s; is a worker running and free?"
        )
