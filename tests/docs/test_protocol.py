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

# one worker gets all of them, for the server's sake
pytestmark = pytest.mark.xdist_group("protocol")
REWRITE = "python -m tests.docs.generated writes it anew"
# described in words, because other blocks show the same fields
NOT_SHOWN = {
    "binary-pull.response",
    "heartbeat.response",
    "heartbeat-of-unknown-broker.request",
    "heartbeat-of-unknown-broker.response",
    "pull-routes-wait.response",
    "register-delta.request",
    "register-delta.response",
    "no-topic.request",
    "no-field.request",
    "no-field.response",
    "no-code.request",
    "no-code.response",
}


@pytest.fixture(scope="module")
def shown() -> dict[str, str]:
    """The dumps on the page, by name."""
    return {block.example: block.text for block in blocks(PROTOCOL) if block.language == "hex" and block.example}


@pytest.fixture(scope="module")
def responses(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Responses of a real server, by name of the exchange."""
    with Daemon(tmp_path_factory.mktemp("protocol") / "data", recording.NAMED) as daemon:
        return recording.responses(daemon.listening(), recording.requests())


def by_name(exchange: object) -> str:
    """The name of a case in its test id."""
    return exchange.name if isinstance(exchange, Exchange) else ""


@pytest.mark.parametrize("exchange", EXCHANGES, ids=by_name)
def test_request_equals_our_encoding(exchange: Exchange, shown: dict[str, str]) -> None:
    """The bytes are equal, and the annotations are current."""
    frame = encode_command(exchange.request)

    assert as_read(exchange.request) == decode(frame)
    assert_shown(f"{exchange.name}.request", frame, shown)


@pytest.mark.parametrize("exchange", EXCHANGES, ids=by_name)
def test_response_equals_a_servers(exchange: Exchange, shown: dict[str, str], responses: dict[str, bytes]) -> None:
    """The bytes are equal, and the decoded response has the example's values."""
    frame = responses[exchange.name]
    command = decode(frame)

    assert header_of(exchange.response) == header_of(command)
    assert_contains(exchange.body, body_of(command))
    assert_shown(f"{exchange.name}.response", frame, shown)


def assert_shown(name: str, frame: bytes, shown: dict[str, str]) -> None:
    """Check that the page has this dump, unless it describes the frame in words."""
    if name in NOT_SHOWN:
        assert name not in shown
    else:
        assert undump(shown[name]) == frame, REWRITE
        assert shown[name] == dump(frame), REWRITE


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
