"""Is the KV configuration that a server confirmed still there, whatever happened to the server?"""

import json
from pathlib import Path

import pytest

from tests.support.broker import Broker
from tests.support.daemon import Start
from tests.support.peer import Connect, Peer

PUT, GET, DELETE, LIST = 100, 101, 102, 219


def namespace(peer: Peer, name: str) -> dict[str, str]:
    """Keys and values of a namespace."""
    answer = peer.ask(LIST, {"namespace": name})
    assert 0 == answer.code, answer
    table: dict[str, str] = json.loads(answer.body)["table"]
    return table


def test_confirmed_puts_survive_a_kill(start: Start, connect: Connect) -> None:
    """A server is killed while four peers put: whatever was answered before is there after the restart."""
    daemon = start()
    peers = [connect(daemon) for _ in range(4)]
    for writer, peer in enumerate(peers):
        for number in range(100):
            peer.send(PUT, {"namespace": f"NS{writer}", "key": f"k{number}", "value": f"v{number}"})
    # in the middle of it
    answers = [[peers[0].receive() for _ in range(30)]]
    daemon.kill()
    # what came before the end counts as confirmed, too
    answers[0] += received(peers[0])
    answers += [received(peer) for peer in peers[1:]]

    peer = connect(start())
    for writer, confirmed in enumerate(answers):
        assert {0} <= {answer.code for answer in confirmed} | {0}
        held = namespace(peer, f"NS{writer}") if confirmed else {}
        assert {f"k{number}": f"v{number}" for number in range(len(confirmed))}.items() <= held.items()
    assert 30 <= len(answers[0])


def received(peer: Peer) -> list[object]:
    """All answers that came before the end of the connection."""
    answers: list[object] = []
    try:
        while True:
            answers.append(peer.receive())
    except EOFError:
        return answers
