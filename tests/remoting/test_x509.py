"""Names and expiry times of certificates from any source."""

import contextlib
from datetime import UTC, datetime
from functools import cache

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given
from hypothesis import strategies as st

from namesrv_remoting.x509 import list_validity, names_in, not_after


@cache
def made(*names: str, common_name: str | None = None) -> bytes:
    """A certificate with these names."""
    ca = trustme.CA()
    issued = ca.issue_cert(*names, common_name=common_name, not_after=datetime(2031, 2, 3, 4, 5, 6, tzinfo=UTC))
    return x509.load_pem_x509_certificate(issued.cert_chain_pems[0].bytes()).public_bytes(Encoding.DER)


def test_names_are_the_common_name_and_alternative_ones() -> None:
    """Names are mail addresses and host names, not IP addresses."""
    der = made("a.example.com", "op@example.com", "10.0.0.1", "*.b.example.com", common_name="gr\u00fcn")

    assert [*names_in(der)] == ["gr\u00fcn", "a.example.com", "op@example.com", "*.b.example.com"]
    assert [*names_in(made("c.example.com"))] == ["c.example.com"]
    assert not_after(der) == datetime(2031, 2, 3, 4, 5, 6, tzinfo=UTC).timestamp()


def test_name_in_utf_16() -> None:
    """A BMPString, as in certificates of older authorities, is in UTF-16."""
    der = made("a.example.com", common_name="gr\u00fcne")
    # The new name has as many bytes, so that no other length changes; a signature is not verified here.
    as_bmp = der.replace(b"\x0c\x06" + "gr\u00fcne".encode(), b"\x1e\x06" + "\u540dab".encode("utf-16-be"))

    assert [*names_in(as_bmp)] == ["\u540dab", "a.example.com"]


def broken(place: int, byte: int, length: int) -> bytes:
    """A certificate with a changed byte, cut off after a length."""
    der = bytearray(made("a.example.com", common_name="a"))
    der[place % len(der)] = byte
    return bytes(der[: length % (len(der) + 1)])


@given(st.binary(max_size=200) | st.builds(broken, st.integers(0), st.integers(0, 255), st.integers(0)))
def test_any_bytes_are_read_or_refused(der: bytes) -> None:
    """Other bytes, any changed byte and any truncation give a result or a ValueError."""
    for read in (not_after, list_validity, lambda der: [*names_in(der)]):
        with contextlib.suppress(ValueError):
            read(der)


def test_nested_lengths_stay_within_their_element() -> None:
    """A length beyond its parent element and an indefinite length are refused."""
    der = made("a.example.com")

    for invalid in (b"\x30\x80" + der, b"\x30\x89" + der, der[:1] + b"\x83\xff\xff\xff" + der[4:]):
        with pytest.raises(ValueError, match="an element ends at"):
            not_after(invalid)
