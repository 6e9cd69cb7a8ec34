"""The numbers are those of RocketMQ."""

import pytest

from namesrv_remoting.codes import (
    CURRENT_VERSION,
    VERSION_MAPPING_TAIL,
    VERSION_REGISTER_BODY,
    LanguageCode,
    RequestCode,
    ResponseCode,
    SerializeType,
)


def test_request_codes() -> None:
    """RequestCode.java's for a NameServer, and five of our own."""
    assert [100, 101, 102, 103, 104, 105, 106, 205, 206, 216, 217, 219, 224, 304, 311, 312, 313, 318, 319, 322, 327,
            901, 904, 905, 20001, 20002, 20003, 20004, 20005] == list(RequestCode)  # fmt: skip


def test_response_codes() -> None:
    """ResponseCode.java's and RemotingSysResponseCode.java's that a NameServer uses."""
    assert [0, 1, 2, 3, 16, 17, 22, 1500] == list(ResponseCode)


@pytest.mark.parametrize(
    ("code", "name"),
    list(enumerate(["JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP", "OMS",
                    "RUST", "NODE_JS"])),
)  # fmt: skip
def test_language_codes(code: int, name: str) -> None:
    """LanguageCode.java's, in its order."""
    assert name == LanguageCode(code).name


def test_versions_and_types() -> None:
    """V5_3_3 is 413 + 3 * 20 + 2 * 3; V3_0_11 is 37, V5_0_0 is 413. Type 77 is ours."""
    assert (479, 37, 413) == (CURRENT_VERSION, VERSION_REGISTER_BODY, VERSION_MAPPING_TAIL)
    assert [0, 1, 77] == list(SerializeType)
