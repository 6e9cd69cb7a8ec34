"""The key-value configuration in memory, which is always what its file holds.

A change is written first and shown after, one change at a time. A write that fails changes nothing.
"""

import asyncio
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from namesrv.kv import file as kv_file
from namesrv.kv.file import LONE_SURROGATE, Tables
from namesrv_runtime.log import event

logger = logging.getLogger(__name__)

CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f-\x9f]")


@dataclass(slots=True)
class KVLimits:
    """How much may be put; settings/model.py says why. What the file already holds at start is kept."""

    max_value_bytes: int
    max_keys_per_namespace: int
    max_namespaces: int
    max_name_characters: int = 255
    # The file is rewritten by every change, and one namespace travels whole, in one frame of at most 16 MiB: to who
    # lists it, and ORDER_TOPIC_CONFIG to every broker that registers.
    max_file_bytes: int = 8 * 1024 * 1024


class KVLimitError(ValueError):
    """A change was refused; `field` says which of its fields is to blame, `value` is what it held."""

    def __init__(self, field: str, value: object, message: str) -> None:
        super().__init__(message)
        self.field = field
        self.value = value


class KVWriteError(OSError):
    """The change could not be written, and has not happened."""


class KVConfig:
    """The key-value configuration of one NameServer, and its file."""

    def __init__(self, path: Path, limits: KVLimits, tables: Tables, file_bytes: int) -> None:
        self._path = path
        # for what is put from now on
        self.limits = limits
        # what the file holds, and how large it is
        self._tables = tables
        self._file_bytes = file_bytes
        # held by the change that is being written
        self._writing = asyncio.Lock()

    @classmethod
    def load(cls, path: Path, limits: KVLimits) -> Self:
        """What the file holds, read as in `file.read`."""
        tables = kv_file.read(path)
        return cls(path, limits, tables, len(kv_file.encode(tables)))

    def get(self, namespace: str, key: str) -> str | None:
        """The value, if there is one."""
        return self._tables.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> Mapping[str, str] | None:
        """Keys and values; empty after the last key was deleted, None if there never was one."""
        return self._tables.get(namespace)

    def all(self) -> Tables:
        """Everything, as it was at this moment."""
        return self._tables

    async def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value; return when it is on disk.

        Cancelled before its write began, it has not happened; after that, it happens all the same.

        Raises:
            KVLimitError: refused, with the field to blame.
            KVWriteError: it could not be written.
        """
        _check_name("namespace", namespace, self.limits)
        _check_name("key", key, self.limits)
        _check_value(value, self.limits)
        async with self._writing:
            table = self._tables.get(namespace, {})
            if table.get(key) == value:
                return
            self._check_room(namespace, table, key)
            await self._write({**self._tables, namespace: {**table, key: value}}, value)

    async def delete(self, namespace: str, key: str) -> bool:
        """Remove a key, and say whether it was there; return when that is on disk. The namespace stays.

        Raises:
            KVWriteError: it could not be written.
        """
        async with self._writing:
            table = dict(self._tables.get(namespace, {}))
            if table.pop(key, None) is None:
                return False
            await self._write({**self._tables, namespace: table}, None)
            return True

    def _check_room(self, namespace: str, table: Mapping[str, str], key: str) -> None:
        most_spaces, most_keys = self.limits.max_namespaces, self.limits.max_keys_per_namespace
        if namespace not in self._tables and len(self._tables) >= most_spaces:
            message = f"namespace {namespace!r} exceeds the limit of {most_spaces} namespaces"
            raise KVLimitError("namespace", namespace, message)
        if key not in table and len(table) >= most_keys:
            message = f"key {key!r} exceeds the limit of {most_keys} keys in namespace {namespace!r}"
            raise KVLimitError("key", key, message)

    async def _write(self, tables: Tables, value: str | None) -> None:
        # what makes the file smaller is always welcome
        most_bytes = max(self.limits.max_file_bytes, self._file_bytes)
        write = asyncio.get_running_loop().run_in_executor(None, kv_file.write, self._path, tables, most_bytes)
        is_cancelled = False
        while not write.done():
            try:
                # a thread cannot be stopped, and the next change has to know how this one ends
                await asyncio.wait({write})
            except asyncio.CancelledError:
                is_cancelled = True
        try:
            size = write.result()
        except OSError as error:
            event(logger, logging.ERROR, "kv_write_failed", path=self._path, error=error)
            raise KVWriteError(error.errno, f"key-value configuration not written: {error.strerror}") from error
        finally:
            # its exception knows this frame: megabytes in a cycle, until somebody collects garbage
            del write
        if size > most_bytes:
            message = f"value makes the configuration {size} bytes, limit {self.limits.max_file_bytes}"
            raise KVLimitError("value", value, message)
        self._tables, self._file_bytes = tables, size
        if is_cancelled:
            raise asyncio.CancelledError

    def __repr__(self) -> str:
        keys = sum(map(len, self._tables.values()))
        writing = "yes" if self._writing.locked() else "no"
        return f"<KVConfig [{len(self._tables)} namespaces | {keys} keys | writing: {writing}]>"


def _check_name(field: str, name: str, limits: KVLimits) -> None:
    if len(name) > limits.max_name_characters:
        raise KVLimitError(
            field, name, f"{field} of {len(name)} characters, limit {limits.max_name_characters}: {name[:40]!r}..."
        )
    if CONTROL_CHARACTER.search(name):
        raise KVLimitError(field, name, f"{field} with a control character: {name!r}")
    _check_unicode(field, name)


def _check_value(value: str, limits: KVLimits) -> None:
    _check_unicode("value", value)
    size = len(value.encode())
    if size > limits.max_value_bytes:
        raise KVLimitError("value", value, f"value of {size} bytes, limit {limits.max_value_bytes}: {value[:40]!r}...")


def _check_unicode(field: str, text: str) -> None:
    if LONE_SURROGATE.search(text):
        raise KVLimitError(field, text, f"{field} that is not unicode: {text[:40]!r}")
