"""The file holds what Apache's holds, and a bad one neither stops the server nor gets lost."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from namesrv.kv import file as kv_file
from namesrv.kv.file import KVReadError, decode

MOST_BYTES = 1 << 20
ORDERS = {"ORDER_TOPIC_CONFIG": {"orders": "broker-a:4;broker-b:4"}, "EMPTY": {}}


def kept_aside(directory: Path) -> list[bytes]:
    """The contents of the files that were set aside."""
    return [path.read_bytes() for path in directory.iterdir() if ".damaged-" in path.name]


def test_file_is_apaches(tmp_path: Path) -> None:
    """Compact, under `configTable`, as Apache's server writes and reads it, other alphabets as they are."""
    path = tmp_path / "kvConfig.json"
    kv_file.write(path, {"NS": {"k": "v", "grüße": '"\n'}, "EMPTY": {}}, MOST_BYTES)

    assert '{"configTable":{"NS":{"k":"v","grüße":"\\"\\n"},"EMPTY":{}}}' == path.read_text("utf-8")


def test_file_of_apaches_is_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A file that Apache's server wrote can be dropped in as it is."""
    path = tmp_path / "kvConfig.json"
    path.write_text('{"configTable":{"ORDER_TOPIC_CONFIG":{"orders":"broker-a:4;broker-b:4"},"EMPTY":{}}}')

    assert ORDERS == kv_file.read(path)
    assert [] == caplog.records


def test_no_file_is_empty(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The first start has no file, and nothing to warn about."""
    assert {} == kv_file.read(tmp_path / "kvConfig.json")
    assert [] == caplog.records


def test_nulls_are_ignored_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Apache's server keeps the null of a put without a value; here it is no value."""
    path = tmp_path / "kvConfig.json"
    path.write_text('{"configTable":{"NS":{"k":null,"l":"v"},"NONE":null}}')

    assert {"NS": {"l": "v"}} == kv_file.read(path)
    (record,) = caplog.records
    assert "kv_entries_ignored" == record.msg
    assert {"path": path, "count": 2, "first": "'NS' 'k' is null"} == vars(record)["fields"]


def test_half_surrogate_pairs_are_ignored_with_a_warning() -> None:
    """What JSON can spell and UTF-8 cannot write would break the next write."""
    tables, ignored = decode(rb'{"configTable":{"NS":{"\ud800":"v","k":"\udfff","l":"v"},"\ud800":{}}}')

    assert {"NS": {"l": "v"}} == tables
    assert ["'NS' '\\ud800' is not unicode", "'NS' 'k' is not unicode", "namespace '\\ud800' is not unicode"] == ignored


def test_bare_numbers_and_booleans_are_the_text_they_are_written_in() -> None:
    """A file edited by hand is read as Apache's reader reads it."""
    tables, ignored = decode(b'{"configTable":{"NS":{"i":10,"e":1e2,"f":1.10,"b":true,"c":false}}}')

    assert {"NS": {"i": "10", "e": "1e2", "f": "1.10", "b": "true", "c": "false"}} == tables
    assert [] == ignored


def test_byte_order_mark_and_line_breaks_are_fine() -> None:
    """A file edited by hand may be neither compact nor free of a byte order mark."""
    assert ({"NS": {"k": "v"}}, []) == decode(b'\xef\xbb\xbf{\n  "configTable": {\n "NS": {"k": "v"}}}\n')


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
    """The server starts with an empty configuration, the file is kept, and one warning says why."""
    path = tmp_path / "kvConfig.json"
    path.write_bytes(content)

    assert {} == kv_file.read(path)

    assert not path.exists()
    assert [content] == kept_aside(tmp_path)
    (record,) = caplog.records
    assert "WARNING damaged_file_set_aside" == f"{record.levelname} {record.msg}"
    assert reason in vars(record)["fields"]["reason"]


def test_file_torn_at_every_byte_is_set_aside(tmp_path: Path) -> None:
    """A copy that ended early anywhere is damage, never a part of the configuration."""
    path = tmp_path / "kvConfig.json"
    kv_file.write(path, ORDERS, MOST_BYTES)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert {} == kv_file.read(path)

    assert set(kept_aside(tmp_path)) == {whole[:length] for length in range(len(whole))}


@given(st.binary(max_size=100))
def test_noise_is_damage(noise: bytes) -> None:
    """Other bytes are refused as damage, never with an exception of another kind."""
    with pytest.raises((ValueError, RecursionError)):
        decode(noise)


def test_file_that_cannot_be_read_ends_the_start(tmp_path: Path) -> None:
    """A file that is there and cannot be read is not forgotten: the error names it, and it stays."""
    path = tmp_path / "kvConfig.json"
    path.mkdir()

    with pytest.raises(
        KVReadError, match=r"key-value configuration cannot be read: Is a directory: '.*/kvConfig.json'"
    ):
        kv_file.read(path)

    assert path.is_dir()


def test_damaged_file_that_cannot_be_set_aside_ends_the_start(tmp_path: Path) -> None:
    """Were the server to start, its first write would overwrite the damaged file."""
    path = tmp_path / ("k" * 250)
    path.write_bytes(b"damaged")

    with pytest.raises(KVReadError, match="damaged key-value configuration cannot be set aside: File name too long"):
        kv_file.read(path)

    assert b"damaged" == path.read_bytes()


def test_leftovers_of_a_killed_write_are_removed(tmp_path: Path) -> None:
    """A server that was killed while it wrote leaves nothing for ever."""
    path = tmp_path / "kvConfig.json"
    kv_file.write(path, ORDERS, MOST_BYTES)
    (tmp_path / ".kvConfig.json.0123456789abcdef.tmp").touch()

    assert ORDERS == kv_file.read(path)
    assert [path] == list(tmp_path.iterdir())


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)


@given(st.dictionaries(texts, st.dictionaries(texts, texts, max_size=4), max_size=4))
def test_every_table_survives_the_file_and_its_size_is_known(
    tmp_path_factory: pytest.TempPathFactory, tables: dict[str, dict[str, str]]
) -> None:
    """What is written is read; the size that is told is that of the file."""
    path = tmp_path_factory.getbasetemp() / "every-kvConfig.json"
    size = kv_file.write(path, tables, MOST_BYTES)

    assert tables == kv_file.read(path)
    assert path.stat().st_size == size
