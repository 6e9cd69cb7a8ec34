"""Changes that meet on a slow disk, a failing one, or are cancelled, leave memory and file alike."""

import asyncio
import errno
from pathlib import Path

import pytest

from namesrv.kv.store import KVConfig, KVLimitError, KVLimits, KVWriteError
from tests.namesrv.kv.slow_disk import begin, bring_back, slow_disk, take_away
from tests.support.fake_clock import settle


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
        assert "<KVConfig [0 namespaces | 0 keys | writing: yes]>" == repr(kv)

        await disk.write()
        assert put.done()
        assert "v" == kv.get("NS", "k")
        assert "<KVConfig [1 namespaces | 1 keys | writing: no]>" == repr(kv)


async def test_changes_are_made_in_the_order_in_which_they_came(path: Path) -> None:
    """Each knows what the ones before it did; one that changes nothing is not written."""
    kv = KVConfig.load(path, KVLimits(max_keys_per_namespace=2))
    async with slow_disk() as disk:
        await begin(kv.put("NS", "a", "1"), kv.put("NS", "a", "2"), kv.put("NS", "a", "2"), kv.put("NS", "b", "3"))
        refused, deleted, again = await begin(kv.put("NS", "c", "4"), kv.delete("NS", "a"), kv.delete("NS", "a"))
        for _ in range(4):
            assert 1 == disk.waiting
            await disk.write()

    with pytest.raises(KVLimitError, match="key 'c' exceeds the limit of 2 keys"):
        await refused
    assert (True, False) == (deleted.result(), again.result())
    assert {"NS": {"b": "3"}} == kv.all() == KVConfig.load(path).all()


@pytest.mark.parametrize("cancelled", ["first", "second"])
async def test_cancelled_change_happens_only_if_its_write_had_begun(path: Path, cancelled: str) -> None:
    """A write that has begun is not stopped, and memory and file agree; its neighbours are written in either case."""
    kv = KVConfig.load(path)
    async with slow_disk() as disk:
        tasks = await begin(*(kv.put("NS", name, "v") for name in ("first", "second", "third")))
        dict(zip(("first", "second", "third"), tasks, strict=True))[cancelled].cancel()
        await settle()
        while disk.waiting:
            await disk.write()

    assert [name == cancelled for name in ("first", "second", "third")] == [task.cancelled() for task in tasks]
    written = ("first", "second", "third") if cancelled == "first" else ("first", "third")
    assert {"NS": dict.fromkeys(written, "v")} == kv.all() == KVConfig.load(path).all()


# ---- a disk that fails ----


async def test_write_that_fails_changes_nothing(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The data directory goes away: each change is refused with an error in the log, and both sides stay."""
    kv = KVConfig.load(path)
    await kv.put("NS", "old", "v")
    before = kv.all()
    take_away(path.parent)

    async with slow_disk() as disk:
        (first,) = await begin(kv.put("NS", "old", "changed"))
        put, deleted = await begin(kv.put("NS", "new", "v"), kv.delete("NS", "old"))
        for _ in range(3):
            await disk.write()

    for change in (first, put, deleted):
        with pytest.raises(KVWriteError, match="key-value configuration not written: No such file or directory"):
            await change
    assert errno.ENOENT == first.exception().errno  # type: ignore[union-attr]  # it is a KVWriteError
    assert before == kv.all()
    assert ["kv_write_failed"] * 3 == [record.msg for record in caplog.records]
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
    assert "<KVConfig [0 namespaces | 0 keys | writing: no]>" == repr(kv)
