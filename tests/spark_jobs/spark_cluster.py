"""A Spark cluster for tests: a master and two workers, as processes of their own on loopback."""

import re
import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

import pyspark

from tests.support.printing_process import PrintingProcess

SPARK_HOME: Final = Path(pyspark.__file__).parent
_MASTER: Final = "org.apache.spark.deploy.master.Master"
_WORKER: Final = "org.apache.spark.deploy.worker.Worker"
_WORKERS: Final = 2
# three Java processes start at once on a busy machine
START_SECONDS: Final = 240.0


class SparkCluster:
    """Spark's standalone master and workers, as a context manager that stops all of them at its end."""

    def __init__(self, work: Path) -> None:
        # working directory of the workers
        self._work = work
        # stops every started process
        self._running = ExitStack()
        self.url = ""

    def __enter__(self) -> Self:
        with ExitStack() as starting:
            self._running = starting
            self._work.mkdir(parents=True, exist_ok=True)
            (self._work / "log4j2.properties").write_text(_LOGGING)
            line = self._start("master", _MASTER).wait_for("Starting Spark master at spark://", within=START_SECONDS)
            self.url = _found(r"(spark://127\.0\.0\.1:\d+)", line)
            flags = (_WORKER, "--cores", "1", "--memory", "1g", "--work-dir")
            names = [f"worker-{number}" for number in range(_WORKERS)]
            for worker in [self._start(name, *flags, str(self._work / name), self.url) for name in names]:
                worker.wait_for("Successfully registered with master", within=START_SECONDS)
            self._running = starting.pop_all()
        return self

    def __exit__(self, *raised: object) -> None:
        self._running.close()

    def _start(self, name: str, java_class: str, *arguments: str) -> PrintingProcess:
        (core,) = (SPARK_HOME / "jars").glob("spark-core_*.jar")
        logging = f"-Dlog4j2.configurationFile={self._work / 'log4j2.properties'}"
        process = PrintingProcess(
            *(shutil.which("java") or "java", "-Xmx384m", "-XX:+UseSerialGC", logging, *_OPENS),
            *("-cp", f"{SPARK_HOME}/jars/*", java_class, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"),
            *arguments,
            SPARK_LOCAL_IP="127.0.0.1",
            SPARK_LOCAL_DIRS=str(self._work / f"{name}-scratch"),
            SPARK_HOME=str(SPARK_HOME),
            # workers launch executors by it, and look for a build of Spark without it
            SPARK_SCALA_VERSION=_found(r"spark-core_([0-9.]+)-", core.name),
        )
        return self._running.enter_context(process)


def _found(pattern: str, line: str) -> str:
    match = re.search(pattern, line)
    assert match is not None, line
    return match[1]


# the packages that Spark's launcher opens
_OPENS: Final = [
    f"--add-opens=java.base/{package}=ALL-UNNAMED"
    for package in ("java.lang", "java.lang.invoke", "java.io", "java.net", "java.nio", "java.util", "sun.nio.ch")
]
_LOGGING: Final = """\
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %p %m%n
"""
