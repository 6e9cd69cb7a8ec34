"""Both engines for tests of the report.

There is one Spark for all of them; those that use it are of one group, so that only one worker starts it.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from namesrv_spark_jobs.command.session import SESSION_CONF, require_java
from namesrv_spark_jobs.engines.embedded.engine import EmbeddedEngine
from namesrv_spark_jobs.engines.engine import Engine
from namesrv_spark_jobs.engines.spark import SparkEngine
from namesrv_spark_jobs.errors import UsageError

_CONF = {
    **SESSION_CONF,
    # Adaptive execution does not pay for a few lines.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "2g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Generating code took a quarter of the time; the comparison with the reference tests generated code.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # C2 would compile for longer than the code runs. Without C2 the code cache has only 48 MB, which is too small.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A local Spark session with two cores."""
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


_GROUP = pytest.mark.xdist_group("spark")


@pytest.fixture(params=["embedded", pytest.param("spark", marks=[pytest.mark.slow, _GROUP])])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """An engine without stored tables."""
    if request.param == "embedded":
        with EmbeddedEngine(tmp_path / "staging") as made:
            yield made
    else:
        yield SparkEngine(request.getfixturevalue("spark"), f"file://{tmp_path}/staging")


_COLLECTED = "ignore:Exception ignored in. <socket.socket:pytest.PytestUnraisableExceptionWarning"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ignore warnings of unclosed sockets: Spark's client leaves the sockets of its rows to the garbage collector."""
    for item in items:
        if isinstance(item, pytest.Function) and ("spark" in item.fixturenames or "spark" in _params(item)):
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning", _COLLECTED))


def _params(item: pytest.Function) -> list[object]:
    return list(item.callspec.params.values()) if hasattr(item, "callspec") else []
