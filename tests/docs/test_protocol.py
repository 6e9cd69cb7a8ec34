"""Every frame in docs/protocol.md is the one that our code and a real server write."""

from dataclasses import replace

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
from tests.support.pages import blocks

REWRITE = "python -m tests.docs.generated writes it anew"
# described in words, because it equals another one
NOT_SHOWN = {"binary-pull.answer", "register-delta.answer"}


@pytest.fixture(scope="module")
def shown() -> dict[str, str]:
    """The dumps on the page, by name."""
    return {block.example: block.text for block in blocks(PROTOCOL) if block.language == "hex" and block.example}


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory, shown: dict[str, str]) -> dict[str, bytes]:
    """Responses of a real server to the requests on the page."""
    with Daemon(tmp_path_factory.mktemp("protocol") / "data") as daemon:
        asked = {exchange.name: undump(shown[f"{exchange.name}.question"]) for exchange in EXCHANGES}
        return recording.answers(daemon.listening(), asked)


def by_name(exchange: object) -> str:
    """The name of a case in its test id."""
    return exchange.name if isinstance(exchange, Exchange) else ""


@pytest.mark.parametrize("exchange", EXCHANGES, ids=by_name)
def test_request_equals_our_encoding(exchange: Exchange, shown: dict[str, str]) -> None:
    """The bytes are equal, and the annotations are current."""
    text = shown[f"{exchange.name}.question"]

    assert encode_command(exchange.question) == undump(text), REWRITE
    assert as_read(exchange.question) == decode(undump(text))
    assert dump(undump(text)) == text, REWRITE


@pytest.mark.parametrize("exchange", EXCHANGES, ids=by_name)
def test_response_equals_a_servers(exchange: Exchange, shown: dict[str, str], answered: dict[str, bytes]) -> None:
    """The bytes are equal, and the decoded response has the example's values."""
    frame = answered[exchange.name]
    command = decode(frame)

    assert header_of(exchange.answer) == header_of(command)
    assert_contains(exchange.body, body_of(command))
    if f"{exchange.name}.answer" not in NOT_SHOWN:
        assert dump(frame) == shown[f"{exchange.name}.answer"], REWRITE


def as_read(command: RemotingCommand) -> RemotingCommand:
    """The command as decoded by the other side; a native header has no language."""
    return replace(command, language=LanguageCode.OTHER) if command.is_native else command


def header_of(command: RemotingCommand) -> tuple[object, ...]:
    """All header members but the language."""
    ext = None if command.ext_fields is None else dict(command.ext_fields)
    return command.serialize_type, command.code, command.opaque, command.flag, command.version, command.remark, ext


def assert_contains(expected: object, found: object) -> None:
    """Check that `found` has every expected member; other members must be empty."""
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
