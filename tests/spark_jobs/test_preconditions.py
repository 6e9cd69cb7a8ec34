"""What Spark needs: Java, and a master that answers."""

import socket
from pathlib import Path

import pytest

from namesrv_spark_jobs.command.session import require_java, require_master
from namesrv_spark_jobs.errors import UsageError


def _java(folder: Path, says: str) -> dict[str, str]:
    """A Java of some version, in a JAVA_HOME of its own."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    java.chmod(0o755)
    return {"JAVA_HOME": str(folder), "PATH": "/usr/bin:/bin"}


@pytest.mark.parametrize(
    "says", ['openjdk version "17.0.15" 2025-04-15', 'java version "21"', 'openjdk version "23-ea"']
)
def test_java_that_is_new_enough_will_do(tmp_path: Path, says: str) -> None:
    """Whoever made it."""
    require_java(_java(tmp_path, says))


@pytest.mark.parametrize(
    ("says", "said"),
    [
        ('java version "1.8.0_402"', r"^Java 17 or newer is needed, but .*/bin/java is Java 8; `make setup-spark`"),
        ('openjdk version "11.0.2"', r"is Java 11; `make setup-spark`"),
        ("what version?", r"-version does not say which Java it is"),
    ],
)
def test_java_that_is_too_old_is_named(tmp_path: Path, says: str, said: str) -> None:
    """With what to do."""
    with pytest.raises(UsageError, match=said):
        require_java(_java(tmp_path, says))


def test_missing_java_is_one_line_with_the_remedy(tmp_path: Path) -> None:
    """On the path, or where JAVA_HOME points to."""
    for environ in ({"PATH": str(tmp_path)}, {"PATH": str(tmp_path), "JAVA_HOME": str(tmp_path)}):
        with pytest.raises(UsageError) as raised:
            require_java(environ)
        assert str(raised.value).startswith("Java 17 or newer is needed, but `java` was not found; `make setup-spark`")


def test_java_that_cannot_run_is_named(tmp_path: Path) -> None:
    """A file for another kind of machine, say."""
    environ = _java(tmp_path, "")
    (tmp_path / "bin" / "java").write_bytes(b"\x7fELF nonsense")

    with pytest.raises(UsageError, match=r"bin/java -version: .*; `make setup-spark`"):
        require_java(environ)


def test_master_that_answers_will_do() -> None:
    """Or one of several: a standby takes over."""
    with socket.create_server(("127.0.0.1", 0)) as master, socket.create_server(("127.0.0.1", 0)) as closed:
        port, gone = master.getsockname()[1], closed.getsockname()[1]
        closed.close()
        require_master(f"spark://127.0.0.1:{port}")
        require_master(f"spark://127.0.0.1:{gone},127.0.0.1:{port}")


def test_master_that_refuses_is_named() -> None:
    """At once, and not after Spark's own minute."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(UsageError, match=rf"^--master spark://127.0.0.1:{port}: 127.0.0.1:{port} Connection refused$"):
        require_master(f"spark://127.0.0.1:{port}")


@pytest.mark.parametrize(
    "master", ["spark://", "spark://host", "spark://host:port", "spark://:7077", "spark://h:99999"]
)
def test_master_that_is_no_address_is_refused(master: str) -> None:
    """Before anything is dialled."""
    with pytest.raises(UsageError, match=r"not of the form spark://HOST:PORT$"):
        require_master(master)


@pytest.mark.parametrize("master", ["local[2]", "yarn", "k8s://https://host"])
def test_other_masters_are_sparks_business(master: str) -> None:
    """Nothing is dialled."""
    require_master(master)
