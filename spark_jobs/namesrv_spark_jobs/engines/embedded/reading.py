"""SQL that reads log files and tables in DuckDB, and the repair of the few files that DuckDB cannot read."""

import glob
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from namesrv_spark_jobs.engines.embedded.columns import quoted, sql_type, text
from namesrv_spark_jobs.engines.embedded.repairs import split
from namesrv_spark_jobs.errors import MissingFileError, UsageError
from namesrv_spark_jobs.log_files import after_gzip, divided, file_url, is_url, truncated
from namesrv_spark_jobs.transforms.schema import CORRUPT, LINE, REQUIRED

# the value of `corrupt_line` for a line outside of the contract, until its file is split
SUSPECT: Final = "suspect"
_NUMBERS: Final = {name: kind for name, kind in LINE.items() if kind != "string"}
_NULLS: Final = ", ".join(f"CAST(NULL AS {sql_type(kind)}) AS {quoted(name)}" for name, kind in LINE.items())
_LINE_BYTES: Final = 64 << 20


class Reading:
    """The files of one analysis. Each has a link with a plain name, since DuckDB takes paths for patterns."""

    def __init__(self, folder: Path, files: Sequence[str]) -> None:
        folder.mkdir(parents=True)
        for file in files:
            if is_url(file):
                raise UsageError(f"{file}: only Spark reads URLs; use --engine spark")
        tables, texts = divided(files)
        self._folder = folder
        damaged = truncated(tables)
        # without its end, a table has no readable line
        self.tables = [table for table in tables if table not in damaged]
        # link -> file; `plain` has the links of files that DuckDB reads directly
        self._files: dict[str, Path] = {}
        for number, file in enumerate(texts):
            path = Path(file.removeprefix("file://"))
            link = folder / f"{number}.jsonl{'.gz' if path.name.endswith('.gz') else ''}"
            link.symlink_to(path.absolute())
            self._files[str(link)] = path
        self.plain = list(self._files)
        # the two parts of split files: files with the good lines, and files with the bad lines
        self.clean: list[str] = []
        self.bad: list[str] = []
        self.names = {link: file_url(path) for link, path in self._files.items()}
        self.names |= {table: file_url(Path(table)) for table in damaged}
        cut = set(truncated([str(path) for path in self._files.values()]))
        self.repair([link for link, path in self._files.items() if str(path) in cut])

    def repair(self, links: Iterable[str]) -> None:
        """Split these files line by line into good and bad lines."""
        for link in links:
            self.plain.remove(link)
            clean, bad = (self._folder / f"{Path(link).name}.{kind}.jsonl" for kind in ("clean", "bad"))
            split(Path(link), clean, bad, link)
            self.clean.append(str(clean))
            self.bad.append(str(bad))
            self.names[str(clean)] = self.names[link]

    def unreadable(self, error: Exception) -> list[str]:
        """The files that DuckDB fails to read. Raises MissingFileError, or `error` if all can be read."""
        for link in self.plain:
            if not Path(link).exists():
                raise MissingFileError(f"{self._files[link]}: no such file") from error
        # DuckDB also fails on bytes after the end of a file
        damaged = [link for link in self.plain if link.endswith(".gz") and after_gzip(Path(link)) != b""]
        if not damaged:
            raise error
        return damaged


def of_texts(paths: Sequence[str], *, are_split: bool = False) -> str:
    """A query of the lines of files, in the columns of the contract, with `file`.

    Lines outside of the contract are `SUSPECT`. With `are_split`, the files are the good parts of damaged files: their
    lines may lack fields, and none is `SUSPECT`.
    """
    # the compression is given, since DuckDB looks for a suffix before any question mark, as if paths were URLs
    by_compression = {"gzip": [path for path in paths if path.endswith(".gz")]}
    by_compression["none"] = [path for path in paths if path not in by_compression["gzip"]]
    return " UNION ALL BY NAME ".join(
        _of_texts(paths, how, are_split=are_split) for how, paths in by_compression.items() if paths
    )


