"""A sealed file is what was written, or refused."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from namesrv_runtime.durable_file import SealedFileError, enveloped, seal, unseal

CONTENT = b'{"version":1,"names":["\\u540d","\\ud800"],"more":null}'
DOCUMENT = {"version": 1, "names": ["名", "\ud800"], "more": None}


def sealed(content: bytes) -> bytes:
    """A file whose checksum is right, whatever is in it."""
    return enveloped(hashlib.sha256(content).hexdigest().encode(), content)


def test_file_is_json_with_a_checksum_of_its_content() -> None:
    """The format, byte by byte: what is written today is read tomorrow."""
    checksum = hashlib.sha256(CONTENT).hexdigest().encode()

    assert b'{"sha256":"' + checksum + b'","content":' + CONTENT + b"}\n" == seal(DOCUMENT)
    assert unseal(seal(DOCUMENT), 1) == DOCUMENT


json_values = st.recursive(
    st.none() | st.integers(-(2**63), 2**63 - 1) | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(json_values)
def test_every_document_survives(value: object) -> None:
    """Half surrogate pairs included."""
    assert {"version": 3, "value": value} == unseal(seal({"version": 3, "value": value}), 3)


def test_damage_is_refused() -> None:
    """A file that ends early anywhere, one with a tail, and every flipped bit."""
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


@given(st.binary(max_size=300))
def test_noise_is_refused(noise: bytes) -> None:
    """Never with an exception of another kind."""
    for data in (noise, sealed(noise)):
        with pytest.raises(SealedFileError):
            unseal(data, 1)


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
def test_content_of_another_kind_is_refused(content: bytes, reason: str) -> None:
    """Also with a right checksum; the text says what is wrong."""
    with pytest.raises(SealedFileError, match=reason):
        unseal(sealed(content), 1)
