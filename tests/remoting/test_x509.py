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


@given(st.binary(max_size=200))
def test_invalid_certificate_is_refused(data: bytes) -> None:
    """Anything but a certificate raises a ValueError."""
    for read in (not_after, list_validity, lambda der: [*names_in(der)]):
        with contextlib.suppress(ValueError):
            read(data)


@given(st.data())
def test_broken_certificate_is_read_or_refused(data: st.DataObject) -> None:
    """Any changed byte and any truncation gives a result or a ValueError."""
    der = bytearray(made("a.example.com", common_name="a"))
    der[data.draw(st.integers(0, len(der) - 1))] = data.draw(st.integers(0, 255))
    broken = bytes(der[: data.draw(st.integers(0, len(der)))])

    for read in (not_after, list_validity, lambda der: [*names_in(der)]):
        with contextlib.suppress(ValueError):
            read(broken)


def test_nested_lengths_stay_within_their_element() -> None:
    """A length beyond its parent element and an indefinite length are refused."""
    der = made("a.example.com")

    for broken in (b"\x30\x80" + der, b"\x30\x89" + der, der[:1] + b"\x83\xff\xff\xff" + der[4:]):
        with pytest.raises(ValueError, match="an element ends at"):
            not_after(broken)
