"""KV configuration that a server confirmed survives whatever happens to the server."""

import json

import pytest

from tests.support.daemon import Start
from tests.support.peer import Connect, Peer

# nothing here depends on the loop
pytestmark = pytest.mark.parametrize("loop", ["auto"])

PUT, GET, DELETE, LIST = 100, 101, 102, 219
NOT_FOUND = 22


def namespace(peer: Peer, name: str = "NS") -> dict[str, str]:
    """Keys and values of a namespace; empty if there is none."""
    answer = peer.ask(LIST, {"namespace": name})
    if answer.code == NOT_FOUND:
        return {}
    assert 0 == answer.code, answer
    table: dict[str, str] = json.loads(answer.body)["table"]
    return table


def codes_until_the_end(peer: Peer) -> list[int]:
    """The codes of all answers that come before the end of the connection."""
    codes: list[int] = []
    try:
        while True:
            codes.append(peer.receive().code)
    except EOFError:
        return codes


def test_confirmed_puts_survive_a_kill(start: Start, connect: Connect) -> None:
    """A server is killed while four peers put: whatever was answered is there after the restart."""
    daemon = start()
    writers = [connect(daemon) for _ in range(4)]
    for writer, peer in enumerate(writers):
        for number in range(100):
            peer.send(PUT, {"namespace": f"NS{writer}", "key": f"k{number}", "value": f"v{number}"})
    first = [writers[0].receive().code for _ in range(20)]
    daemon.kill()
    codes = [codes_until_the_end(peer) for peer in writers]
    codes[0] = first + codes[0]

    peer = connect(start())
    for writer, answered in enumerate(codes):
        # one connection is answered in the order in which it asks
        confirmed = {f"k{number}": f"v{number}" for number in range(len(answered))}
        assert {0} >= set(answered)
        assert confirmed.items() <= namespace(peer, f"NS{writer}").items()
