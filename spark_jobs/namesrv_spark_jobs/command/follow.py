"""Following a log: new closed files are read once, and kept as tables beside the report."""

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it

from namesrv_spark_jobs.command.output import write_json
from namesrv_spark_jobs.errors import UsageError
from namesrv_spark_jobs.log_files import truncated
from namesrv_spark_jobs.transforms.schema import as_read

# below the report; hidden, so that whoever reads the report's folder as tables does not meet it
STATE: Final = ".follow"
_SOURCE: Final = "source.json"
_LINES: Final = "lines"
_CHECKPOINT: Final = "checkpoint"
# what is still being written would be taken in once and never again
_CLOSED: Final = (".jsonl", ".jsonl.gz")
# Spark forgets files that are a week older than the newest one, and never reads them
_FOR_EVER: Final = "36500d"


def followed_directory(inputs: Sequence[str]) -> Path:
    """The one directory that is followed; a UsageError when it is not one, or no directory."""
    if len(inputs) != 1:
        raise UsageError(f"--follow takes one INPUT, a directory; there are {len(inputs)}")
    folder = Path(inputs[0].removeprefix("file://")).expanduser()
    if not folder.is_dir():
        raise UsageError(f"{inputs[0]}: no such directory; --follow takes a directory of closed logs")
    return folder.resolve()


def inherit(out: Path, aside: Path, source: Path) -> None:
    """Begin with what the last run took in, linked: the old report stays whole. Raises UsageError."""
    state = aside / STATE
    if not (out / STATE).is_dir():
        state.mkdir()
        write_json(state / _SOURCE, {"source": str(source), "files": {}})
        return
    before = json.loads((out / STATE / _SOURCE).read_text(encoding="utf-8"))["source"]
    if before != str(source):
        raise UsageError(f"--out {out}: follows {before}, not {source}; take another --out")
    shutil.copytree(out / STATE, state, copy_function=_link)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        # a file system without links
        shutil.copy2(source, target)


def take_in(spark: SparkSession, source: Path, aside: Path) -> tuple[list[str], dict[str, bool]]:
    """Read the files that are new, then stop.

    Returns: tables with every line that was ever taken in; the files that these are from, and whether each is whole.
    """
    state = aside / STATE
    # listed before the stream looks: it finds all of these, and perhaps more, which are known by their lines
    listed = {str(file) for file in source.rglob("*") if file.name.endswith(_CLOSED) and _is_visible(file, source)}
    before: dict[str, bool] = json.loads((state / _SOURCE).read_text(encoding="utf-8"))["files"]
    _run_stream(spark, source, state)
    # by name: as a whole the folder is what Spark's own list of absolute paths says, and these have moved
    tables = sorted(str(file) for file in (state / _LINES).glob("*.parquet"))
    new = sorted((listed | _told(spark, tables)) - before.keys())
    cut = truncated(new)
    files = {**before, **{file: file not in cut for file in new}}
    write_json(state / _SOURCE, {"source": str(source), "files": files})
    return tables, files


def _is_visible(file: Path, source: Path) -> bool:
    """Spark, too, passes over what begins with `_` or `.`."""
    return file.is_file() and not any(part.startswith(("_", ".")) for part in file.relative_to(source).parts)


def _told(spark: SparkSession, tables: Sequence[str]) -> set[str]:
    """The files that there are lines of."""
    if not tables:
        return set()
    rows = spark.read.parquet(*(f"file://{table}" for table in tables)).select("file").distinct().collect()
    return {unquote(urlsplit(row["file"]).path) for row in rows}


def _run_stream(spark: SparkSession, source: Path, state: Path) -> None:
    """Every line as the batch reads it, with the file that it is from."""
    reader = as_read(spark.readStream).option("recursiveFileLookup", value=True).option("maxFileAge", _FOR_EVER)
    read = reader.option("pathGlobFilter", f"*{{{','.join(_CLOSED)}}}").json(f"file://{source}")
    lines = read.select("*", F.col("_metadata.file_path").alias("file"))
    stream = lines.writeStream.format("parquet").outputMode("append")
    stream = stream.option("path", f"file://{state / _LINES}")
    stream = stream.option("checkpointLocation", f"file://{state / _CHECKPOINT}")
    query = stream.trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    finally:
        query.stop()
