"""The Spark session: where it comes from, and who chooses its master."""

import pytest
from pyspark.sql import SparkSession

from namesrv_spark_jobs.command.session import is_submitted, session_conf, spark_session


def test_local_session_is_small_and_quiet() -> None:
    """Three gigabytes, no web page, UTC, and a logging file of ours."""
    conf = session_conf("local[*]", {})

    assert ("3g", "false", "UTC") == (
        conf["spark.driver.memory"],
        conf["spark.ui.enabled"],
        conf["spark.sql.session.timeZone"],
    )
    assert "-Dlog4j2.configurationFile=file:///" in conf["spark.driver.extraJavaOptions"]


def test_user_has_the_last_word() -> None:
    """Options of Java are added to ours, everything else replaces it."""
    conf = session_conf("local[2]", {"spark.driver.memory": "8g", "spark.driver.extraJavaOptions": "-Xss4m"})

    assert "8g" == conf["spark.driver.memory"]
    assert conf["spark.driver.extraJavaOptions"].endswith("/log4j2.properties -Xss4m")


def test_cluster_keeps_its_own_settings() -> None:
    """Memory, web page and logging are whoever runs it to choose."""
    conf = session_conf("spark://host:7077", {})

    assert not {"spark.driver.memory", "spark.ui.enabled", "spark.driver.extraJavaOptions"} & conf.keys()


@pytest.mark.parametrize(("environ", "submitted"), [({}, False), ({"PYSPARK_GATEWAY_PORT": "4711"}, True)])
def test_spark_submit_is_known_by_the_gateway_it_opens(environ: dict[str, str], submitted: bool) -> None:  # noqa: FBT001 - a parameter
    """It says so to the Python that it starts."""
    assert is_submitted(environ) is submitted


@pytest.mark.xdist_group("spark")
def test_session_that_is_there_is_used_and_left_running(spark: SparkSession) -> None:
    """A notebook's, say: it is not ours to stop, whatever master is asked for."""
    with spark_session("spark://nowhere:1", {}) as session:
        assert "local[2]" == session.conf.get("spark.master")

    assert 3 == spark.range(3).count()
