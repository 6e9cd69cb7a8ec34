"""The key-value configuration: memory equals the file after any sequence of events, and limits are enforced."""

import asyncio
import gc
import logging
import tracemalloc
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from namesrv.kv import RETRY_SECONDS, KVConfig, KVLimitError, KVLimits, KVWriteError, decode, encode, read_file
from namesrv.settings.limits import Limits
from namesrv.settings.model import Settings
from tests.support.fake_clock import FakeClock, settle, until
from tests.support.logged import logged
from tests.support.threads import do_queued_work, without_new_threads

T = TypeVar("T")

DEFAULTS = Limits.of(Settings()).kv
LIMITS = KVLimits(max_value_bytes=8, max_keys_per_namespace=2, max_namespaces=2, max_file_bytes=100)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path of the file in a data directory."""
    (tmp_path / "data").mkdir()
    return tmp_path / "data" / "kvConfig.json"


def load(path: Path, limits: KVLimits = DEFAULTS) -> KVConfig:
    """The configuration of a starting server."""
    return KVConfig.load(path, limits)


# ---- concurrent changes on a disk whose writes the test triggers ----


class Disk(ThreadPoolExecutor):
    """The loop's executor, whose writes run when the test triggers them."""

    def __init__(self) -> None:
        super().__init__(max_workers=1)
        self._writes: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Queue a write."""
        future: Future[T] = Future()
        self._writes.append((future, lambda: fn(*args, **kwargs)))
        return future

    @property
    def waiting(self) -> int:
        """The number of queued writes."""
        return len(self._writes)

    async def write(self) -> None:
        """Run the queued write."""
        future, work = self._writes.pop(0)
        try:
            future.set_result(work())
        except OSError as error:
            future.set_exception(error)
        await settle()


@asynccontextmanager
async def slow_disk() -> AsyncIterator[Disk]:
    """A disk whose writes the test triggers one by one."""
    disk = Disk()
    asyncio.get_running_loop().set_default_executor(disk)
    yield disk
    assert disk.waiting == 0


async def begin(*changes: Coroutine[Any, Any, T]) -> list[asyncio.Task[T]]:
    """Start changes in order, and let each run until it waits."""
    tasks = [asyncio.create_task(change) for change in changes]
    await settle()
    return tasks


VALUES = ("", "1", "2")
STEPS = st.sampled_from(["put", "put", "delete", "cancel", "disk", "disk", "break", "mend", "retry"])


@given(st.lists(st.tuples(STEPS, st.integers(0, 3), st.integers(0, 2)), max_size=30))
def test_memory_equals_the_file_on_any_schedule(
    tmp_path_factory: pytest.TempPathFactory, schedule: list[tuple[str, int, int]]
) -> None:
    """Changes, cancellations, writes and failures of the disk happen in any order.

    Memory equals the file at any moment. A change that returned is in it until the next change of its key, and a failed
    one is not.
    """
    path = tmp_path_factory.mktemp("kv") / "data" / "kvConfig.json"
    path.parent.mkdir()
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        kv, changes = runner.run(follow(path, schedule))
    if not path.parent.exists():
        path.parent.with_name("away").rename(path.parent)
    check(kv, path)
    for name in "0123":
        assert kv.get("NS", name) in possible_values(name, changes)


# key, value or None for a deletion, and the task of the change
Change = tuple[str, str | None, asyncio.Task[Any]]


async def follow(path: Path, schedule: list[tuple[str, int, int]]) -> tuple[KVConfig, list[Change]]:
    """Take the steps, and check after each that memory equals the file."""
    kv, here, away = load(path), path.parent, path.parent.with_name("away")
    changes: list[Change] = []
    async with slow_disk() as disk:
        for what, key, value in schedule:
            if what == "put":
                changes.append((str(key), VALUES[value], (await begin(kv.put("NS", str(key), VALUES[value])))[0]))
            elif what == "delete":
                changes.append((str(key), None, (await begin(kv.delete("NS", str(key))))[0]))
            elif what == "cancel" and key < len(changes):
                changes[-1 - key][-1].cancel()
                await settle()
            elif what == "disk" and disk.waiting:
                await disk.write()
            elif what == "retry":
                await begin(kv.retry())
            elif what == "break" and here.exists():
                here.rename(away)
            elif what == "mend" and away.exists():
                away.rename(here)
            check(kv, path)
            assert disk.waiting <= 1
        while disk.waiting:
            await disk.write()
    return kv, changes


def check(kv: KVConfig, path: Path) -> None:
    """Assert that memory equals the file, and so does its size."""
    if path.parent.exists():
        assert kv._tables == read_file(path)
        assert load(path)._file_bytes == kv._file_bytes


def possible_values(key: str, changes: list[Change]) -> set[str | None]:
    """Values that a key may have: of the last change that returned, or of a cancelled change after it."""
    possible: set[str | None] = {None}
    for changed, value, task in changes:
        assert task.done()
        if changed == key:
            if task.cancelled():
                possible.add(value)
            elif task.exception() is None:
                possible = {value}
            else:
                assert isinstance(task.exception(), KVWriteError)
    return possible


@pytest.mark.parametrize(
    ("change", "field", "message"),
    [
        (("n" * 256, "k", "v"), "namespace", "namespace of 256 characters, limit 255: 'nnnnnnnn"),
        (("NS", "k" * 256, "v"), "key", "key of 256 characters, limit 255: 'kkkkkkkk"),
        (("N\nS", "k", "v"), "namespace", r"namespace with a control character: 'N\\nS'"),
        (("NS", "k\x7f", "v"), "key", r"key with a control character: 'k\\x7f'"),
        (("NS", "\x85k", "v"), "key", r"key with a control character: '\\x85k'"),
        (("N\ud800", "k", "v"), "namespace", r"namespace that is not unicode: 'N\\ud800'"),
        (("NS", "\udfff", "v"), "key", r"key that is not unicode: '\\udfff'"),
        (("NS", "k", "\ud800"), "value", r"value that is not unicode: '\\ud800'"),
        (("NS", "k", "123456789"), "value", "value of 9 bytes, limit 8: '123456789'"),
        (("NS", "k", "äöüä" + "x"), "value", "value of 9 bytes, limit 8: 'äöüäx'"),
        (("NS", "three", "v"), "key", "key 'three' exceeds the limit of 2 keys in namespace 'NS'"),
        (("THREE", "k", "v"), "namespace", "namespace 'THREE' exceeds the limit of 2 namespaces"),
    ],
)
async def test_change_beyond_a_limit_is_refused(
    path: Path, change: tuple[str, str, str], field: str, message: str
) -> None:
    """A refused change has field, value and limit in its message, and changes nothing."""
    kv = load(path, LIMITS)
    for number in range(2):
        await kv.put("NS", f"k{number}", "v")
    await kv.delete("NS", "unknown")
    await kv.put("TWO", "k", "v")
    before = path.read_text()

    with pytest.raises(KVLimitError, match=message) as refused:
        await kv.put(*change)

    assert refused.value.field == field
    assert change[["namespace", "key", "value"].index(field)] == refused.value.value
    assert path.read_text() == before
    assert kv._tables == {"NS": {"k0": "v", "k1": "v"}, "TWO": {"k": "v"}}


async def test_namespaces_without_keys_make_room(path: Path) -> None:
    """A namespace stays after its last key was deleted, until the limit of namespaces is reached."""
    kv = load(path, LIMITS)
    for namespace in ("ONE", "TWO"):
        await kv.put(namespace, "k", "v")
    await kv.delete("ONE", "k")
    assert kv.namespace("ONE") == {}

    await kv.put("THREE", "k", "v")

    assert kv._tables == {"TWO": {"k": "v"}, "THREE": {"k": "v"}}
    with pytest.raises(KVLimitError, match="namespace 'ONE' exceeds the limit of 2 namespaces"):
        await kv.put("ONE", "k", "v")


async def test_limits_may_be_reached(path: Path) -> None:
    """Values of exactly the limit are accepted, and existing keys can be changed and deleted at the limit."""
    kv = load(path, LIMITS)
    for namespace in ("n" * 10, "m" * 10):
        for key in ("a", "b"):
            await kv.put(namespace, key, "1234")
    await kv.put("n" * 10, "a", "äöüä")
    await kv.delete("n" * 10, "b")
    await kv.put("n" * 10, "c", "v")

    assert kv._tables == {"n" * 10: {"a": "äöüä", "c": "v"}, "m" * 10: {"a": "1234", "b": "1234"}}
    await load(path).put("k" * 255, "k" * 255, "v" * 16_384)


async def test_size_of_the_file_is_limited(path: Path) -> None:
    """A change that makes the file too large is refused; one that makes it smaller is always accepted."""
    path.write_bytes(encode({"NS": {"a": "x" * 50, "b": "y" * 150}}))
    kv = load(path, LIMITS)

    with pytest.raises(KVLimitError, match=r"value makes the configuration 2\d\d bytes, limit 100"):
        await kv.put("NEW", "k", "v")
    await kv.put("NS", "a", "")
    await kv.put("NS", "b", "short")
    await kv.put("NS", "a", "short")
    await kv.delete("NS", "b")
    await kv.put("NEW", "k", "v")

    assert kv._tables == {"NS": {"a": "short"}, "NEW": {"k": "v"}}
    assert path.stat().st_size <= 100


async def test_disk_that_works_again_is_noticed_without_a_change(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """After a failed change the unchanged content is written again, until that succeeds."""
    caplog.set_level(logging.INFO)
    kv, clock = load(path), FakeClock()
    await kv.put("NS", "k", "v")
    retries = asyncio.create_task(kv.run(clock))
    away = path.parent.rename(path.parent.with_name("away"))
    with pytest.raises(KVWriteError):
        await kv.put("NS", "k", "not written")
    with pytest.raises(KVLimitError):
        await kv.put("NS", "k" * 256, "a refused change writes nothing, and shows nothing about the disk")

    await clock.advance(100.0)
    await until(lambda: not kv._writing.locked())
    assert kv.writes.problem() == "no such file or directory"
    away.rename(path.parent)
    await clock.advance(RETRY_SECONDS)
    await until(lambda: kv.writes.problem() is None)
    await until(lambda: not kv._writing.locked())

    assert len(logged(caplog, "kv_write_failed")) == 1
    [recovered] = logged(caplog, "kv_write_recovered")
    assert recovered["hint"] == "changes that were refused meanwhile are not made; repeat them"
    assert read_file(path) == {"NS": {"k": "v"}}
    retries.cancel()


async def test_cancelled_retry_ends_after_its_write(path: Path) -> None:
    """A retry that is cancelled while its write fails again ends, and does not go on for ever."""
    kv = load(path)
    path.parent.rename(path.parent.with_name("away"))
    async with slow_disk() as disk:
        [change] = await begin(kv.put("NS", "k", "v"))
        await disk.write()
        [retry] = await begin(kv.retry())
        retry.cancel()
        await settle()
        await disk.write()

    assert isinstance(change.exception(), KVWriteError)
    assert retry.cancelled()


@pytest.mark.parametrize("is_too_large", [False, True])
async def test_cancelled_change_ends_as_cancelled(path: Path, *, is_too_large: bool) -> None:
    """A change that is cancelled during its write ends as cancelled, also if the write fails or the file is full."""
    kv = load(path, replace(LIMITS, max_file_bytes=38 if is_too_large else 100))
    if not is_too_large:
        path.parent.rename(path.parent.with_name("away"))
    async with slow_disk() as disk:
        [change] = await begin(kv.put("NS", "k", "12345678"))
        change.cancel()
        await settle()
        await disk.write()

    assert change.cancelled()
    assert kv.get("NS", "k") is None


async def test_change_is_made_when_all_tasks_are_cancelled(path: Path) -> None:
    """The end of an event loop cancels every task; a change whose write has begun is made nevertheless."""
    kv = load(path)
    async with slow_disk() as disk:
        [change] = await begin(kv.put("NS", "k", "v"))
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await settle()
        assert not change.done()
        await disk.write()

    assert change.cancelled()
    assert (kv.get("NS", "k"), read_file(path)) == ("v", {"NS": {"k": "v"}})


async def test_refused_puts_free_their_memory(path: Path) -> None:
    """A refused put keeps no encoded file in memory; one of a new key does not even encode it."""
    kv = load(path, replace(DEFAULTS, max_value_bytes=1 << 20, max_file_bytes=1 << 20))
    await kv.put("NS", "large", "x" * 900_000)
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(10):
            with pytest.raises(KVLimitError):
                await kv.put("NS", f"k{number}", "y" * 200_000)
        _, most = tracemalloc.get_traced_memory()
        for _ in range(10):
            with pytest.raises(KVLimitError):
                await kv.put("NS", "large", "y" * 1_048_576)
        # The thread that wrote last may hold its value for a moment longer.
        await until(lambda: tracemalloc.get_traced_memory()[0] - before < 1_000_000)
    finally:
        tracemalloc.stop()
        gc.enable()

    assert most - before < 900_000


ORDERS = "broker-a:4;broker-b:4"


def kept_aside(directory: Path) -> list[bytes]:
    """The contents of damaged files that were set aside."""
    return [path.read_bytes() for path in directory.iterdir() if ".damaged-" in path.name]


def test_file_has_the_format_of_apache(tmp_path: Path) -> None:
    """The file is compact JSON under `configTable` with unescaped Unicode, as Apache's server writes it."""
    path = tmp_path / "kvConfig.json"
    path.write_bytes(encode({"NS": {"k": "v", "grüße": '"\n'}, "EMPTY": {}}))

    assert path.read_text("utf-8") == '{"configTable":{"NS":{"k":"v","grüße":"\\"\\n"},"EMPTY":{}}}'