def _of_texts(paths: Sequence[str], compression: str, *, are_split: bool) -> str:
    fields = ", ".join(f"{quoted(name)}: '{'JSON' if name in _NUMBERS else 'VARCHAR'}'" for name in LINE)
    listed = _listed(paths)
    read = (
        f"read_json([{listed}], columns = {{{fields}}}, format = 'newline_delimited', ignore_errors = true,"
        f" filename = true, hive_partitioning = false, maximum_object_size = {_LINE_BYTES},"
        f" compression = '{compression}')"
    )
    shown = ", ".join(_typed(name) if name in _NUMBERS else quoted(name) for name in LINE)
    nothing = " AND ".join(f"{quoted(name)} IS NULL" for name in REQUIRED)
    wrong = " OR ".join(_is_wrong(name, kind) for name, kind in _NUMBERS.items())
    mark = "CAST(NULL AS VARCHAR)" if are_split else f"CASE WHEN ({nothing}) OR {wrong} THEN '{SUSPECT}' END"
    return f"SELECT {shown}, {mark} AS {quoted(CORRUPT)}, filename AS file FROM {read}"


def _listed(paths: Sequence[str]) -> str:
    """The paths as literals, escaped, since DuckDB takes any path for a pattern."""
    return ", ".join(text(glob.escape(path)) for path in paths)


def _number(name: str) -> str:
    return f"TRY_CAST(CAST({quoted(name)} AS VARCHAR) AS {sql_type(_NUMBERS[name])})"


def _typed(name: str) -> str:
    return f"{_number(name)} AS {quoted(name)}"


def _is_wrong(name: str, kind: str) -> str:
    """A condition: the field has a value that is not a number, or not a whole one where the contract demands that."""
    field = quoted(name)
    wrong = f"{_number(name)} IS NULL"
    if kind == "bigint":
        wrong += f" OR contains(CAST({field} AS VARCHAR), '.') OR contains(CAST({field} AS VARCHAR), 'e')"
    return f"({field} IS NOT NULL AND ({wrong}))"


def of_bad(paths: Sequence[str]) -> str:
    """A query of the bad lines, in the same columns."""
    listed = _listed(paths)
    read = f"read_json([{listed}], columns = {{file: 'VARCHAR', {CORRUPT}: 'VARCHAR'}}, format = 'newline_delimited')"
    return f"SELECT {_NULLS}, {CORRUPT}, file FROM {read}"


def of_nothing() -> str:
    """A query without rows, in the same columns."""
    return f"SELECT {_NULLS}, CAST(NULL AS VARCHAR) AS {CORRUPT}, '' AS file LIMIT 0"


def of_tables(paths: Sequence[str], kinds: dict[str, str]) -> str:
    """A query of the same columns from Parquet tables, cast from the types there; a missing column is null."""
    shown = ", ".join(_from_table(name, kind, kinds.get(name)) for name, kind in LINE.items())
    corrupt = CORRUPT if CORRUPT in kinds else f"CAST(NULL AS VARCHAR) AS {CORRUPT}"
    file = "coalesce(file, filename) AS file" if "file" in kinds else "filename AS file"
    return f"SELECT {shown}, {corrupt}, {file} FROM {parquet(paths)}"


def parquet(paths: Sequence[str]) -> str:
    """The table function that reads these tables, or folders of tables."""
    listed = _listed([str(file) for file in files_of(paths)])
    return f"read_parquet([{listed}], union_by_name = true, filename = true, hive_partitioning = false)"


def files_of(paths: Sequence[str]) -> list[Path]:
    """The files of these tables, or folders of tables. Raises MissingFileError."""
    return [file for path in paths for file in _files_of(Path(path.removeprefix("file://")))]


def _files_of(path: Path) -> list[Path]:
    if not path.exists():
        raise MissingFileError(f"{path}: no such file")
    return sorted(path.rglob("*.parquet")) if path.is_dir() else [path]


def _from_table(name: str, kind: str, stored_type: str | None) -> str:
    field = quoted(name)
    if stored_type is not None and stored_type.replace('"', "") == sql_type(kind).replace('"', ""):
        return field
    if stored_type is None:
        return f"CAST(NULL AS {sql_type(kind)}) AS {field}"
    if kind == "string" and (stored_type.endswith("]") or stored_type.startswith(("STRUCT", "MAP"))):
        return f"CAST(to_json({field}) AS VARCHAR) AS {field}"
    return f"TRY_CAST({field} AS {sql_type(kind)}) AS {field}"
