"""Is what `get` shows on disk, and does a change that failed, or was cancelled, do no harm?"""

import asyncio
import errno
import os
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from namesrv import kv_file
from namesrv.kvconfig import KVConfig, KVLimitError, KVLimits, KVReadError, KVWriteError
from tests.support.fake_clock import settle

T = TypeVar("T")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the file is, in a data directory of its own."""
    (tmp_path / "data").mkdir()
    return tmp_path / "data" / "kvConfig.json"


class Disk(ThreadPoolExecutor):
    """The loop's threads, except that a write happens when the test says so."""

    def __init__(self) -> None:
        super().__init__(max_workers=1)
        self._writes: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Note the write."""
        future: Future[T] = Future()
        self._writes.append((future, lambda: fn(*args, **kwargs)))
        return future

    @property
    def waiting(self) -> int:
        """How many writes were asked for and not done yet."""
        return len(self._writes)

    async def write(self) -> None:
        """Do the write that waits."""
        future, work = self._writes.pop(0)
        try:
            future.set_result(work())
        except OSError as error:
            future.set_exception(error)
        await settle()


@asynccontextmanager
async def slow_disk() -> AsyncIterator[Disk]:
    """A disk of which every write is a step of the test."""
    disk = Disk()
    asyncio.get_running_loop().set_default_executor(disk)
    yield disk
    assert 0 == disk.waiting


async def begin(*changes: Coroutine[Any, Any, T]) -> list[asyncio.Task[T]]:
    """Start changes, in this order, and let them come as far as they can."""
    tasks = [asyncio.create_task(change) for change in changes]
    await settle()
    return tasks


# ---- one change at a time ----


async def test_put_is_shown_and_on_disk(path: Path) -> None:
    """When put returns, the value is there, and the file holds it for the next life of the server."""
    kv = KVConfig.load(path)
    await kv.put("ORDER_TOPIC_CONFIG", "orders", "broker-a:4")
    await kv.put("ORDER_TOPIC_CONFIG", "bills", "broker-b:4")

    assert "broker-a:4" == kv.get("ORDER_TOPIC_CONFIG", "orders")
    assert {"orders": "broker-a:4", "bills": "broker-b:4"} == kv.namespace("ORDER_TOPIC_CONFIG")
    assert '{"configTable":{"ORDER_TOPIC_CONFIG":{"orders":"broker-a:4","bills":"broker-b:4"}}}' == path.read_text()
    assert kv.all() == KVConfig.load(path).all()


async def test_what_is_not_there(path: Path) -> None:
    """Neither an unknown key nor an unknown namespace is an error."""
    kv = KVConfig.load(path)
    await kv.put("NS", "k", "v")

    assert kv.get("NS", "other") is None
    assert kv.get("other", "k") is None
    assert kv.namespace("other") is None
    assert {"NS": {"k": "v"}} == kv.all()


async def test_put_replaces(path: Path) -> None:
    """The last value counts; an empty one is a value."""
    kv = KVConfig.load(path)
    for value in ("old", "new", ""):
        await kv.put("NS", "k", value)
        assert value == kv.get("NS", "k")

    assert "" == KVConfig.load(path).get("NS", "k")


async def test_delete_says_whether_it_was_there_and_keeps_the_namespace(path: Path) -> None:
    """A namespace whose last key was deleted stays, empty, as with Apache's server, and survives a restart."""
    kv = KVConfig.load(path)
    await kv.put("NS", "k", "v")

    assert await kv.delete("NS", "k") is True
    assert await kv.delete("NS", "k") is False
    assert await kv.delete("other", "k") is False
    assert kv.get("NS", "k") is None
    assert {} == kv.namespace("NS")
    assert {"NS": {}} == KVConfig.load(path).all()


async def test_nothing_changed_nothing_written(path: Path) -> None:
    """Deleting what is not there, or putting what is there already, leaves the file alone."""
    kv = KVConfig.load(path)
    await kv.delete("NS", "k")
    assert not path.exists()

    await kv.put("NS", "k", "v")
    before = path.stat().st_ino
    await kv.put("NS", "k", "v")
    await kv.delete("NS", "other")
    assert before == path.stat().st_ino


async def test_tables_that_were_handed_out_do_not_change(path: Path) -> None:
    """Who encodes an answer from a table is not disturbed by a put in the meantime."""
    kv = KVConfig.load(path)
    await kv.put("NS", "k", "v")
    everything, table = kv.all(), kv.namespace("NS")

    await kv.put("NS", "k", "new")
    await kv.put("NEW", "k", "v")

    assert {"NS": {"k": "v"}} == everything
    assert {"k": "v"} == table


