"""The key-value configuration, in memory and in a file with the same content.

Changes are made one at a time: a change is written to the file first, and is visible afterwards. A failed write
changes nothing; the unchanged content is then written every few seconds until the disk works again.

The file has the form of Apache's, `{"configTable":{"NAMESPACE":{"key":"value"}}}`, so that a file of Apache's server
can be used.
"""

import asyncio
import json
import logging
import re
import reprlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from namesrv.periodic import Periodic
from namesrv_runtime.clock import Clock
from namesrv_runtime.durable_file import remove_leftovers, set_aside, write_atomically
from namesrv_runtime.log import event
from namesrv_runtime.threads import NoThreadError, begun_in_thread
from namesrv_runtime.write_state import WriteState

logger = logging.getLogger(__name__)

# namespace -> key -> value; never changed, only replaced, so that a thread can write it while the loop reads it
Tables = Mapping[str, Mapping[str, str]]
# called after a change is on disk, with namespace, key, old and new value; None stands for no value
Changed = Callable[[str, str, str | None, str | None], None]

# After a failed write, the file is written again this often.
RETRY_SECONDS: Final = 5.0
# half of a UTF-16 pair, which JSON can spell and UTF-8 cannot
LONE_SURROGATE = re.compile(r"[\ud800-\udfff]")
CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f-\x9f]")


@dataclass(slots=True)
class KVLimits:
    """Limits for new entries. Entries that the file has at the start are kept."""

    # A value travels in a header, which may have 64 KiB; order configurations have some hundred bytes.
    max_value_bytes: int = 16 * 1024
    # The limit is far above real use, since every change writes all values again.
    max_keys_per_namespace: int = 10_000
    max_namespaces: int = 256
    max_name_characters: int = 255
    # Enough for the order configuration of 20,000 topics. Every change writes the whole file, which takes about 1 ms of
    # processor time for each MiB, and ORDER_TOPIC_CONFIG is sent whole to every broker that registers.
    max_file_bytes: int = 2 * 1024 * 1024


class KVLimitError(ValueError):
    """A change was refused because of the value `value` of its field `field`."""

    def __init__(self, field: str, value: object, message: str) -> None:
        super().__init__(message)
        self.field = field
        self.value = value


class KVWriteError(OSError):
    """A change could not be written to the file, and was not made."""


