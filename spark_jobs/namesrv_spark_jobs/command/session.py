"""The Spark session: what it needs, who chooses its master, how it is configured."""

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
MASTER_SECONDS: Final = 5.0
# the time a cluster has to give us a first executor
EXECUTOR_SECONDS: Final = 90.0
_JAVA_SECONDS: Final = 30.0
_STANDALONE: Final = re.compile(r"(?P<host>.+):(?P<port>[0-9]{1,5})")

_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
# what the analysis relies on, wherever it runs
_ALWAYS: Final = {
    "spark.sql.session.timeZone": "UTC",
    # a report is a handful of rows; 200 tasks for each of them is what takes the time
    "spark.sql.adaptive.enabled": "true",
    # the place in our code of every single column would be looked up, and errors told twice
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
# What a session is best built with: about time, not about results. The user's own word comes after it.
SESSION_CONF: Final[Mapping[str, str]] = {
    "spark.sql.shuffle.partitions": "64",
    # lines are written into their parts as they come, and not sorted by part before
    "spark.sql.maxConcurrentOutputFileWriters": "16",
    # closed logs are compressed and cannot be split: a few of them to a task, so that no core waits for a long one
    "spark.sql.files.maxPartitionBytes": "12m",
    "spark.sql.files.openCostInBytes": "1m",
    # the beats of a broker are walked through in memory, and sorted a second time only when there are very many
    "spark.sql.windowExec.buffer.in.memory.threshold": "100000",
    # intermediate tables live for minutes
    "spark.sql.parquet.compression.codec": "lz4_raw",
    # listing files with tasks pays for thousands of them on an object store, not for hundreds
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000",
}
# what is good for a process of its own on one machine
_LOCAL: Final = {
    "spark.driver.memory": "3g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # few cores with much to do: collecting in parallel, when there is need, beats Java's usual way by a tenth
    _JAVA_OPTIONS: "-XX:+UseParallelGC",
}


def require_java(environ: Mapping[str, str] = os.environ) -> None:
    """Raise UsageError, with what to do, when the `java` that Spark's launcher will take is missing or too old."""
    home, remedy = environ.get("JAVA_HOME"), "`make setup-spark` installs it, or set JAVA_HOME"
    java = shutil.which(str(Path(home, "bin", "java"))) if home else shutil.which("java", path=environ.get("PATH"))
    try:
        # Spark 4 needs Java 17, Spark 3.5 is content with 8
        needed = 17 if int(version("pyspark").partition(".")[0]) >= 4 else 8  # noqa: PLR2004
    except PackageNotFoundError:
        # a Spark distribution on PYTHONPATH; it says itself what it lacks
        needed = 8
    if java is None:
        raise UsageError(f"Java {needed} or newer is needed, but `java` was not found; {remedy}")
    try:
        said = subprocess.run(  # noqa: S603  # the user's own Java
            [java, "-version"], capture_output=True, text=True, timeout=_JAVA_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"{java} -version: {error}; {remedy}") from error
    # 17 of `openjdk version "17.0.15"`, 8 of `java version "1.8.0_402"`
    match = re.search(r'version "(?:1\.)?(\d+)', said.stderr + said.stdout)
    if match is None:
        raise UsageError(f"{java} -version does not say which Java it is; {remedy}")
    if int(match[1]) < needed:
        raise UsageError(f"Java {needed} or newer is needed, but {java} is Java {match[1]}; {remedy}")


def require_master(master: str, *, seconds: float = MASTER_SECONDS) -> None:
    """Dial a standalone master, or raise UsageError: Spark itself would go on for a minute before it says anything."""
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
            with socket.create_connection((host, port), timeout=seconds):
                return
        except OSError as error:
            refusals.append(f"{host}:{port} {error.strerror or error}")
    raise UsageError(f"--master {master}: {'; '.join(refusals)}")


def is_submitted(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether spark-submit started this process: then the master is its business, and is never set here."""
    return "PYSPARK_GATEWAY_PORT" in environ


@contextmanager
def spark_session(master: str | None, conf: Mapping[str, str], *, debug: bool = False) -> Iterator["SparkSession"]:
    """A session, stopped at the end unless it was there before. Raises UsageError without pyspark, Java or a master."""
    from pyspark.sql import SparkSession  # noqa: PLC0415  # half a gigabyte, installed with the extra only

    existing = SparkSession.getActiveSession()
    if existing is not None:
        yield existing
        return
    master = master or LOCAL_MASTER
    ours = None if is_submitted() else _builder(master, conf, debug=debug)
    with _begun(SparkSession.builder if ours is None else ours) as session:
        if ours is None:
            _set(session, conf)
        elif not master.startswith("local"):
            _require_executor(session, master)
        yield session


@contextmanager
def _begun(builder: "SparkSession.Builder") -> Iterator["SparkSession"]:
    """The session of a builder, stopped at the end.

    It begins in another thread, which a signal does not reach: a Java that is given up while it starts fails with its
    trace and never ends, and in the main thread pyspark would take SIGINT for itself, and break off its own calls.
    """
    with ThreadPoolExecutor(1, "spark-begins") as pool:
        beginning = pool.submit(builder.getOrCreate)
        try:
            yield beginning.result()
        except BaseException:
            # an interruption may come as an error of pyspark's
            if beginning.exception() is None:
                _silence(beginning.result())
            raise
        finally:
            if beginning.exception() is None:
                _stop(beginning.result())


def _silence(session: "SparkSession") -> None:
    """That its tasks fail now is no news."""
    with suppress(Exception):
        session.sparkContext.setLogLevel("OFF")


def _stop(session: "SparkSession") -> None:
    """Stop Spark; one that is gone already is no reason to hide why we stop."""
    with suppress(Exception):
        session.stop()


def session_conf(master: str, conf: Mapping[str, str], *, debug: bool = False) -> dict[str, str]:
    """The configuration of a session of our own; what the user says wins, and options of Java come after ours."""
    ours = {**_ALWAYS, **(_LOCAL if master.startswith("local") else {})}
    logging = Path(__file__).with_name("log4j2.properties")
    if _JAVA_OPTIONS in ours and not debug and logging.is_file():
        # Spark's own start-up lines and warnings would bury ours: this file shows errors only
        ours[_JAVA_OPTIONS] += f" -Dlog4j2.configurationFile={logging.as_uri()}"
    options = " ".join(each[_JAVA_OPTIONS] for each in (ours, conf) if _JAVA_OPTIONS in each)
    return {**ours, **conf, **({_JAVA_OPTIONS: options} if options else {})}


def _set(session: "SparkSession", conf: Mapping[str, str]) -> None:
    """What spark-submit was told stays as it is; the rest of ours is set where it can still be."""
    # a driver that spark-submit starts is no Spark Connect client: it has a context
    told = session.sparkContext.getConf()
    for key, value in {**_ALWAYS, **conf}.items():
        if not told.contains(key) and session.conf.isModifiable(key):
            session.conf.set(key, value)


def _builder(master: str, conf: Mapping[str, str], *, debug: bool) -> "SparkSession.Builder":
    """A session of our own is made by it. Raises UsageError without Java or a master."""
    from pyspark.sql import SparkSession  # noqa: PLC0415  # see spark_session

    # workers on this machine would otherwise take whatever `python3` is
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    require_java()
    require_master(master)
    builder = SparkSession.builder.appName(PROGRAM).master(master)
    for key, value in session_conf(master, conf, debug=debug).items():
        builder = builder.config(key, value)
    return builder


def _require_executor(session: "SparkSession", master: str) -> None:
    """Run the smallest job, or raise UsageError: a cluster without a free worker would let us wait for ever."""
    done = threading.Event()

    def probe() -> None:
        # an error shows itself again, and better, in the first real job
        with suppress(Exception):
            session.range(1).count()
        done.set()

    threading.Thread(target=probe, name="first-job", daemon=True).start()
    if not done.wait(EXECUTOR_SECONDS):
        raise UsageError(f"--master {master}: no executor within {EXECUTOR_SECONDS:g} s; is a worker running and free?")