def test_file_that_cannot_be_read_ends_the_start(path: Path) -> None:
    """The error of the file comes out of load."""
    path.mkdir()

    with pytest.raises(KVReadError):
        KVConfig.load(path)


# ---- limits ----

LIMITS = KVLimits(max_value_bytes=8, max_keys_per_namespace=2, max_namespaces=2, max_file_bytes=100)


@pytest.mark.parametrize(
    ("namespace", "key", "value", "field", "message"),
    [
        ("n" * 256, "k", "v", "namespace", "namespace of 256 characters, limit 255: 'nnnnnnnn"),
        ("NS", "k" * 256, "v", "key", "key of 256 characters, limit 255: 'kkkkkkkk"),
        ("N\nS", "k", "v", "namespace", r"namespace with a control character: 'N\\nS'"),
        ("NS", "k\x7f", "v", "key", r"key with a control character: 'k\\x7f'"),
        ("NS", "\x85k", "v", "key", r"key with a control character: '\\x85k'"),
        ("N\ud800", "k", "v", "namespace", r"namespace that is not unicode: 'N\\ud800'"),
        ("NS", "\udfff", "v", "key", r"key that is not unicode: '\\udfff'"),
        ("NS", "k", "\ud800", "value", r"value that is not unicode: '\\ud800'"),
        ("NS", "k", "123456789", "value", "value of 9 bytes, limit 8: '123456789'"),
        ("NS", "k", "äöüä" + "x", "value", "value of 9 bytes, limit 8: 'äöüäx'"),
        ("NS", "three", "v", "key", "key 'three' is one more than 2 in namespace 'NS'"),
        ("THREE", "k", "v", "namespace", "namespace 'THREE' is one more than 2"),
    ],
)
async def test_limits_are_named(path: Path, namespace: str, key: str, value: str, field: str, message: str) -> None:
    """What is too much is refused with the field, the value and the limit, and changes nothing."""
    kv = KVConfig.load(path, LIMITS)
    for number in range(2):
        await kv.put("NS", f"k{number}", "v")
    await kv.delete("NS", "nothing")
    await kv.put("TWO", "k", "v")
    before = path.read_bytes()

    with pytest.raises(KVLimitError, match=message) as refused:
        await kv.put(namespace, key, value)

    assert field == refused.value.field
    assert {"namespace": namespace, "key": key, "value": value}[field] == refused.value.value
    assert before == path.read_bytes()
    assert {"NS": {"k0": "v", "k1": "v"}, "TWO": {"k": "v"}} == kv.all()


async def test_limits_may_be_reached(path: Path) -> None:
    """Exactly the limit is fine, and what is there may be changed and deleted at the limit."""
    kv = KVConfig.load(path, LIMITS)
    for namespace in ("n" * 10, "m" * 10):
        for key in ("a", "b"):
            await kv.put(namespace, key, "1234")
    await kv.put("n" * 10, "a", "äöüä")
    await kv.delete("n" * 10, "b")
    await kv.put("n" * 10, "c", "v")

    assert {"n" * 10: {"a": "äöüä", "c": "v"}, "m" * 10: {"a": "1234", "b": "1234"}} == kv.all()
    await KVConfig.load(path).put("k" * 255, "k" * 255, "v" * 65_536)


async def test_file_may_not_outgrow_its_limit(path: Path) -> None:
    """All values together are limited, too; what makes the file smaller is always taken."""
    path.write_text('{"configTable":{"NS":{"a":"%s","b":"%s"}}}' % ("x" * 50, "y" * 50))
    kv = KVConfig.load(path, LIMITS)

    with pytest.raises(KVLimitError, match=r"value makes the configuration 1\d\d bytes, limit 100"):
        await kv.put("NEW", "k", "v")
    await kv.put("NS", "a", "short")
    await kv.delete("NS", "b")
    await kv.put("NEW", "k", "v")

    assert {"NS": {"a": "short"}, "NEW": {"k": "v"}} == kv.all()
    assert path.stat().st_size <= 100


async def test_what_the_file_holds_is_kept_beyond_the_limits(path: Path) -> None:
    """A limit that was lowered between two starts takes nothing away."""
    path.write_text('{"configTable":{"A":{"1":"%s","2":"","3":""},"B":{},"C":{}}}' % ("x" * 9))
    kv = KVConfig.load(path, LIMITS)

    await kv.put("A", "3", "v")

    assert {"A": {"1": "x" * 9, "2": "", "3": "v"}, "B": {}, "C": {}} == KVConfig.load(path, LIMITS).all()