@pytest.mark.parametrize(
    ("content", "table", "ignored"),
    [
        # a file of Apache's server, with nulls from puts without a value
        (b'{"configTable":{"NS":{"orders":"broker-a:4;broker-b:4"},"EMPTY":{}}}', {"orders": ORDERS}, []),
        (
            b'{"configTable":{"NS":{"k":null,"l":"v"},"E":null}}',
            {"l": "v"},
            ["'NS' 'k' is null", "namespace 'E' is null"],
        ),
        # JSON can hold strings that UTF-8 cannot, and which would break the next write
        (
            rb'{"configTable":{"NS":{"\ud800":"v","k":"\udfff","l":"v"},"\ud800":{}}}',
            {"l": "v"},
            ["'NS' '\\ud800' is not unicode", "'NS' 'k' is not unicode", "namespace '\\ud800' is not unicode"],
        ),
        # a file edited by hand
        (b'{"configTable":{"NS":{"i":10,"e":1e2,"f":1.10}}}', {"i": "10", "e": "1e2", "f": "1.10"}, []),
        (b'{"configTable":{"NS":{"b":true,"c":false}}}', {"b": "true", "c": "false"}, []),
        (b'\xef\xbb\xbf{\n  "configTable": {\n "NS": {"k": "v"}}}\n', {"k": "v"}, []),
    ],
)
def test_file_of_apache_is_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes, table: dict[str, str], ignored: list[str]
) -> None:
    """A file is read as Apache's server reads it; entries without a value are ignored with a warning."""
    path = tmp_path / "kvConfig.json"
    path.write_bytes(content)

    assert read_file(path)["NS"] == table
    assert decode(content)[1] == ignored
    warned = [{"path": path, "count": len(ignored), "first": ignored[0]}] if ignored else []
    assert logged(caplog, "kv_entries_ignored") == warned


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "Expecting value: line 1 column 1"),
        (b'{"configTable":{"NS":{"k":"v"', "Expecting ',' delimiter"),
        (b"\xff\xfe", "can't decode byte 0xff"),
        (b"[]", "file is not an object: []"),
        (b"{}", "configTable is not an object: None"),
        (b'{"configTable":[]}', "configTable is not an object: []"),
        (b'{"configTable":{"NS":"v"}}', "namespace 'NS' is not an object: 'v'"),
        (b'{"configTable":{"NS":{"k":["v"]}}}', "value of 'NS' 'k' is not a string: ['v']"),
        (b"[" * 100_000, ""),
    ],
    ids=["empty", "torn", "not utf-8", "array", "no table", "table array", "namespace text", "value array", "deep"],
)
def test_damaged_file_is_set_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes, reason: str
) -> None:
    """A damaged file is renamed with a warning, and the server starts with an empty configuration."""
    path = tmp_path / "kvConfig.json"
    path.write_bytes(content)

    assert read_file(path) == {}

    assert not path.exists()
    assert kept_aside(tmp_path) == [content]
    (record,) = caplog.records
    assert f"{record.levelname} {record.msg}" == "WARNING damaged_file_set_aside"
    assert reason in vars(record)["fields"]["reason"]


