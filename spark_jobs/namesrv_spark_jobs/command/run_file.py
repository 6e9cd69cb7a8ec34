"""What is told of a run that the numbers do not depend on? All of it goes into run.json, none into summary.json."""

import platform
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pyspark.sql import SparkSession

from namesrv_spark_jobs.command.gates import Verdict
from namesrv_spark_jobs.reports import PROGRAM, is_url


class Run:
    """One run, from now on."""

    def __init__(self, argv: Sequence[str]) -> None:
        self._argv = list(argv)
        self._began = datetime.now(UTC)
        self._mono = time.monotonic()

    def told(self, spark: SparkSession, files: Sequence[str], verdicts: Sequence[Verdict]) -> dict[str, object]:
        """The content of run.json."""
        return {
            "program": PROGRAM,
            "version": _version(),
            "began": self._began.isoformat(timespec="seconds"),
            "seconds": round(time.monotonic() - self._mono, 3),
            "arguments": self._argv,
            "directory": str(Path.cwd()),
            "files": [{"file": file, "bytes": _size(file)} for file in files],
            "gates": [{"gate": one.gate, "failed": one.failed, "says": one.says} for one in verdicts],
            "spark": {"version": spark.version, "master": spark.conf.get("spark.master", None)},
            "python": platform.python_version(),
            "platform": sys.platform,
        }


def _version() -> str | None:
    """None where the package is a zip or a folder on the path."""
    try:
        return version("namesrv")
    except PackageNotFoundError:
        return None


def _size(file: str) -> int | None:
    if is_url(file):
        return None
    try:
        return Path(file).stat().st_size
    except OSError:
        return None
