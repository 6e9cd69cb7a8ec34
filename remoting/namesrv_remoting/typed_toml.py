"""Reads TOML, as it is or into msgspec structs, with error messages in plain words."""

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import msgspec

from namesrv_runtime.suggestions import did_you_mean

S = TypeVar("S", bound=msgspec.Struct)

# A name or a pattern in a file, and a list of them.
Word = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
Words = Annotated[list[Word], msgspec.Meta(min_length=1)]

# tomllib's message about a key that the same table has already, which does not name the key.
_DUPLICATE: Final = re.compile(r"Cannot overwrite a value \(at (?:line (\d+), column \d+|end of document)\)")
_KEY: Final = re.compile(r"\s*([A-Za-z0-9_-]+)\s*=")
_LENGTH: Final = re.compile(r"expected (str|array) of length ([<>]=) (\d+)")
_UNKNOWN: Final = re.compile(r"object contains unknown field (.+)")
_BOUNDS: Final = {">=": "needs at least", "<=": "takes at most"}
_UNITS: Final = {"str": "character", "array": "value"}


class FileError(Exception):
    """A file cannot be used; each problem is a readable line, and no line contains a secret."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


def text_of_file(path: Path) -> str:
    """The text of a file, without the byte order mark that editors on Windows begin a file with.

    Raises:
        OSError: the file cannot be read.
        FileError: the file is not UTF-8.
    """
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FileError([f"not UTF-8 at byte {error.start}"]) from None


def parse_toml(text: str) -> dict[str, Any]:
    """The tables of a text. Raises FileError with the place and the problem of the first error."""
    try:
        tables = tomllib.loads(text)
        # A hexadecimal number may be too large for decimal text, so that no error message could show it.
        repr(tables)
    except (ValueError, RecursionError) as error:  # tomllib raises some errors of int(), and RecursionError
        raise FileError([_duplicate_key(text, str(error)) or f"not TOML: {error}"]) from None
    return tables


def _duplicate_key(text: str, complaint: str) -> str | None:
    """A message of tomllib about a key on one line that is given twice, with its name; None for other messages."""
    lines = text.splitlines()
    match = _DUPLICATE.fullmatch(complaint)
    if match is None or not lines:
        return None
    number = int(match[1]) if match[1] else len(lines)
    *earlier, key = (found and found[1] for found in map(_KEY.match, lines[:number]))
    return f"key {key} is given twice, last in line {number}" if key and key in earlier else None


def read_toml(text: str, struct: type[S]) -> S:
    """Read the text of a file. Raises FileError with the place and the problem of the first error."""
    try:
        return read_table(parse_toml(text), struct)
    except ValueError as error:
        raise FileError([str(error)]) from None


def read_table(table: object, struct: type[S]) -> S:
    """Read a table of a file. Raises ValueError with the place in the table and the problem of the first error."""
    try:
        return msgspec.convert(table, struct)
    except msgspec.ValidationError as error:
        raise ValueError(_in_words(str(error), struct)) from None


def _in_words(complaint: str, struct: type[msgspec.Struct]) -> str:
    """An error message of msgspec, reworded: place first, lower case, lengths and unknown fields in plain words."""
    what, _, place = complaint.partition(" - at ")
    place = place.strip("`").removeprefix("$").removeprefix(".")
    what = what[:1].lower() + what[1:].replace("`", "")
    if match := _LENGTH.fullmatch(what):
        kind, bound, number = match.groups()
        what = f"{_BOUNDS[bound]} {number} {_UNITS[kind]}{'' if number == '1' else 's'}"
    elif match := _UNKNOWN.fullmatch(what):
        what = f"unknown field {match[1]}{did_you_mean(match[1], struct.__struct_fields__)}"
    return f"{place}: {what}" if place else what
