"""The key-value configuration: what `get` shows is on disk, and too much is refused."""

import gc
import tracemalloc
from pathlib import Path

import pytest

from namesrv.kv import file as kv_file
from namesrv.kv.store import KVConfig, KVLimitError, KVLimits, KVReadError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the file is, in a data directory of its own."""
    (tmp_path / "data").mkdir()
    return tmp_path / "data" / "kvConfig.json"


def text_of(path: Path) -> str:
    """What the file holds."""
    return path.read_text("utf-8")


def generation(path: Path) -> int:
    """Another one after each write."""
    return path.stat().st_ino


# ---- one change at a time ----


async def test_put_is_shown_and_on_disk(path: Path) -> None:
    """When put returns, the value is there, and the file holds it for the next life of the server."""
    kv = KVConfig.load(path)
    await kv.put("ORDER_TOPIC_CONFIG", "orders", "broker-a:4")
    await kv.put("ORDER_TOPIC_CONFIG", "bills", "broker-b:4")

    assert "broker-a:4" == kv.get("ORDER_TOPIC_CONFIG", "orders")
    assert {"orders": "broker-a:4", "bills": "broker-b:4"} == kv.namespace("ORDER_TOPIC_CONFIG")
    assert '{"configTable":{"ORDER_TOPIC_CONFIG":{"orders":"broker-a:4","bills":"broker-b:4"}}}' == text_of(path)
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
    await kv.put("NS", "k", "v")
    before = generation(path)

    await kv.put("NS", "k", "v")
    await kv.delete("NS", "other")
    await kv.delete("OTHER", "k")

    assert before == generation(path)


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
async def test_limits_are_named(path: Path, change: tuple[str, str, str], field: str, message: str) -> None:
    """What is too much is refused with the field, the value and the limit, and changes nothing."""
    kv = KVConfig.load(path, LIMITS)
    for number in range(2):
        await kv.put("NS", f"k{number}", "v")
    await kv.delete("NS", "nothing")
    await kv.put("TWO", "k", "v")
    before = text_of(path)

    with pytest.raises(KVLimitError, match=message) as refused:
        await kv.put(*change)

    assert field == refused.value.field
    assert change[["namespace", "key", "value"].index(field)] == refused.value.value
    assert before == text_of(path)
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
    await KVConfig.load(path).put("k" * 255, "k" * 255, "v" * 16_384)


async def test_file_may_not_outgrow_its_limit(path: Path) -> None:
    """All values together are limited, too; what makes the file smaller is always taken."""
    path.write_bytes(kv_file.encode({"NS": {"a": "x" * 50, "b": "y" * 150}}))
    kv = KVConfig.load(path, LIMITS)

    with pytest.raises(KVLimitError, match=r"value makes the configuration 2\d\d bytes, limit 100"):
        await kv.put("NEW", "k", "v")
    await kv.put("NS", "a", "")
    await kv.put("NS", "b", "short")
    await kv.put("NS", "a", "short")
    await kv.delete("NS", "b")
    await kv.put("NEW", "k", "v")

    assert {"NS": {"a": "short"}, "NEW": {"k": "v"}} == kv.all()
    assert len(text_of(path)) <= 100


async def test_what_the_file_holds_is_kept_beyond_the_limits(path: Path) -> None:
    """A limit that was lowered between two starts takes nothing away."""
    path.write_bytes(kv_file.encode({"A": {"1": "x" * 9, "2": "", "3": ""}, "B": {}, "C": {}}))
    kv = KVConfig.load(path, LIMITS)

    await kv.put("A", "3", "v")

    assert {"A": {"1": "x" * 9, "2": "", "3": "v"}, "B": {}, "C": {}} == KVConfig.load(path, LIMITS).all()


async def test_refused_puts_leave_nothing_behind(path: Path) -> None:
    """Not the file that each of them would have made, and without a collection of garbage."""
    kv = KVConfig.load(path, KVLimits(max_value_bytes=1 << 20, max_file_bytes=1 << 20))
    await kv.put("NS", "large", "x" * 900_000)
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(10):
            with pytest.raises(KVLimitError):
                await kv.put("NS", f"k{number}", "y" * 200_000)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gc.enable()

    assert after - before < 1_000_000
