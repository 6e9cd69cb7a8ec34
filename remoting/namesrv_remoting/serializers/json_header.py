"""Header in JSON (serialize type 0).

Written: members in alphabetical order, compact, null members left out, as Java does.
Read: typed and strict first, which is what all but a few peers send; what that refuses goes through fastjson's dialect.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from namesrv_remoting.bodies import fastjson
from namesrv_remoting.codes import LanguageCode, SerializeType
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.errors import RemoteProtocolError
from namesrv_remoting.frames import Frame
from namesrv_remoting.serializers.ranges import check_ext_fields, int32

# what Integer.parseInt reads; int() reads "1_0" and " 1" as well
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,20}")
_LANGUAGES: Final[Mapping[str, int]] = {language.name: int(language) for language in LanguageCode}


class _Header(msgspec.Struct, gc=False):
    code: int = 0
    flag: int = 0
    opaque: int | None = None
    version: int = 0
    language: str = "JAVA"
    remark: str | None = None
    extFields: dict[str, str] | None = None  # noqa: N815 - the wire's name


_decoder: Final = msgspec.json.Decoder(_Header)


def encode_header(command: RemotingCommand) -> bytes:
    """The header's bytes."""
    header: dict[str, object] = {"code": command.code}
    if command.ext_fields is not None:
        header["extFields"] = dict(command.ext_fields)
    header["flag"] = command.flag
    header["language"] = LanguageCode(command.language).name
    header["opaque"] = command.opaque or 0
    if command.remark is not None:
        header["remark"] = command.remark
    header["serializeTypeCurrentRPC"] = "JSON"
    header["version"] = command.version
    return msgspec.json.encode(header)


def decode(frame: Frame) -> RemotingCommand:
    """The command in a frame.

    Raises:
        RemoteProtocolError: the header is not a JSON object, or a member of it cannot be what it has to be.
    """
    try:
        header = _decoder.decode(frame.header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        header = _read_leniently(frame.header)
    return RemotingCommand(
        code=int32("code", header.code),
        opaque=None if header.opaque is None else int32("opaque", header.opaque),
        flag=int32("flag", header.flag),
        version=int32("version", header.version),
        # fastjson takes a name that it does not know as none at all
        language=_LANGUAGES.get(header.language, LanguageCode.OTHER),
        remark=header.remark,
        ext_fields=None if header.extFields is None else check_ext_fields(header.extFields),
        body=frame.body,
        serialize_type=SerializeType.JSON,
    )


def _read_leniently(data: bytes) -> _Header:
    try:
        members = fastjson.loads(data, dict[str, Any])
        ext_fields, remark = members.get("extFields"), members.get("remark")
        if not isinstance(ext_fields, dict | None):
            raise _broken(f"ext fields are not an object: {str(ext_fields)[:64]!r}")
        return _Header(
            code=_number(members, "code") or 0,
            flag=_number(members, "flag") or 0,
            opaque=_number(members, "opaque"),
            version=_number(members, "version") or 0,
            language=_language(members.get("language")),
            remark=remark if isinstance(remark, str) else None,
            extFields=None if ext_fields is None else fastjson.coerce_ext_fields(ext_fields),
        )
    except fastjson.FastjsonError as error:
        raise _broken(f"header cannot be read: {error}") from error


def _number(members: dict[str, object], name: str) -> int | None:
    value = members.get(name)
    if value is None:
        return None
    if isinstance(value, int) or (isinstance(value, str) and _INTEGER.fullmatch(value)):
        return int(value)
    raise _broken(f"header field {name} is not a number: {str(value)[:64]!r}")


def _language(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        # an ordinal, which fastjson takes for an enum as well
        if value in _LANGUAGES.values():
            return LanguageCode(value).name
        raise _broken(f"header field language: unknown language code {value}")
    return value if isinstance(value, str) else "JAVA"


def _broken(message: str) -> RemoteProtocolError:
    return RemoteProtocolError(message, reason="header")
