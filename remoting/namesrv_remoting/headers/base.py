"""Conversion of ext fields, all of them strings, to typed values and back."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Self

import msgspec

from namesrv_remoting.errors import BadRequestError

Name = Annotated[str, msgspec.Meta(min_length=1)]
Int32 = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]

_SHOWN_CHARACTERS: Final = 64


class ExtHeader(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """The typed ext fields of one request or response.

    Apache's server does not check its required fields; a missing or unreadable one leaves half a registration behind.
    Here it is refused before anything happens, by name.
    """

    @classmethod
    def from_ext(cls, ext_fields: Mapping[str, str] | None) -> Self:
        """The typed fields.

        Raises:
            BadRequestError: a required field is missing or empty, or a value cannot be read; the remark names it.
        """
        fields = dict(ext_fields or {})
        try:
            return msgspec.convert(fields, cls, strict=False)
        except msgspec.ValidationError as error:
            raise BadRequestError(cls._what_is_wrong(fields)) from error

    @classmethod
    def _what_is_wrong(cls, fields: dict[str, str]) -> str:
        for field in msgspec.structs.fields(cls):
            name = field.encode_name
            if name not in fields:
                if field.required:
                    return f"field {name} is missing"
                continue
            try:
                msgspec.convert(fields[name], field.type, strict=False)
            except msgspec.ValidationError as error:
                if not fields[name]:
                    return f"field {name} is empty"
                reason = str(error)[:1].lower() + str(error)[1:]
                return f"field {name}: {fields[name][:_SHOWN_CHARACTERS]!r}: {reason}"
        return "ext fields cannot be read"

    def to_ext(self) -> dict[str, str]:
        """The fields as strings, without those that are None."""
        return {
            field.encode_name: _text(value)
            for field in msgspec.structs.fields(type(self))
            if (value := getattr(self, field.name)) is not None
        }


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
