"""Header in JSON (serialize type 0).

Headers are written as Java writes them: members in alphabetical order, compact, without null members.
Headers are read by a strict typed decoder first, which accepts nearly all peers; a header that it refuses is read again
in fastjson's dialect.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from namesrv_remoting.bodies import fastjson
from namesrv_remoting.codes import LanguageCode, SerializeType
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.errors import RemoteProtocolError
from namesrv_remoting.frames import Frame
from namesrv_remoting.serializers.ranges import check_ext_fields, int32

_LANGUAGES: Final[Mapping[str, int]] = {language.name: int(language) for language in LanguageCode}


class _Header(msgspec.Struct, gc=False):
    code: int = 0
    flag: int = 0
    opaque: int | None = None
    version: int = 0
    language: str = "JAVA"
    remark: str | None = None
    extFields: dict[str, str] | None = None  # noqa: N815 - the wire's name


class _LenientHeader(msgspec.Struct, gc=False):
    code: int | None = None
    flag: int | None = None
    opaque: int | None = None
    version: int | None = None
    language: Any = None
    remark: Any = None
    extFields: dict[str, Any] | None = None  # noqa: N815 - the wire's name


_decoder: Final = msgspec.json.Decoder(_Header)


def encode_header(command: RemotingCommand) -> bytes:
    """The bytes of the header."""
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
    """The command in a frame. Raises RemoteProtocolError for a header that is not a JSON object with valid members."""
    try:
        header = _decoder.decode(frame.header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        header = _read_leniently(frame.header)
    return RemotingCommand(
        code=int32("code", header.code),
        opaque=None if header.opaque is None else int32("opaque", header.opaque),
        flag=int32("flag", header.flag),
        version=int32("version", header.version),
        # Like fastjson, an unknown name counts as no language.
        language=_LANGUAGES.get(header.language, LanguageCode.OTHER),
        remark=header.remark,
        ext_fields=None if header.extFields is None else check_ext_fields(header.extFields),
        body=frame.body,
        serialize_type=SerializeType.JSON,
    )


def _read_leniently(data: bytes) -> _Header:
    try:
        header = fastjson.loads(data, _LenientHeader)
        ext_fields = None if header.extFields is None else fastjson.coerce_ext_fields(header.extFields)
    except fastjson.FastjsonError as error:
        raise RemoteProtocolError(f"header cannot be read: {error}", reason="header") from error
    language = header.language
    if isinstance(language, int) and not isinstance(language, bool):
        # fastjson also accepts the ordinal of an enum.
        if language not in _LANGUAGES.values():
            raise RemoteProtocolError(f"header field language: unknown language code {language}", reason="header")
        language = LanguageCode(language).name
    return _Header(
        header.code or 0,
        header.flag or 0,
        header.opaque,
        header.version or 0,
        language if isinstance(language, str) else "JAVA",
        header.remark if isinstance(header.remark, str) else None,
        ext_fields,
    )