def test_damaged_file_that_cannot_be_set_aside_ends_the_start(tmp_path: Path) -> None:
    """The start fails, because the first write would overwrite the damaged file."""
    path = tmp_path / ("k" * 250)
    path.write_bytes(b"damaged")

    with pytest.raises(OSError, match=r"File name too long: '.*damaged-"):
        read_file(path)

    assert path.read_bytes() == b"damaged"


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)


@given(st.dictionaries(texts, st.dictionaries(texts, texts, max_size=4), max_size=4))
def test_written_tables_are_read_back(
    tmp_path_factory: pytest.TempPathFactory, tables: dict[str, dict[str, str]]
) -> None:
    """Tables are read as they were written."""
    path = tmp_path_factory.getbasetemp() / "every-kvConfig.json"
    path.write_bytes(encode(tables))

    assert read_file(path) == tables


async def test_change_without_a_thread_is_never_made(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A change for which no thread can start fails, and no other thread writes it later; the log has one line."""
    caplog.set_level(logging.INFO)
    kv = load(path)
    with without_new_threads(busy_threads=1) as executor:
        for value in ("1", "2"):
            with pytest.raises(KVWriteError, match="not written: can't start new thread"):
                await kv.put("NS", "k", value)
        assert kv.writes.problem() == "can't start new thread"
    do_queued_work(executor)

    assert (kv.get("NS", "k"), read_file(path)) == (None, {})
    await kv.retry()
    assert kv.writes.problem() is None
    assert [len(logged(caplog, name)) for name in ("kv_write_failed", "kv_write_recovered")] == [1, 1]
