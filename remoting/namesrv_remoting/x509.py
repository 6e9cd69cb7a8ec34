"""Names and times in certificates and revocation lists (DER), for logs and metrics; OpenSSL does the verification."""

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Final, NamedTuple

# The most elements that are read at one level, since an unverified certificate may contain very many.
_MAX_ELEMENTS: Final = 200
_MAX_SIZE_BYTES: Final = 4
_INTEGER, _UTC_TIME, _GENERALIZED_TIME, _BMP_STRING = 0x02, 0x17, 0x18, 0x1E
_VERSION, _EXTENSIONS = 0xA0, 0xA3
_COMMON_NAME, _ALTERNATIVE_NAMES = b"\x55\x04\x03", b"\x55\x1d\x11"
# tags of textual alternative names: mail address, DNS name, URI
_TEXT_NAMES: Final = (0x81, 0x82, 0x86)
# positions of fields in a certificate after its version: serial number, algorithm, issuer, validity, subject, key
_VALIDITY, _SUBJECT, _CERTIFICATE_FIELDS = 3, 4, 6
# positions of fields in a revocation list after its version: algorithm, issuer, this update, next update
_THIS_UPDATE: Final = 2
_LIST_FIELDS: Final = 3


class _Element(NamedTuple):
    tag: int
    begin: int
    end: int


def not_after(der: bytes) -> float:
    """The time at which a certificate expires (wall clock). Raises ValueError for other bytes."""
    _, end = _members(der, _fields(der, _VERSION, _CERTIFICATE_FIELDS)[_VALIDITY])
    return _time(der, end)


def list_validity(der: bytes) -> tuple[float, float]:
    """The times at which a revocation list was issued and expires (wall clock). Raises ValueError for other bytes.

    A list may have no time at which it expires; then that time is infinity.
    """
    issued, *following = _fields(der, _INTEGER, _LIST_FIELDS)[_THIS_UPDATE:]
    times = [each for each in following[:1] if each.tag in (_UTC_TIME, _GENERALIZED_TIME)]
    return _time(der, issued), _time(der, times[0]) if times else float("inf")


def names_in(der: bytes) -> Iterator[str]:
    """Common name and textual alternative names in a certificate. Raises ValueError for other bytes."""
    fields = _fields(der, _VERSION, _CERTIFICATE_FIELDS)
    for part in _members(der, fields[_SUBJECT]):
        for attribute in _members(der, part):
            kind, value = _members(der, attribute)[:2]
            if der[kind.begin : kind.end] == _COMMON_NAME:
                yield _text(der, value)
    for extension in _extensions(der, fields):
        kind, *_, value = _members(der, extension)
        if der[kind.begin : kind.end] == _ALTERNATIVE_NAMES:
            (names,) = _members(der, value)
            yield from (_text(der, name) for name in _members(der, names) if name.tag in _TEXT_NAMES)


def _extensions(der: bytes, fields: list[_Element]) -> list[_Element]:
    extensions = [each for each in fields if each.tag == _EXTENSIONS]
    return _members(der, _members(der, extensions[0])[0]) if extensions else []


def _fields(der: bytes, version: int, least: int) -> list[_Element]:
    """The members of the signed part, without its version, which may be missing."""
    outermost = _members(der, _Element(0, 0, len(der)))[0]
    fields = _members(der, _members(der, outermost)[0])
    fields = fields[1:] if fields and fields[0].tag == version else fields
    if len(fields) < least:
        raise ValueError("neither a certificate nor a revocation list")
    return fields


def _members(der: bytes, element: _Element) -> list[_Element]:
    members = list(islice(_elements(der, element.begin, element.end), _MAX_ELEMENTS))
    if not members:
        raise ValueError("an element is empty")
    return members


def _elements(der: bytes, at: int, end: int) -> Iterator[_Element]:
    while at < end:
        begin = at + 2
        size = der[at + 1] if begin <= end else end
        if size & 0x80:
            count = size & 0x7F
            size = int.from_bytes(der[begin : begin + count]) if 0 < count <= _MAX_SIZE_BYTES else end
            begin += count
        if begin + size > end:
            raise ValueError(f"an element ends at {begin + size}, limit {end}")
        yield _Element(der[at], begin, begin + size)
        at = begin + size


def _time(der: bytes, element: _Element) -> float:
    # UTCTime until 2049, GeneralizedTime after that
    form = "%y%m%d%H%M%SZ" if element.tag == _UTC_TIME else "%Y%m%d%H%M%SZ"
    return datetime.strptime(der[element.begin : element.end].decode(), form).replace(tzinfo=UTC).timestamp()


def _text(der: bytes, element: _Element) -> str:
    coding = "utf-16-be" if element.tag == _BMP_STRING else "utf-8"
    return der[element.begin : element.end].decode(coding, "backslashreplace")
