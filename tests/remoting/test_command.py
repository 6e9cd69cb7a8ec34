"""Commands: flags, serialize types and RocketMQ's numbers."""

import dataclasses

import pytest

from namesrv_remoting import codes
from namesrv_remoting.command import RemotingCommand, response_type


@pytest.mark.parametrize(
    ("flag", "is_response", "is_oneway"),
    [
        (0, False, False),
        (1, True, False),
        (2, False, True),
        (3, True, True),
        (4, False, False),
        (-1, True, True),
        (0x7FFFFFFC, False, False),
    ],
)
def test_flag_bits(flag: int, is_response: bool, is_oneway: bool) -> None:
    """Bit 0 marks a response, bit 1 a oneway request; all others are ignored."""
    command = RemotingCommand(code=105, flag=flag)

    assert (command.is_response, command.is_oneway) == (is_response, is_oneway)


@pytest.mark.parametrize(("request_type", "expected", "is_native"), [(0, 0, False), (1, 0, False), (77, 77, True)])
def test_response_has_the_requests_serialize_type(request_type: int, expected: int, is_native: bool) -> None:
    """A binary request gets a JSON response, as from Apache's server; only type 77 is native."""
    assert response_type(request_type) == expected
    assert is_native is RemotingCommand(code=1, serialize_type=request_type).is_native


def test_defaults_of_a_command() -> None:
    """The default is a JSON request with language PYTHON (3) and version 479; repr hides the body."""
    assert dataclasses.astuple(RemotingCommand(code=106)) == (106, 0, 0, 479, 3, None, None, b"", 0)
    assert "secret" not in repr(RemotingCommand(code=106, body=b"secret"))


def test_codes_and_versions_are_rocketmqs() -> None:
    """Codes are RequestCode.java's for a NameServer and the ResponseCode.java's that a NameServer sends."""
    known = [code for code in codes.RequestCode if code < codes.FIRST_EXTENSION]
    assert known == [
        100, 101, 102, 103, 104, 105, 106, 205, 206, 216, 217, 219, 224, 304, 311, 312, 313, 318, 319, 322,
        327, 901, 904, 905,
    ]  # fmt: skip
    assert list(codes.ResponseCode) == [0, 1, 2, 3, 16, 17, 22, 1500]
    assert list(codes.SerializeType) == [0, 1, 77]
    # V5_3_3 is 413 + 3 * 20 + 2 * 3; V3_0_11 is 37, V5_0_0 is 413
    assert (codes.CURRENT_VERSION, codes.VERSION_REGISTER_BODY, codes.VERSION_MAPPING_TAIL) == (479, 37, 413)
    assert [codes.LanguageCode(code).name for code in range(14)] == [
        "JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP", "OMS", "RUST",
        "NODE_JS",
    ]  # fmt: skip
