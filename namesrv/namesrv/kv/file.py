"""The file of the key-value configuration.

As Apache's does, `{"configTable":{"NAMESPACE":{"key":"value"}}}`, so that a file of Apache's can be dropped in.
"""

import json
import logging
import re
import reprlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from namesrv_runtime.durable_file import remove_leftovers, set_aside, write_atomically
from namesrv_runtime.log import event

logger = logging.getLogger(__name__)

# namespace -> key -> value; never changed, only replaced, so that a thread can write it while the loop reads it
Tables = Mapping[str, Mapping[str, str]]

# half of a UTF-16 pair: JSON can spell it, UTF-8 cannot write it
LONE_SURROGATE = re.compile(r"[\ud800-\udfff]")


def encode(tables: Tables) -> bytes:
    """The file's bytes."""
    return msgspec.json.encode({"configTable": tables})


def write(path: Path, tables: Tables, most_bytes: int) -> int:
    """Replace the file, unless it would get more bytes than that; how many they are. Blocks until it is on disk.

    Raises:
        OSError: it could not be written, and is as it was.
    """
    data = encode(tables)
    if len(data) <= most_bytes:
        write_atomically(path, data)
    return len(data)


def read(path: Path) -> Tables:
    """What the file holds. No file is fine; a damaged one is set aside with a warning, and the table is empty.

    Raises:
        OSError: the file is there and cannot be read, or is damaged and cannot be set aside. To start without it
            would lose what operators put there.
    """
    remove_leftovers(path)
    try:
        tables, ignored = decode(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError) as error:
        set_aside(path, str(error))
        return {}
    if ignored:
        event(logger, logging.WARNING, "kv_entries_ignored", path=path, count=len(ignored), first=ignored[0])
    return tables


def decode(data: bytes) -> tuple[Tables, list[str]]:
    """The tables, and what was wrong with those entries that are not in them.

    Raises:
        ValueError: this is not a key-value configuration.
        RecursionError: nor is this.
    """
    # like Apache's reader, takes bare numbers for the text they are written in
    document = json.loads(data.decode("utf-8-sig"), parse_int=str, parse_float=str, parse_constant=str)
    tables: dict[str, dict[str, str]] = {}
    ignored: list[str] = []
    for namespace, table in _object(_object(document, "file").get("configTable"), "configTable").items():
        if table is None or LONE_SURROGATE.search(namespace):
            ignored.append(f"namespace {namespace!r} {'is null' if table is None else 'is not unicode'}")
            continue
        tables[namespace] = {}
        for key, value in _object(table, f"namespace {namespace!r}").items():
            text = _text(value, f"value of {namespace!r} {key!r}")
            # Apache's server keeps the null of a put without a value
            if text is None or LONE_SURROGATE.search(key + text):
                ignored.append(f"{namespace!r} {key!r} {'is null' if text is None else 'is not unicode'}")
            else:
                tables[namespace][key] = text
    return tables, ignored


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{what} is not an object: {reprlib.repr(value)}")  # noqa: TRY004  # the file's fault
    return value


def _text(value: Any, what: str) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None or isinstance(value, str):
        return value
    raise ValueError(f"{what} is not a string: {reprlib.repr(value)}")