class KVConfig:
    """The key-value configuration of one NameServer, and its file."""

    def __init__(self, path: Path, limits: KVLimits, tables: Tables, file_bytes: int, on_change: Changed) -> None:
        self._path = path
        self._on_change = on_change
        self.writes = WriteState()
        # limits for new entries
        self.limits = limits
        # content and size of the file
        self._tables = tables
        self._file_bytes = file_bytes
        # held while a change is written
        self._writing = asyncio.Lock()

    @classmethod
    def load(cls, path: Path, limits: KVLimits, on_change: Changed = lambda *_: None) -> Self:
        """Load the file. Raises OSError as `read_file` does."""
        tables = read_file(path)
        return cls(path, limits, tables, len(encode(tables)), on_change)

    def get(self, namespace: str, key: str) -> str | None:
        """The value of a key; None without a value."""
        return self._tables.get(namespace, {}).get(key)

    def namespaces(self) -> dict[str, int]:
        """The number of keys of each namespace, sorted by name."""
        return {namespace: len(self._tables[namespace]) for namespace in sorted(self._tables)}

    def namespace(self, namespace: str) -> Mapping[str, str] | None:
        """Keys and values of a namespace; empty after its last key was deleted, None if it never existed."""
        return self._tables.get(namespace)

    async def put(self, namespace: str, key: str, value: str) -> bool:
        """Write a value to the file, then set it; True if the key had another value, or none.

        A cancelled change is made only if its write had begun.

        Raises:
            KVLimitError: the change was refused; the error names the field.
            KVWriteError: the change could not be written.
        """
        _check_name("namespace", namespace, self.limits.max_name_characters)
        _check_name("key", key, self.limits.max_name_characters)
        _check_unicode("value", value)
        size, limit = len(value.encode()), self.limits.max_value_bytes
        if size > limit:
            raise KVLimitError("value", value, f"value of {size} bytes, limit {limit}: {value[:40]!r}...")
        async with self._writing:
            table = self._tables.get(namespace, {})
            if table.get(key) == value:
                return False
            self._check_room(namespace, table, key)
            if key not in table and (least := self._file_bytes + len(key) + size) > self._most_bytes:
                # Checked here, because encoding all other entries would take longer than everything else.
                raise self._too_large(value, least)
            await self._change(namespace, {**table, key: value}, key)
            return True

    async def delete(self, namespace: str, key: str) -> bool:
        """Remove a key from the file, then here; True if it existed. The namespace stays. Raises KVWriteError."""
        async with self._writing:
            table = dict(self._tables.get(namespace, {}))
            if table.pop(key, None) is None:
                return False
            await self._change(namespace, table, key)
            return True

    def _check_room(self, namespace: str, table: Mapping[str, str], key: str) -> None:
        most_spaces, most_keys = self.limits.max_namespaces, self.limits.max_keys_per_namespace
        if namespace not in self._tables and sum(map(bool, self._tables.values())) >= most_spaces:
            message = f"namespace {namespace!r} exceeds the limit of {most_spaces} namespaces"
            raise KVLimitError("namespace", namespace, message)
        if key not in table and len(table) >= most_keys:
            message = f"key {key!r} exceeds the limit of {most_keys} keys in namespace {namespace!r}"
            raise KVLimitError("key", key, message)

    @property
    def _most_bytes(self) -> int:
        # A file that is already too large may still be changed if it does not grow.
        return max(self.limits.max_file_bytes, self._file_bytes)

    def _too_large(self, value: str | None, size: int) -> KVLimitError:
        message = f"value makes the configuration {size} bytes, limit {self.limits.max_file_bytes}"
        return KVLimitError("value", value, message)

    async def run(self, clock: Clock) -> None:
        """Retry after failed writes, until cancelled."""
        await Periodic(clock, RETRY_SECONDS, self.retry).run()

    async def retry(self, lateness_seconds: float = 0.0) -> None:  # noqa: ARG002 - writing late is fine
        """Write the unchanged content if the last write failed, since only a write shows that the disk works again."""
        async with self._writing:
            if self.writes.has_failed:
                with suppress(OSError), _cancelled_afterwards():
                    await self._write(self._tables)

    async def _change(self, namespace: str, table: Mapping[str, str], key: str) -> None:
        tables, value, most_bytes = {**self._tables, namespace: table}, table.get(key), self._most_bytes
        if len(tables) > self.limits.max_namespaces:
            # A new namespace takes the place of those without keys, which stay only to be answered as empty.
            tables = {name: keys for name, keys in tables.items() if keys or name == namespace}
        with _cancelled_afterwards():
            try:
                size = await self._write(tables)
            except OSError as error:
                raise KVWriteError(error.errno, f"key-value configuration not written: {error.strerror}") from error
            if size > most_bytes:
                raise self._too_large(value, size)
            before, self._tables, self._file_bytes = self.get(namespace, key), tables, size
            self._on_change(namespace, key, before, value)

    async def _write(self, tables: Tables) -> int:
        """Write the tables, log a first failure and a recovery, and return the size of the file. Raises OSError."""
        had_failed = self.writes.has_failed
        try:
            size = await self._write_to_the_end(tables)
        except OSError as error:
            # The first failure has a line: operators repeat changes, and a full disk should get no line for each.
            if not had_failed:
                event(logger, logging.ERROR, "kv_write_failed", path=self._path, error=error)
            raise
        if had_failed and not self.writes.has_failed:
            hint = "changes that were refused meanwhile are not made; repeat them"
            event(logger, logging.INFO, "kv_write_recovered", path=self._path, hint=hint)
        return size

    async def _write_to_the_end(self, tables: Tables) -> int:
        """Write the tables in a thread, also in a cancelled task; return their size. Raises OSError."""
        try:
            write = begun_in_thread(self._write_file, tables, self._most_bytes)
        except NoThreadError:
            # A write for which no thread can start has failed as well.
            with self.writes.writing():
                raise
        while not write.done():
            # A thread cannot be stopped, and the next change has to know the result of this one.
            with suppress(asyncio.CancelledError):
                await asyncio.wait({write})
        try:
            return write.result()
        finally:
            # The future's exception refers to this frame: without `del`, megabytes would stay in a reference cycle.
            del write

    def _write_file(self, tables: Tables, most_bytes: int) -> int:
        data = encode(tables)
        # Content that is too large is not written, and shows nothing about the disk.
        if len(data) <= most_bytes:
            with self.writes.writing():
                write_atomically(self._path, data)
        return len(data)

    def __repr__(self) -> str:
        keys = sum(map(len, self._tables.values()))
        writing = "yes" if self._writing.locked() else "no"
        return f"<KVConfig [{len(self._tables)} namespaces | {keys} keys | writing: {writing}]>"


@contextmanager
def _cancelled_afterwards() -> Iterator[None]:
    """Raise a cancellation that the block has put off, at the block's end and in place of any other error."""
    try:
        yield
    finally:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError


def _check_name(field: str, name: str, limit: int) -> None:
    if len(name) > limit:
        raise KVLimitError(field, name, f"{field} of {len(name)} characters, limit {limit}: {name[:40]!r}...")
    if CONTROL_CHARACTER.search(name):
        raise KVLimitError(field, name, f"{field} with a control character: {name!r}")
    _check_unicode(field, name)


def _check_unicode(field: str, text: str) -> None:
    if LONE_SURROGATE.search(text):
        raise KVLimitError(field, text, f"{field} that is not unicode: {text[:40]!r}")


def encode(tables: Tables) -> bytes:
    """The content of the file."""
    return msgspec.json.encode({"configTable": tables})


def read_file(path: Path) -> Tables:
    """The content of the file; empty without a file, and for a damaged file, which is set aside with a warning.

    Raises OSError if the file cannot be read or set aside: a start without the file would lose the operators' entries.
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
    """The tables, and the problems of entries that were left out. Raises ValueError or RecursionError."""
    # Like Apache's reader, this one keeps bare numbers as the text in which they are written.
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
            # Apache's server writes null for a put without a value.
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
