"""Where does the SparkSession come from, and who may choose its master?"""

import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from namesrv_spark_jobs.command.jvm_noise import without_noise
from namesrv_spark_jobs.command.preconditions import require_java, require_master, require_pyspark
from namesrv_spark_jobs.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

APP_NAME: Final = "namesrv-staleness"
LOCAL_MASTER: Final = "local[*]"
# the time a cluster has to give us a first executor
EXECUTOR_SECONDS: Final = 90.0

_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
# what the analysis relies on, wherever it runs
_ALWAYS: Final = {
    "spark.sql.session.timeZone": "UTC",
    # a report is a handful of rows; 200 tasks for each of them is what takes the time
    "spark.sql.adaptive.enabled": "true",
    # the place in our code of every single column would be looked up, and errors told twice
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
# few cores with much to do: collecting in parallel, when there is need, beats Java's usual way by a tenth
_GARBAGE: Final = "-XX:+UseParallelGC"
# what is good for a process of its own on one machine
_LOCAL: Final = {
    "spark.driver.memory": "3g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def is_submitted(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether spark-submit started this process: then the master is its business, and is never set here."""
    return "PYSPARK_GATEWAY_PORT" in environ


@contextmanager
def spark_session(master: str | None, conf: Mapping[str, str]) -> Iterator["SparkSession"]:
    """A session that is stopped at the end, unless it was there before.

    Raises:
        UsageError: pyspark or Java is missing, or the master does not answer.
    """
    require_pyspark()
    from pyspark.sql import SparkSession  # noqa: PLC0415  # half a gigabyte, installed with the extra only

    existing = SparkSession.getActiveSession()
    if existing is not None:
        yield existing
        return
    session = _submitted(conf) if is_submitted() else _own(master or LOCAL_MASTER, conf)
    try:
        yield session
    finally:
        stop(session)


def stop(session: "SparkSession") -> None:
    """Stop Spark; one that is gone already is no reason to hide why we stop."""
    with suppress(Exception):
        session.stop()


def session_conf(master: str, conf: Mapping[str, str]) -> dict[str, str]:
    """The configuration of a session of our own; what the user says wins, and options of Java come after ours."""
    ours = {**_ALWAYS, **(_local_conf() if master.startswith("local") else {})}
    options = " ".join(each[_JAVA_OPTIONS] for each in (ours, conf) if _JAVA_OPTIONS in each)
    return {**ours, **conf, **({_JAVA_OPTIONS: options} if options else {})}


def _local_conf() -> dict[str, str]:
    """Spark's own start-up lines and warnings would bury ours: only errors are shown, by a logging file of ours."""
    logging = Path(__file__).with_name("log4j2.properties")
    if not logging.is_file():
        return {**_LOCAL, _JAVA_OPTIONS: _GARBAGE}
    return {**_LOCAL, _JAVA_OPTIONS: f"{_GARBAGE} -Dlog4j2.configurationFile={logging.as_uri()}"}


def _submitted(conf: Mapping[str, str]) -> "SparkSession":
    """What spark-submit was told stays as it is; the rest of ours is set where it can still be."""
    from pyspark.sql import SparkSession  # noqa: PLC0415  # see spark_session

    session = SparkSession.builder.getOrCreate()
    # a driver that spark-submit starts is no Spark Connect client: it has a context
    told = session.sparkContext.getConf()
    for key, value in {**_ALWAYS, **conf}.items():
        if not told.contains(key) and session.conf.isModifiable(key):
            session.conf.set(key, value)
    return session


def _own(master: str, conf: Mapping[str, str]) -> "SparkSession":
    from pyspark.sql import SparkSession  # noqa: PLC0415  # see spark_session

    # workers on this machine would otherwise take whatever `python3` is
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    require_java()
    require_master(master)
    builder = SparkSession.builder.appName(APP_NAME).master(master)
    with without_noise():
        session = _configured(builder, session_conf(master, conf)).getOrCreate()
    if not master.startswith("local"):
        _require_executor(session, master)
    return session


def _configured(builder: "SparkSession.Builder", conf: Mapping[str, str]) -> "SparkSession.Builder":
    for key, value in conf.items():
        builder = builder.config(key, value)
    return builder


def _require_executor(session: "SparkSession", master: str) -> None:
    """Run the smallest job: a cluster without a free worker would let us wait for ever.

    Raises:
        UsageError: it did not end in time.
    """
    done = threading.Event()

    def probe() -> None:
        # an error shows itself again, and better, in the first real job
        with suppress(Exception):
            session.range(1).count()
        done.set()

    threading.Thread(target=probe, name="first-job", daemon=True).start()
    if not done.wait(EXECUTOR_SECONDS):
        stop(session)
        raise UsageError(f"--master {master}: no executor within {EXECUTOR_SECONDS:g} s; is a worker up and free?")
