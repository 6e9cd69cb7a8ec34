"""What did operators put into the key-value configuration, and is it on disk?

What `get` shows is what the file holds. A change is written first and shown after; changes that arrive while a write is
under way share the next one, and each waits for the write that contains it. A write that fails changes nothing.
"""

import asyncio
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

from namesrv.kv import file as kv_file
from namesrv.kv.file import LONE_SURROGATE, KVReadError, Tables
from namesrv_runtime.log import event

__all__ = ["KVConfig", "KVLimitError", "KVLimits", "KVReadError", "KVWriteError"]

logger = logging.getLogger(__name__)

CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f-\x9f]")


@dataclass(frozen=True, slots=True)
class KVLimits:
    """How much may be put. What the file already holds at start is kept, whatever its size."""

    max_value_bytes: int = 16 * 1024
    max_keys_per_namespace: int = 10_000
    max_namespaces: int = 1_000
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

    def __init__(self, path: Path, limits: KVLimits, tables: Tables) -> None:
        self._path = path
        # for what is put from now on
        self.limits = limits
        # what the file holds
        self._tables = tables
        self._file_bytes = kv_file.size_of(tables)
        # changes that no write contains yet, in order of arrival
        self._pending: list[_Change] = []
        self._is_writing = False

    @classmethod
    def load(cls, path: Path, limits: KVLimits | None = None) -> Self:
        """What the file holds. No file is fine; a damaged one is set aside with a warning, and the table is empty.

        Raises:
            KVReadError: the file is there and cannot be read, or is damaged and cannot be set aside.
        """
        return cls(path, limits or KVLimits(), kv_file.read(path))

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
        await self._change(namespace, key, value)

    async def delete(self, namespace: str, key: str) -> bool:
        """Remove a key, and say whether it was there; return when that is on disk. The namespace stays.

        Raises:
            KVWriteError: it could not be written.
        """
        return await self._change(namespace, key, None)

    async def _change(self, namespace: str, key: str, value: str | None) -> bool:
        change = _Change(namespace, key, value, asyncio.get_running_loop().create_future())
        self._pending.append(change)
        if not self._is_writing:
            self._write_pending()
        return await change.done

    # Writing needs no task of its own: a batch is started by the change that finds nobody writing, and the next one by
    # the end of the one before. So there is nothing that a cancelled caller could take down with it.

    def _write_pending(self) -> None:
        draft = _Draft(self._tables, self._file_bytes, self.limits)
        batch: list[tuple[_Change, bool]] = []
        for change in self._pending:
            if change.done.cancelled():
                continue
            try:
                batch.append((change, draft.apply(change)))
            except KVLimitError as error:
                change.done.set_exception(error)
        self._pending = []
        if not draft.changed:
            _answer(batch, None)
            return
        try:
            write = asyncio.get_running_loop().run_in_executor(None, kv_file.write, self._path, draft.tables)
        except RuntimeError as error:
            # the loop is being closed
            _answer(batch, error)
            return
        self._is_writing = True
        write.add_done_callback(partial(self._written, batch, draft))

    def _written(self, batch: list[tuple["_Change", bool]], draft: "_Draft", write: asyncio.Future[None]) -> None:
        self._is_writing = False
        error = write.exception()
        if error is None:
            self._tables, self._file_bytes = draft.tables, draft.file_bytes
        else:
            event(logger, logging.ERROR, "kv_write_failed", path=self._path, error=error)
        _answer(batch, error)
        if self._pending:
            self._write_pending()

    def __repr__(self) -> str:
        keys = sum(map(len, self._tables.values()))
        waiting = len(self._pending)
        return (
            f"<KVConfig [{len(self._tables)} namespaces | {keys} keys"
            f" | writing: {'yes' if self._is_writing else 'no'} | waiting: {waiting}]>"
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Change:
    """A value to set, or None to delete, and who waits for it."""

    namespace: str
    key: str
    value: str | None
    # whether the key was there before
    done: asyncio.Future[bool]


class _Draft:
    """The tables as they will be after a batch; the ones before it stay as they are."""

    def __init__(self, tables: Tables, file_bytes: int, limits: KVLimits) -> None:
        self.changed = False
        self.file_bytes = file_bytes
        self._limits = limits
        self._before = tables
        self._after: dict[str, dict[str, str]] = {}

    @property
    def tables(self) -> Tables:
        return {**self._before, **self._after}

    def apply(self, change: _Change) -> bool:
        """Make one change, on top of the earlier ones of the batch; whether the key was there before it."""
        namespace, key, value = change.namespace, change.key, change.value
        table = self._after.get(namespace, self._before.get(namespace))
        old = None if table is None else table.get(key)
        if old == value:
            return old is not None
        grows_by = 0 if table is not None else kv_file.size_of_table(namespace)
        if old is not None:
            grows_by -= kv_file.size_of_entry(key, old)
        if value is not None:
            grows_by += kv_file.size_of_entry(key, value)
            self._check_room(change, table, grows_by)
        # copied once per batch
        if namespace not in self._after:
            self._after[namespace] = dict(table or {})
        if value is None:
            del self._after[namespace][key]
        else:
            self._after[namespace][key] = value
        self.file_bytes += grows_by
        self.changed = True
        return old is not None

    def _check_room(self, change: _Change, table: Mapping[str, str] | None, grows_by: int) -> None:
        limits = self._limits
        if table is None and len(self._before.keys() | self._after.keys()) >= limits.max_namespaces:
            raise KVLimitError(
                "namespace",
                change.namespace,
                f"namespace {change.namespace!r} is one more than {limits.max_namespaces}",
            )
        if change.key not in (table or {}) and len(table or {}) >= limits.max_keys_per_namespace:
            raise KVLimitError(
                "key",
                change.key,
                f"key {change.key!r} is one more than {limits.max_keys_per_namespace} in namespace"
                f" {change.namespace!r}",
            )
        # what makes it smaller is always welcome
        if grows_by > 0 and self.file_bytes + grows_by > limits.max_file_bytes:
            raise KVLimitError(
                "value",
                change.value,
                f"value makes the configuration {self.file_bytes + grows_by} bytes, limit {limits.max_file_bytes}",
            )


def _answer(batch: list[tuple[_Change, bool]], error: BaseException | None) -> None:
    for change, was_there in batch:
        if change.done.done():
            continue
        if error is None:
            change.done.set_result(was_there)
        elif isinstance(error, OSError):
            # one each: a shared one would collect everybody's traceback
            refusal = KVWriteError(error.errno, f"key-value configuration not written: {error.strerror}")
            refusal.__cause__ = error
            change.done.set_exception(refusal)
        else:
            change.done.set_exception(error)


def _check_name(field: str, name: str, limits: KVLimits) -> None:
    if len(name) > limits.max_name_characters:
        raise KVLimitError(
            field, name, f"{field} of {len(name)} characters, limit {limits.max_name_characters}: {name[:40]!r}..."
        )
    if CONTROL_CHARACTER.search(name):
        raise KVLimitError(field, name, f"{field} with a control character: {name!r}")
    if LONE_SURROGATE.search(name):
        raise KVLimitError(field, name, f"{field} that is not unicode: {name!r}")


def _check_value(value: str, limits: KVLimits) -> None:
    if LONE_SURROGATE.search(value):
        raise KVLimitError("value", value, f"value that is not unicode: {value[:40]!r}")
    if len(value.encode()) > limits.max_value_bytes:
        raise KVLimitError(
            "value", value, f"value of {len(value.encode())} bytes, limit {limits.max_value_bytes}: {value[:40]!r}..."
        )
