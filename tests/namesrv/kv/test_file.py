"""The file holds what Apache's holds, and a bad one neither stops the server nor gets lost."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from namesrv.kv import file as kv_file
from namesrv.kv.file import decode

MOST_BYTES = 1 << 20
ORDERS = "broker-a:4;broker-b:4"
TABLES = {"ORDER_TOPIC_CONFIG": {"orders": ORDERS}, "EMPTY": {}}


def kept_aside(directory: Path) -> list[bytes]:
    """The contents of the files that were set aside."""
    return [path.read_bytes() for path in directory.iterdir() if ".damaged-" in path.name]


def test_file_is_apaches(tmp_path: Path) -> None:
    """Compact, under `configTable`, as Apache's server writes and reads it, other alphabets as they are."""
    path = tmp_path / "kvConfig.json"
    kv_file.write(path, {"NS": {"k": "v", "grüße": '"\n'}, "EMPTY": {}}, MOST_BYTES)

    assert '{"configTable":{"NS":{"k":"v","grüße":"\\"\\n"},"EMPTY":{}}}' == path.read_text("utf-8")


@pytest.mark.parametrize(
    ("content", "table", "ignored"),
    [
        # as Apache's server wrote it, nulls of puts without a value included
        (b'{"configTable":{"NS":{"orders":"broker-a:4;broker-b:4"},"EMPTY":{}}}', {"orders": ORDERS}, []),
        (
            b'{"configTable":{"NS":{"k":null,"l":"v"},"E":null}}',
            {"l": "v"},
            ["'NS' 'k' is null", "namespace 'E' is null"],
        ),
        # what JSON can spell and UTF-8 cannot write would break the next write
        (
            rb'{"configTable":{"NS":{"\ud800":"v","k":"\udfff","l":"v"},"\ud800":{}}}',
            {"l": "v"},
            ["'NS' '\\ud800' is not unicode", "'NS' 'k' is not unicode", "namespace '\\ud800' is not unicode"],
        ),
        # edited by hand
        (b'{"configTable":{"NS":{"i":10,"e":1e2,"f":1.10}}}', {"i": "10", "e": "1e2", "f": "1.10"}, []),
        (b'{"configTable":{"NS":{"b":true,"c":false}}}', {"b": "true", "c": "false"}, []),
        (b'\xef\xbb\xbf{\n  "configTable": {\n "NS": {"k": "v"}}}\n', {"k": "v"}, []),
    ],
)
def test_file_of_apaches_is_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes, table: dict[str, str], ignored: list[str]
) -> None:
    """As Apache's reader reads it; what is no value is ignored with a warning."""
    path = tmp_path / "kvConfig.json"
    path.write_bytes(content)

    assert table == kv_file.read(path)["NS"]
    assert ignored == decode(content)[1]
    warned = [{"path": path, "count": len(ignored), "first": ignored[0]}] if ignored else []
    assert warned == [vars(record)["fields"] for record in caplog.records if record.msg == "kv_entries_ignored"]


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


@given(st.binary(max_size=100))
def test_noise_is_damage(noise: bytes) -> None:
    """Other bytes are refused as damage, never with an exception of another kind."""
    with pytest.raises((ValueError, RecursionError)):
        decode(noise)


def test_damaged_file_that_cannot_be_set_aside_ends_the_start(tmp_path: Path) -> None:
    """Were the server to start, its first write would overwrite the damaged file."""
    path = tmp_path / ("k" * 250)
    path.write_bytes(b"damaged")

    with pytest.raises(OSError, match=r"File name too long: '.*damaged-"):
        kv_file.read(path)

    assert b"damaged" == path.read_bytes()


def test_leftovers_of_a_killed_write_are_removed(tmp_path: Path) -> None:
    """A server that was killed while it wrote leaves nothing for ever."""
    path = tmp_path / "kvConfig.json"
    kv_file.write(path, TABLES, MOST_BYTES)
    (tmp_path / ".kvConfig.json.0123456789abcdef.tmp").touch()

    assert TABLES == kv_file.read(path)
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
