"""One Spark for all tests of the report; those that use it are of one group, so that only one worker starts it."""

import os
import sys
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from namesrv_spark_jobs.analysis import SESSION_CONF
from namesrv_spark_jobs.command.session import require_java
from namesrv_spark_jobs.errors import UsageError

_CONF = {
    **SESSION_CONF,
    # plans of a few lines are not made better while they run
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "2g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # a quarter of the time went into generating code for a few lines; the comparison with the reference runs it
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # compiling them well would take longer than running them; 48 MB, the room there is then, are filled soon
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Two cores of this machine."""
    try:
        require_java()
    except UsageError as error:
        pytest.skip(f"{error}")
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.appName("tests").master("local[2]")
    for key, value in _CONF.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


_COLLECTED = "ignore:Exception ignored in. <socket.socket:pytest.PytestUnraisableExceptionWarning"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever Spark's client brings to the driver comes through a socket that it leaves to the garbage collector."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning", _COLLECTED))
