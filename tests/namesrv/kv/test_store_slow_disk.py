"""Do changes that meet on a slow disk, a failing one, or on their way out, leave memory and file alike?"""

import asyncio
import errno
from pathlib import Path

import pytest

from namesrv.kv.store import KVConfig, KVLimitError, KVLimits, KVWriteError
from tests.support.fake_clock import settle
from tests.support.slow_disk import begin, bring_back, slow_disk, take_away


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the file is, in a data directory of its own."""
    (tmp_path / "data").mkdir()
    return tmp_path / "data" / "kvConfig.json"


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
    kv = KVConfig.load(path, KVLimits(max_keys_per_namespace=2))
    async with slow_disk() as disk:
        await begin(kv.put("NS", "one", "v"))
        fits, refused = await begin(kv.put("NS", "two", "v"), kv.put("NS", "three", "v"))
        await disk.write()
        assert refused.done()
        with pytest.raises(KVLimitError, match="key 'three' is one more than 2"):
            await refused
        await disk.write()
        await fits

    assert {"NS": {"one": "v", "two": "v"}} == kv.all()


async def test_namespaces_count_what_waits(path: Path) -> None:
    """Two new namespaces in one write of which only one fits: the later one is refused."""
    kv = KVConfig.load(path, KVLimits(max_namespaces=2))
    async with slow_disk() as disk:
        await begin(kv.put("ONE", "k", "v"))
        fits, again, refused = await begin(kv.put("TWO", "k", "v"), kv.put("TWO", "l", "v"), kv.put("THREE", "k", "v"))
        await disk.write()
        assert refused.done()
        with pytest.raises(KVLimitError, match="namespace 'THREE' is one more than 2"):
            await refused
        await disk.write()
        await fits
        await again

    assert {"ONE": {"k": "v"}, "TWO": {"k": "v", "l": "v"}} == kv.all()


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
    take_away(path.parent)

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

    bring_back(path.parent)
    assert {"NS": {"old": "v"}} == KVConfig.load(path).all()


async def test_disk_that_works_again_is_used_again(path: Path) -> None:
    """After a failed write the next change is written as if nothing had been."""
    kv = KVConfig.load(path)
    await kv.put("NS", "old", "v")
    take_away(path.parent)
    with pytest.raises(KVWriteError):
        await kv.put("NS", "new", "v")
    bring_back(path.parent)

    await kv.put("NS", "new", "v")

    assert {"NS": {"old": "v", "new": "v"}} == kv.all()
    assert {"NS": {"old": "v", "new": "v"}} == KVConfig.load(path).all()


async def test_write_that_failed_does_not_count(path: Path) -> None:
    """The bytes of a refused change are not held against the next one."""
    kv = KVConfig.load(path)
    take_away(path.parent)
    with pytest.raises(KVWriteError):
        await kv.put("NS", "k", "v")

    assert KVConfig.load(path)._file_bytes == kv._file_bytes


async def test_error_that_is_no_disks_comes_out_as_it_is(path: Path) -> None:
    """When the loop has no threads any more, a change is refused at once."""
    kv = KVConfig.load(path)
    await asyncio.get_running_loop().shutdown_default_executor()

    with pytest.raises(RuntimeError, match="Executor shutdown has been called"):
        await kv.put("NS", "k", "v")
    assert {} == kv.all()
    assert "<KVConfig [0 namespaces | 0 keys | writing: no | waiting: 0]>" == repr(kv)


async def test_nobody_is_left_waiting_when_the_loop_is_closed(path: Path) -> None:
    """The last write of a loop is finished; who waits for the next one is told that there is none."""
    kv = KVConfig.load(path)
    async with slow_disk() as disk:
        (last,) = await begin(kv.put("NS", "last", "v"))
        (waiting,) = await begin(kv.put("NS", "waiting", "v"))
        await asyncio.get_running_loop().shutdown_default_executor()
        await disk.write()

    assert last.done()
    assert waiting.done()
    with pytest.raises(RuntimeError, match="Executor shutdown has been called"):
        await waiting
    assert {"NS": {"last": "v"}} == kv.all() == KVConfig.load(path).all()