async def test_size_is_counted_as_the_file_grows_and_shrinks(path: Path) -> None:
    """After any changes the counted size is that of a fresh start."""
    kv = KVConfig.load(path)
    dice = random.Random(9876)
    for _ in range(100):
        namespace, key = dice.choice(["A", "B", "Ä"]), dice.choice(["a", "b", "ö"])
        if dice.random() < 0.3:
            await kv.delete(namespace, key)
        else:
            await kv.put(namespace, key, '"\n' * dice.randrange(5))

    assert KVConfig.load(path)._file_bytes == kv._file_bytes


# ---- many changes at a time ----


async def test_value_is_shown_only_once_it_is_on_disk(path: Path) -> None:
    """While the disk is slow, put has not returned, and get shows what the file holds."""
    kv = KVConfig.load(path)
    async with slow_disk() as disk:
        (put,) = await begin(kv.put("NS", "k", "v"))
        assert not put.done()
        assert kv.get("NS", "k") is None
        assert "<KVConfig [0 namespaces | 0 keys | writing: yes | waiting: 0]>" == repr(kv)

        await disk.write()
        assert put.done()
        assert "v" == kv.get("NS", "k")
        assert "<KVConfig [1 namespaces | 1 keys | writing: no | waiting: 0]>" == repr(kv)


async def test_changes_during_a_write_share_the_next_one(path: Path) -> None:
    """A hundred puts while the first is written take one write more; each returns with the write that contains it."""
    kv = KVConfig.load(path)
    async with slow_disk() as disk:
        (first,) = await begin(kv.put("NS", "first", "v"))
        others = await begin(*(kv.put("NS", str(number), "v") for number in range(100)))
        assert 1 == disk.waiting

        await disk.write()
        assert first.done()
        assert not any(other.done() for other in others)
        assert {"NS": {"first": "v"}} == kv.all()

        assert 1 == disk.waiting
        await disk.write()
        assert all(other.done() for other in others)
        assert {"first", *map(str, range(100))} == set(KVConfig.load(path).all()["NS"])


async def test_changes_of_one_write_are_made_in_order(path: Path) -> None:
    """Within one write the last put wins, and delete knows what was put before it."""
    kv = KVConfig.load(path)
    async with slow_disk() as disk:
        await begin(kv.put("NS", "first", "v"))
        await begin(kv.put("NS", "a", "1"), kv.put("NS", "a", "2"))
        deleted = await begin(kv.delete("NS", "a"), kv.delete("NS", "a"), kv.delete("NS", "first"))
        await begin(kv.put("NS", "b", "3"), kv.put("NS", "b", "4"))
        await disk.write()
        await disk.write()

    assert [True, False, True] == [task.result() for task in deleted]
    assert {"NS": {"b": "4"}} == kv.all()


async def test_changes_that_cancel_out_are_not_written(path: Path) -> None:
    """A delete of nothing that waited for a write is answered without one of its own."""
    kv = KVConfig.load(path)
    async with slow_disk() as disk:
        await begin(kv.put("NS", "k", "v"))
        (same, nothing) = await begin(kv.put("NS", "k", "v"), kv.delete("NS", "other"))
        await disk.write()

        assert same.done()
        assert nothing.result() is False


async def test_limits_count_what_waits(path: Path) -> None:
    """Two puts of which only one fits: the later one is refused, the earlier one is written."""
    kv = KVConfig.load(path, LIMITS)
    async with slow_disk() as disk:
        await begin(kv.put("NS", "one", "v"))
        fits, refused = await begin(kv.put("NS", "two", "v"), kv.put("NS", "three", "v"))
        await disk.write()
        with pytest.raises(KVLimitError, match="key 'three' is one more than 2"):
            await refused
        await disk.write()
        await fits

    assert {"NS": {"one": "v", "two": "v"}} == kv.all()


# ---- cancellation ----


async def test_cancelled_before_its_write_it_has_not_happened(path: Path) -> None:
    """A put that is cancelled while it waits for its turn is never written; its neighbours are."""
    kv = KVConfig.load(path)
    async with slow_disk() as disk:
        await begin(kv.put("NS", "first", "v"))
        cancelled, other = await begin(kv.put("NS", "cancelled", "v"), kv.put("NS", "other", "v"))
        cancelled.cancel()
        await disk.write()
        await disk.write()
        await other

    assert {"NS": {"first": "v", "other": "v"}} == kv.all() == KVConfig.load(path).all()


