"""A message is what its flags say."""

import dataclasses

import pytest

from namesrv_remoting.command import RemotingCommand, answer_type


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
def test_flag_bits(flag: int, is_response: bool, is_oneway: bool) -> None:  # noqa: FBT001 - expected values
    """Bit 0 marks a response, bit 1 a oneway request; all others are ignored."""
    command = RemotingCommand(code=105, flag=flag)

    assert (is_response, is_oneway) == (command.is_response, command.is_oneway)


@pytest.mark.parametrize(("question", "answer"), [(0, 0), (1, 0), (77, 77)])
def test_answer_is_spelt_as_its_question(question: int, answer: int) -> None:
    """Except that a binary question is answered in JSON, as Apache's server does."""
    assert answer == answer_type(question)


@pytest.mark.parametrize(("serialize_type", "is_native"), [(0, False), (1, False), (77, True)])
def test_type_77_is_native(serialize_type: int, is_native: bool) -> None:  # noqa: FBT001 - expected value
    """Only ours is."""
    assert is_native is RemotingCommand(code=1, serialize_type=serialize_type).is_native


def test_what_we_send_unless_told_otherwise() -> None:
    """A request in JSON, language PYTHON (3), version 479, without remark, ext fields or body."""
    command = RemotingCommand(code=106)

    assert (106, 0, 0, 479, 3, None, None, b"", 0) == dataclasses.astuple(command)


def test_body_is_not_shown() -> None:
    """A failing assert or a log line is not sixteen mebibytes long."""
    assert "secret" not in repr(RemotingCommand(code=106, body=b"secret"))
