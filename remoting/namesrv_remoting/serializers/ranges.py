"""Limits of the numbers and ext fields in a header, the same for all encodings."""

from typing import Final

from namesrv_remoting.errors import LocalProtocolError, RemoteProtocolError

INT32: Final = range(-(1 << 31), 1 << 31)
# A registration, the header with the most fields, has nine in RocketMQ's protocol, and in the native one up to sixteen,
# with a zone and a signature.
MAX_EXT_FIELDS: Final = 256
MAX_EXT_KEY_BYTES: Final = 255
MAX_EXT_VALUE_BYTES: Final = 32 * 1024


def int32(name: str, value: int) -> int:
    """Return the value. Raises RemoteProtocolError if it does not fit Java's int."""
    if value in INT32:
        return value
    raise RemoteProtocolError(
        f"header field {name}: {value if abs(value) < 1 << 64 else 'a number'} is not a 32-bit integer", reason="header"
    )


def check_ext_fields(ext_fields: dict[str, str]) -> dict[str, str]:
    """Return the fields. Raises RemoteProtocolError if there are too many, or one is too long."""
    if len(ext_fields) > MAX_EXT_FIELDS:
        raise RemoteProtocolError(f"{len(ext_fields)} ext fields, limit {MAX_EXT_FIELDS}", reason="ext_fields")
    for key, value in ext_fields.items():
        if len(key) > MAX_EXT_KEY_BYTES:
            raise RemoteProtocolError(
                f"ext field name of {len(key)} characters, limit {MAX_EXT_KEY_BYTES}", reason="ext_fields"
            )
        if len(value) > MAX_EXT_VALUE_BYTES:
            raise RemoteProtocolError(
                f"ext field {key} of {len(value)} characters, limit {MAX_EXT_VALUE_BYTES}", reason="ext_fields"
            )
    return ext_fields


def check_sendable(name: str, value: int, bits: int) -> int:
    """Return the value. Raises LocalProtocolError if it does not fit a signed integer of `bits` bits."""
    if -(1 << bits - 1) <= value < 1 << bits - 1:
        return value
    raise LocalProtocolError(f"{name} {value} does not fit {bits} bits")
