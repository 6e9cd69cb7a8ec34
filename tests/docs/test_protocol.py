"""Every byte in docs/protocol.md is what our code writes and reads, and what a real server answers."""

import socket
from dataclasses import replace
from pathlib import Path

import pytest

from namesrv_remoting.codes import LanguageCode
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.serializers import encode_command
from tests.docs import recording
from tests.docs.generated import PROTOCOL
from tests.docs.hexdump import dump, undump
from tests.docs.wire_examples import EXCHANGES, Exchange, body_of
from tests.support.commands import decode
from tests.support.daemon import Daemon
from tests.support.fake_clock import GUARD_SECONDS
from tests.support.pages import blocks

REWRITE = "python -m tests.docs.generated writes it anew"
# shown in words: it says the same as another one
NOT_SHOWN = {"binary-pull.answer", "register-delta.answer"}


@pytest.fixture(scope="module")
def shown() -> dict[str, str]:
    """The dumps on the page, by name."""
    return {block.example: block.text for block in blocks(PROTOCOL) if block.language == "hex" and block.example}


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory, shown: dict[str, str]) -> dict[str, bytes]:
    """What a real server answers to the questions as they stand on the page."""
    with Daemon(tmp_path_factory.mktemp("protocol") / "data") as daemon:
        asked = {exchange.name: undump(shown[f"{exchange.name}.question"]) for exchange in EXCHANGES}
        return recording.answers(daemon.listening(), asked)


def by_name(exchange: object) -> str:
    """How a case is called in the test's id."""
    return exchange.name if isinstance(exchange, Exchange) else ""


def test_every_dump_has_an_example(shown: dict[str, str]) -> None:
    """None is shown that is not replayed, and every example is shown."""
    names = {f"{exchange.name}.{part}" for exchange in EXCHANGES for part in ("question", "answer")}
    assert (names - NOT_SHOWN) | {"not-the-protocol"} == shown.keys()
    assert all(block.example for block in blocks(PROTOCOL) if block.language == "hex")


@pytest.mark.parametrize("exchange", EXCHANGES, ids=by_name)
def test_question_is_what_our_code_writes_and_reads(exchange: Exchange, shown: dict[str, str]) -> None:
    """To the byte, and with the meaning beside it that the bytes have."""
    text = shown[f"{exchange.name}.question"]

    assert encode_command(exchange.question) == undump(text), REWRITE
    assert as_read(exchange.question) == decode(undump(text))
    assert dump(undump(text)) == text, REWRITE


@pytest.mark.parametrize("exchange", EXCHANGES, ids=by_name)
def test_answer_is_what_a_server_says(exchange: Exchange, shown: dict[str, str], answered: dict[str, bytes]) -> None:
    """To the byte, and it says what the example says that it does."""
    frame = answered[exchange.name]
    command = decode(frame)

    assert header_of(exchange.answer) == header_of(command)
    assert_contains(exchange.body, body_of(command))
    if f"{exchange.name}.answer" not in NOT_SHOWN:
        assert dump(frame) == shown[f"{exchange.name}.answer"], REWRITE


def test_what_is_no_message_is_cut_off(shown: dict[str, str], tmp_path: Path) -> None:
    """Without an answer, after the first bytes, and with a line in the log."""
    with Daemon(tmp_path / "data") as daemon:
        with socket.create_connection(daemon.listening().address, GUARD_SECONDS) as connection:
            connection.sendall(undump(shown["not-the-protocol"]))
            assert connection.recv(1) == b""
        assert "frame of 1195725860 bytes" in daemon.wait_for("connection_refused")["error"]


def as_read(command: RemotingCommand) -> RemotingCommand:
    """What the other side reads; a native header names no language."""
    return replace(command, language=LanguageCode.OTHER) if command.is_native else command


def header_of(command: RemotingCommand) -> tuple[object, ...]:
    """All that a header says, but for the language."""
    ext = None if command.ext_fields is None else dict(command.ext_fields)
    return command.serialize_type, command.code, command.opaque, command.flag, command.version, command.remark, ext


def assert_contains(expected: object, found: object) -> None:
    """Everything that is expected is there; a map may have more members, which are empty."""
    if isinstance(expected, dict) and isinstance(found, dict):
        assert expected.keys() <= found.keys()
        assert not any(found[name] for name in found.keys() - expected.keys()), found
        for name, value in expected.items():
            assert_contains(value, found[name])
    elif isinstance(expected, list) and isinstance(found, list):
        assert len(expected) == len(found)
        for one, other in zip(expected, found, strict=True):
            assert_contains(one, other)
    else:
        assert (expected or None) == (found or None)
