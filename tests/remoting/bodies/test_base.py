"""Reading a body in each dialect, and inflating within limits."""

import random
import zlib
from collections import deque

import msgspec
import pytest

from namesrv_remoting.bodies.base import inflate, read_json, read_msgpack
from namesrv_remoting.errors import BadRequestError

MEBIBYTE = 1 << 20


class Shape(msgspec.Struct):
    """A body with a name and a table of integer keys."""

    name: str = "?"
    table: dict[int, str] = {}


JSON = msgspec.json.Decoder(Shape)
MSGPACK = msgspec.msgpack.Decoder(Shape)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"", "Input data was truncated"),
        (b"{{{{", "JSON is malformed: object keys must be strings near '{{{'"),
        (b"[]", "Expected `object`, got `array`"),
        (b'{"table":{"x":"y"}}', "Expected `int`, got `str` - at `key` in `$.table`"),
        (b'{"name":"\xff"}', "invalid utf-8 b'\\xff\"}' at byte 9"),
        (b"[" * 100_000, "Expected `object`, got `array`"),
    ],
)
def test_invalid_json_is_refused(body: bytes, error: str) -> None:
    """The remark contains the place and the reason; no other exception is raised."""
    with pytest.raises(BadRequestError) as caught:
        read_json(JSON, body, "SHAPE")
    assert caught.value.remark == f"body of SHAPE cannot be read: {error}"


def test_too_deep_json_is_refused() -> None:
    """The limit is Python's, since 3.14 the size of its stack."""
    with pytest.raises(BadRequestError, match=r"^body of SHAPE cannot be read: (maximum recursion|Stack overflow)"):
        read_json(JSON, b'{"a":' * 1_000_000, "SHAPE")


def test_large_body_is_read_strictly_only() -> None:
    """From 4 KiB on, bare integer keys are read and no other leniency is tried."""
    padding = b" " * 4_096
    assert read_json(JSON, b"{name:'a'}" + padding[10:], "SHAPE") == Shape("a")

    assert read_json(JSON, b'{"name":"a","table":{0:"x"}}' + padding, "SHAPE") == Shape("a", {0: "x"})
    with pytest.raises(BadRequestError, match=r"^body of SHAPE cannot be read: JSON is malformed"):
        read_json(JSON, b"{name:'a'}" + padding, "SHAPE")


@pytest.mark.parametrize(
    "body",
    [
        *(
            b"",
            b"\xc0",
            b"\xc1",
            b"\x90",
            b"\x81",
            b"{}",
            b"\x80\x80",
            b"\xdf\xff\xff\xff\xff",
            b"\x81\xa1x" + b"\x91" * 100_000,
        ),
        *(b"\x81\xa4name\x01", b"\x81\xa4name\xa1\xff", b"\x81\xa5table\x81\xa1x\xa1y"),
    ],
)
def test_invalid_msgpack_is_refused(body: bytes) -> None:
    """Truncated bodies, other types and false lengths raise one error class."""
    with pytest.raises(BadRequestError, match=r"^body of SHAPE cannot be read: "):
        read_msgpack(MSGPACK, body, "SHAPE")


def inflated(stream: bytes, *, max_bytes: int, max_ratio: int) -> bytes:
    """The whole inflated stream."""
    return b"".join(inflate(stream, max_bytes=max_bytes, max_ratio=max_ratio))


@pytest.mark.parametrize(
    ("size", "max_bytes", "max_ratio", "limit"),
    [
        (MEBIBYTE, 64 * MEBIBYTE, 1, None),
        (8 * MEBIBYTE, 8 * MEBIBYTE, 2_000, None),
        (MEBIBYTE + 1, 64 * MEBIBYTE, 200, 1_048_576),
        (8 * MEBIBYTE, 4 * MEBIBYTE, 10_000, 4_194_304),
    ],
)
def test_no_more_than_the_limit_is_inflated(size: int, max_bytes: int, max_ratio: int, limit: int | None) -> None:
    """The smaller of max_bytes and ratio times size counts; the ratio counts after the first mebibyte."""
    stream = zlib.compress(bytes(size), 9)
    if limit is None:
        assert len(inflated(stream, max_bytes=max_bytes, max_ratio=max_ratio)) == size
        return
    with pytest.raises(BadRequestError) as caught:
        inflated(stream, max_bytes=max_bytes, max_ratio=max_ratio)
    assert caught.value.remark == f"compressed body of {len(stream)} bytes inflates to more than {limit}"


def test_ratio_counts_only_consumed_bytes() -> None:
    """Bytes after the zlib stream do not raise the limit; they are refused."""
    noise = random.Random(0).randbytes(64 * 1024)
    compressor = zlib.compressobj(9)
    inside = compressor.compress(bytes(8 * MEBIBYTE)) + compressor.flush(zlib.Z_FULL_FLUSH) + compressor.compress(noise)
    for stream in (zlib.compress(bytes(8 * MEBIBYTE), 9) + noise, inside + compressor.flush()):
        with pytest.raises(BadRequestError, match=r"^compressed body of \d+ bytes inflates to more than \d{7}$"):
            deque(inflate(stream, max_bytes=16 * MEBIBYTE, max_ratio=200), maxlen=0)

    with pytest.raises(BadRequestError, match=r"^compressed body: 6 trailing bytes$"):
        inflated(zlib.compress(b"registration") + b"behind", max_bytes=MEBIBYTE, max_ratio=200)


@pytest.mark.parametrize(
    ("stream", "error"),
    [
        (b"", "of 0 bytes is cut short"),
        (b"\x78", "of 1 bytes is cut short"),
        (zlib.compress(b"registration")[:-1], "of 19 bytes is cut short"),
        (b"{}", "cannot be read: Error -3 while decompressing data: incorrect header check"),
        (zlib.compress(b"registration")[:-1] + b"\x00", "cannot be read: Error -3 while decompressing data"),
        (b"\x1f\x8b\x08\x00", "cannot be read: Error -3 while decompressing data: incorrect header check"),
    ],
    ids=["empty", "one byte", "cut", "json", "wrong checksum", "gzip"],
)
def test_invalid_zlib_stream_is_refused(stream: bytes, error: str) -> None:
    """Truncated, damaged and foreign streams are refused."""
    with pytest.raises(BadRequestError, match=f"^compressed body {error}"):
        inflated(stream, max_bytes=MEBIBYTE, max_ratio=200)
