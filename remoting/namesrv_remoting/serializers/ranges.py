"""Ranges of the numbers in a header, whatever its encoding."""

from typing import Final

from namesrv_remoting.errors import LocalProtocolError, RemoteProtocolError

INT32: Final = range(-(1 << 31), 1 << 31)
# D4 of the security notes: a registration, the richest header, has nine
MAX_EXT_FIELDS: Final = 256
MAX_EXT_KEY_BYTES: Final = 255
MAX_EXT_VALUE_BYTES: Final = 32 * 1024


def int32(name: str, value: int) -> int:
    """The value, if it fits Java's int. Raises RemoteProtocolError."""
    if value in INT32:
        return value
    raise RemoteProtocolError(
        f"header field {name}: {value if abs(value) < 1 << 64 else 'a number'} is not a 32-bit integer", reason="header"
    )


def check_ext_fields(ext_fields: dict[str, str]) -> dict[str, str]:
    """The fields, if they are within the limits. Raises RemoteProtocolError."""
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
    """The value, if it fits a signed integer of that many bits. Raises LocalProtocolError."""
    if -(1 << bits - 1) <= value < 1 << bits - 1:
        return value
    raise LocalProtocolError(f"{name} {value} does not fit {bits} bits")
