"""Sealed files: written content is read back, and damage refused."""

import hashlib

import pytest

from namesrv_runtime.durable_file import SealedFileError, enveloped, seal, unseal

CONTENT = b'{"version":1,"names":["\\u540d","\\ud800"],"more":null}'
DOCUMENT = {"version": 1, "names": ["名", "\ud800"], "more": None}


def test_file_is_json_with_a_checksum_of_its_content() -> None:
    """The format is fixed byte by byte, so that later versions can read it."""
    checksum = hashlib.sha256(CONTENT).hexdigest().encode()

    assert seal(DOCUMENT) == b'{"sha256":"' + checksum + b'","content":' + CONTENT + b"}\n"
    assert unseal(seal(DOCUMENT), 1) == DOCUMENT


@pytest.mark.parametrize("count", [0, 1, 100, 101, 250])
def test_long_list_has_the_same_bytes_as_a_short_one(count: int) -> None:
    """The chunks in which a long list is encoded leave no trace in the file."""
    items = ",".join(f'{{"n":{number}}}' for number in range(count))
    document = {"version": 1, "items": [{"n": number} for number in range(count)], "last": True}

    assert seal(document) == enveloped(f'{{"version":1,"items":[{items}],"last":true}}'.encode())


def test_damage_is_refused() -> None:
    """Every truncation, any trailing bytes, and every flipped bit are refused."""
    data = seal(DOCUMENT)
    for damaged in [*(data[:length] for length in range(len(data))), data + b"\n", data + b"\0", data + data]:
        with pytest.raises(SealedFileError, match=rf"truncated or not a sealed file: {len(damaged)} bytes|checksum"):
            unseal(damaged, 1)
    for position in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[position] ^= 1 << bit
            with pytest.raises(SealedFileError):
                unseal(bytes(flipped), 1)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (CONTENT.replace(b'"version":1', b'"version":2'), "version 2, this release reads 1"),
        (b"{}", "version None, this release reads 1"),
        (b"[1]", "version None, this release reads 1"),
        (b"", "unexpected content: Expecting value"),
        (b"\xff", "unexpected content: .*can't decode byte 0xff"),
        (b"[" * 100_000 + b"]" * 100_000, "unexpected content: "),
    ],
    ids=["newer", "no version", "array", "empty", "not utf-8", "deep"],
)
def test_invalid_content_is_refused(content: bytes, reason: str) -> None:
    """A valid checksum does not help; the message contains the reason."""
    with pytest.raises(SealedFileError, match=reason):
        unseal(enveloped(content), 1)
