"""Is everything there that Spark needs: pyspark, Java, a master that answers?"""

import importlib.util
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from namesrv_spark_jobs.errors import UsageError

MASTER_SECONDS: Final = 5.0
_JAVA_SECONDS: Final = 30.0
_STANDALONE: Final = "spark://"


def require_pyspark() -> None:
    """Say how to install pyspark when it is not there.

    Raises:
        UsageError: it is not.
    """
    if importlib.util.find_spec("pyspark") is None:
        raise UsageError("pyspark is not installed; pip install 'namesrv[spark]' brings it")


def require_java(environ: Mapping[str, str] = os.environ) -> None:
    """Say what to do when Java is missing or too old.

    Raises:
        UsageError: it is.
    """
    needed = _needed_java()
    java = _java(environ)
    if java is None:
        raise UsageError(f"Java {needed} or newer is needed and `java` was not found; {_remedy()}")
    found = _java_major(java)
    if found < needed:
        raise UsageError(f"Java {needed} or newer is needed and {java} is Java {found}; {_remedy()}")


def _remedy() -> str:
    return "`make setup-spark` installs it, or set JAVA_HOME"


def _needed_java() -> int:
    """Spark 4 needs Java 17, Spark 3.5 is content with 8."""
    try:
        return 17 if int(version("pyspark").partition(".")[0]) >= 4 else 8  # noqa: PLR2004
    except PackageNotFoundError:
        # a Spark distribution on PYTHONPATH; it says itself what it lacks
        return 8


def _java(environ: Mapping[str, str]) -> str | None:
    """The `java` that Spark's launcher will take."""
    home = environ.get("JAVA_HOME")
    if home:
        return shutil.which(str(Path(home, "bin", "java")))
    return shutil.which("java", path=environ.get("PATH"))


def _java_major(java: str) -> int:
    """17 of `openjdk version "17.0.15"`, 8 of `java version "1.8.0_402"`.

    Raises:
        UsageError: it does not say.
    """
    try:
        said = subprocess.run(  # noqa: S603  # the user's own Java
            [java, "-version"], capture_output=True, text=True, timeout=_JAVA_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"{java} -version: {error}; {_remedy()}") from error
    match = re.search(r'version "(?:1\.)?(\d+)', said.stderr + said.stdout)
    if match is None:
        raise UsageError(f"{java} -version does not say which Java it is; {_remedy()}")
    return int(match[1])


def require_master(master: str, *, seconds: float = MASTER_SECONDS) -> None:
    """Dial a standalone master: Spark itself would go on for a minute before it says anything.

    Raises:
        UsageError: none of its addresses accepts a connection in time.
    """
    if not master.startswith(_STANDALONE):
        return
    refusals = [refusal for address in _addresses(master) if (refusal := _refusal(address, seconds))]
    if len(refusals) == len(_addresses(master)):
        raise UsageError(f"--master {master}: {'; '.join(refusals)}")


def _addresses(master: str) -> list[tuple[str, int]]:
    """A standalone master is one or several of `host:port`."""
    addresses = []
    for part in master.removeprefix(_STANDALONE).split(","):
        host, colon, port = part.rpartition(":")
        if not colon or not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
            raise UsageError(f"--master {master}: is not spark://HOST:PORT")
        addresses.append((host.strip("[]"), int(port)))
    return addresses


def _refusal(address: tuple[str, int], seconds: float) -> str | None:
    try:
        with socket.create_connection(address, timeout=seconds):
            return None
    except OSError as error:
        return f"{address[0]}:{address[1]} {error.strerror or error}"