async def test_cancelled_during_its_write_it_happens_all_the_same(path: Path) -> None:
    """A write that has begun is not stopped: memory and file agree, and those who share it are answered."""
    kv = KVConfig.load(path)
    async with slow_disk() as disk:
        (cancelled,) = await begin(kv.put("NS", "cancelled", "v"))
        (waiting,) = await begin(kv.put("NS", "waiting", "v"))
        cancelled.cancel()
        await settle()
        assert cancelled.cancelled()
        await disk.write()
        await disk.write()
        await waiting

    assert {"NS": {"cancelled": "v", "waiting": "v"}} == kv.all() == KVConfig.load(path).all()


async def test_all_that_wait_are_cancelled(path: Path) -> None:
    """When nobody is left to write for, nothing is written, and the next change finds everything in order."""
    kv = KVConfig.load(path)
    async with slow_disk() as disk:
        await begin(kv.put("NS", "first", "v"))
        for task in await begin(kv.put("NS", "a", "v"), kv.delete("NS", "first")):
            task.cancel()
        await disk.write()
        assert 0 == disk.waiting

        await begin(kv.put("NS", "last", "v"))
        await disk.write()

    assert {"NS": {"first": "v", "last": "v"}} == kv.all()


# ---- a disk that fails ----


async def test_write_that_fails_changes_nothing(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The data directory goes away: all changes of the write are refused, one error is logged, and both sides stay."""
    kv = KVConfig.load(path)
    await kv.put("NS", "old", "v")
    before = kv.all()
    path.parent.rename(path.parent.with_name("away"))

    async with slow_disk() as disk:
        (first,) = await begin(kv.put("NS", "old", "changed"))
        put, deleted = await begin(kv.put("NS", "new", "v"), kv.delete("NS", "old"))
        await disk.write()
        await disk.write()

    for change in (first, put, deleted):
        with pytest.raises(KVWriteError, match="key-value configuration not written: No such file or directory"):
            await change
    assert errno.ENOENT == first.exception().errno  # type: ignore[union-attr]  # it is a KVWriteError
    assert before == kv.all()
    assert ["kv_write_failed"] * 2 == [record.msg for record in caplog.records]
    assert path == vars(caplog.records[0])["fields"]["path"]

    path.parent.with_name("away").rename(path.parent)
    assert {"NS": {"old": "v"}} == KVConfig.load(path).all()
    await kv.put("NS", "new", "v")
    assert {"NS": {"old": "v", "new": "v"}} == KVConfig.load(path).all()


async def test_write_that_failed_does_not_count(path: Path) -> None:
    """The bytes of a refused change are not held against the next one."""
    kv = KVConfig.load(path)
    path.parent.rename(path.parent.with_name("away"))
    with pytest.raises(KVWriteError):
        await kv.put("NS", "k", "v")

    assert KVConfig.load(path)._file_bytes == kv._file_bytes


async def test_error_that_is_no_disks_comes_out_as_it_is(path: Path) -> None:
    """When the loop has no threads any more, the change is refused and not left waiting."""
    kv = KVConfig.load(path)
    await asyncio.get_running_loop().shutdown_default_executor()

    with pytest.raises(RuntimeError, match="Executor shutdown has been called"):
        await kv.put("NS", "k", "v")
    assert {} == kv.all()
    assert "<KVConfig [0 namespaces | 0 keys | writing: no | waiting: 0]>" == repr(kv)


FULL_DISK = """
import asyncio, resource, sys
from pathlib import Path
from namesrv.kvconfig import KVConfig, KVWriteError

async def main():
    kv = KVConfig.load(Path(sys.argv[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, (4_000, resource.RLIM_INFINITY))
    await kv.put("NS", "fits", "x" * 3_000)
    try:
        await kv.put("NS", "does not", "x" * 3_000)
    except KVWriteError as error:
        print(error.strerror)
    print(*kv.namespace("NS"), *KVConfig.load(Path(sys.argv[1])).namespace("NS"))
    await kv.delete("NS", "fits")
    await kv.put("NS", "now it does", "x" * 3_000)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

asyncio.run(main())
"""

WRITES_FOREVER = """
import asyncio, sys
from pathlib import Path
from namesrv.kvconfig import KVConfig

async def writer(kv, name):
    number = 0
    while True:
        number += 1
        await kv.put(name, "last", str(number))
        print(name, number, flush=True)

async def main():
    kv = KVConfig.load(Path(sys.argv[1]))
    await asyncio.gather(*(writer(kv, f"writer-{number}") for number in range(4)))

asyncio.run(main())
"""


def run_script(script: str, path: Path) -> subprocess.Popen[str]:
    """A Python process of its own that finds what we find."""
    return subprocess.Popen(
        [sys.executable, "-c", script, str(path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def test_full_disk(path: Path) -> None:
    """A put that the kernel takes half of is refused; memory and file agree; a smaller configuration fits again."""
    with run_script(FULL_DISK, path) as process:
        output, _ = process.communicate()

    assert 0 == process.returncode
    assert [f"key-value configuration not written: {os.strerror(errno.EFBIG)}", "fits fits"] == output.splitlines()
    assert {"NS": {"now it does": "x" * 3_000}} == KVConfig.load(path).all()
    assert [path] == list(path.parent.iterdir())


def test_confirmed_puts_survive_a_kill(path: Path) -> None:
    """Ten servers killed while four writers put: the file is whole, and holds all that was confirmed."""
    dice = random.Random(9876)
    for _ in range(10):
        confirmed: dict[str, int] = {}
        with run_script(WRITES_FOREVER, path) as process:
            assert process.stdout is not None
            for _ in range(dice.randrange(4, 20)):
                process.stdout.readline()
            process.send_signal(signal.SIGKILL)
            for line in process.stdout:
                name, _, number = line.partition(" ")
                confirmed[name] = int(number)

        kv = KVConfig.load(path)
        assert not [name for name in path.parent.iterdir() if name != path]
        for name, last in confirmed.items():
            held = int(kv.get(name, "last") or 0)
            assert last <= held <= last + 1, (name, last, held)


# ---- any schedule ----


@dataclass(frozen=True)
class Step:
    """One step of a schedule; which number of a change, key or value it is about."""

    what: str
    key: int
    value: int


steps = st.lists(
    st.builds(
        Step,
        what=st.sampled_from(["put", "put", "delete", "cancel", "disk", "disk", "break", "mend"]),
        key=st.integers(0, 3),
        value=st.integers(0, 2),
    ),
    max_size=30,
)


@settings(max_examples=150)
@given(steps)
def test_memory_is_the_file_on_any_schedule(tmp_path_factory: pytest.TempPathFactory, schedule: list[Step]) -> None:
    """Changes, cancellations, writes and a disk that comes and goes, in any order.

    Memory is what the file holds after every write, a change that returned is in it until the next one of its key, and
    one that was refused is not.
    """
    path = tmp_path_factory.mktemp("kv") / "data" / "kvConfig.json"
    path.parent.mkdir()

    async def follow() -> None:
        kv = KVConfig.load(path)
        changes: list[tuple[str, str | None, asyncio.Task[Any]]] = []
        async with slow_disk() as disk:
            for step in [*schedule, Step("mend", 0, 0)]:
                await take(step, kv, disk, changes)
            while disk.waiting:
                await disk.write()
        assert all(task.done() for *_, task in changes)
        for key in "0123":
            assert kv.get("NS", key) in possible_values(key, changes)
        assert kv.all() == kv_file.read(path)
        assert KVConfig.load(path)._file_bytes == kv._file_bytes

    async def take(step: Step, kv: KVConfig, disk: Disk, changes: list[Any]) -> None:
        key, value, away = str(step.key), str(step.value), path.parent.with_name("away")
        match step.what:
            case "put":
                changes.append((key, value, (await begin(kv.put("NS", key, value)))[0]))
            case "delete":
                changes.append((key, None, (await begin(kv.delete("NS", key)))[0]))
            case "cancel" if step.key < len(changes):
                changes[-1 - step.key][-1].cancel()
                await settle()
            case "disk" if disk.waiting:
                await disk.write()
                if path.parent.exists():
                    assert kv.all() == kv_file.read(path)
            case "break" if path.parent.exists():
                path.parent.rename(away)
            case "mend" if away.exists():
                away.rename(path.parent)

    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        runner.run(follow())


def possible_values(key: str, changes: list[tuple[str, str | None, asyncio.Task[Any]]]) -> set[str | None]:
    """What a key may hold: the last change that returned, or a cancelled one after it, which may have been too late."""
    possible: set[str | None] = {None}
    for changed, value, task in changes:
        if changed == key:
            if task.cancelled():
                possible.add(value)
            elif task.exception() is None:
                possible = {value}
            else:
                assert isinstance(task.exception(), KVWriteError)
    return possible
