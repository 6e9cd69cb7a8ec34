"""Commands: flags, serialize types and RocketMQ's numbers."""

import pytest

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
