"""The Spark session: its requirements (Java, a reachable master), its origin, and its configuration."""

import re
import socket
from contextlib import nullcontext
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from namesrv_spark_jobs.command.session import require_java, require_master, session_conf, spark_session
from namesrv_spark_jobs.errors import UsageError


@pytest.mark.parametrize(
    ("says", "message"),
    [
        # Output of Java from several vendors.
        ('openjdk version "17.0.15" 2025-04-15', None),
        ('java version "21"', None),
        ('openjdk version "23-ea"', None),
        ('java version "1.8.0_402"', "Java 17 or newer is needed, but {java} is Java 8; `make setup-spark`"),
        ('openjdk version "11.0.2"', "Java 17 or newer is needed, but {java} is Java 11; `make setup-spark`"),
        ("what version?", "{java} -version prints no version; `make setup-spark`"),
        # For example a program for another kind of machine.
        (b"\x7fELF nonsense", "{java} -version: [Errno 8] Exec format error"),
    ],
)
def test_java_that_is_too_old_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str | bytes, message: str | None
) -> None:
    """The error has one line with the remedy."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_bytes(says if isinstance(says, bytes) else f"#!/bin/sh\necho '{says}' >&2\n".encode())
    java.chmod(0o755)
    # Java in JAVA_HOME, or on the path.
    for home, path in ((str(tmp_path), "/usr/bin:/bin"), ("", f"{java.parent}")):
        monkeypatch.setenv("JAVA_HOME", home)
        monkeypatch.setenv("PATH", path)
        with (
            nullcontext()
            if message is None
            else pytest.raises(UsageError, match=f"^{re.escape(message.format(java=java))}")
        ):
            require_java()


def test_reachable_master_is_accepted() -> None:
    """One of several standalone masters must be reachable, since a standby takes over; other kinds are not checked."""
    with socket.create_server(("127.0.0.1", 0)) as master, socket.create_server(("127.0.0.1", 0)) as closed:
        port, gone = master.getsockname()[1], closed.getsockname()[1]
        closed.close()
        for url in (f"127.0.0.1:{port}", f"127.0.0.1:{gone},127.0.0.1:{port}"):
            require_master(f"spark://{url}")
    for url in ("local[2]", "yarn", "k8s://https://host"):
        require_master(url)


@pytest.mark.parametrize("address", ["", "host", "host:port", ":7077", "h:99999", "h:0", "127.0.0.1:1,host"])
def test_invalid_master_is_refused(address: str) -> None:
    """The form of the URL is checked before the connection."""
    with pytest.raises(UsageError, match=r"not of the form spark://HOST:PORT$"):
        require_master(f"spark://{address}")


def test_conf_of_the_user_wins() -> None:
    """--conf replaces our settings of a local session; options of Java are appended."""
    usual = session_conf("local[*]", {})
    conf = session_conf("local[2]", {"spark.driver.memory": "8g", "spark.driver.extraJavaOptions": "-Xss4m"})

    quiet = {"spark.driver.memory": "3g", "spark.ui.enabled": "false"}
    assert quiet.items() <= usual.items()
    assert "-Dlog4j2.configurationFile=file:///" in usual["spark.driver.extraJavaOptions"]
    assert conf["spark.driver.memory"] == "8g"
    assert conf["spark.driver.extraJavaOptions"].endswith("/log4j2.properties -Xss4m")
    # The operator of a cluster chooses memory, web UI and logging.
    cluster = session_conf("spark://host:7077", {})
    assert not {"spark.driver.memory", "spark.ui.enabled", "spark.driver.extraJavaOptions"} & cluster.keys()


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
def test_existing_session_is_used_and_left_running(spark: SparkSession) -> None:
    """The session of a notebook or of spark-submit is never stopped, and --master is ignored."""
    with spark_session("spark://nowhere:1", {}) as session:
        assert session.conf.get("spark.master") == "local[2]"

    assert spark.range(3).count() == 3


def test_master_beside_spark_connect_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """--master is refused with Spark Connect, whose server has its own master."""
    monkeypatch.setenv("SPARK_REMOTE", "sc://127.0.0.1:1")
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)

    message = "--master local[2]: SPARK_REMOTE is set, and a Spark Connect server has a master of its own"
    with pytest.raises(UsageError, match=f"^{re.escape(message)}$"), spark_session("local[2]", {}):
        raise AssertionError
