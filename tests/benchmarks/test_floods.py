"""Connections of an attack: those that are replaced, those that stay, and those that the server refuses."""

import socket
import threading
from typing import Final

import pytest

from benchmarks.abuse.attacker import Attacker, Flow, Flows, Opening, holding
from benchmarks.abuse.floods import heartbeat, key_updates, of_brokers
from benchmarks.harness.figures import BenchError
from namesrv_remoting.codes import ResponseCode
from namesrv_remoting.command import RemotingCommand
from namesrv_remoting.serializers import encode_command
from tests.support.dead_ends import refusing_port


class _EnoughError(Exception):
    """Ends an attack."""


def test_a_flow_that_ends_is_replaced() -> None:
    """A connection of a flood that the server closed, or that has sent everything, is replaced."""
    opened: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        accepting = threading.Thread(target=_accept, args=(listening, 3))
        accepting.start()
        with Attacker(listening.getsockname()[1], 0, 60.0) as attacker:

            def opening(attacker: Attacker, number: int, source: int) -> Flow | None:
                opened.append(number)
                if number == 3:
                    raise _EnoughError
                peer = attacker.connect(source)
                assert peer is not None
                return Flow(peer, 4, iter([memoryview(b"some")]))

            with pytest.raises(_EnoughError):
                Flows(attacker, 1, opening).send()
            weight = attacker.weight
        accepting.join()

    # a packet at least for each of three connections, and for each frame
    assert (opened, weight) == ([0, 1, 2, 3], 6 * 1024)


def test_a_crowd_stays_until_the_time_is_up() -> None:
    """The connections of a crowd send their bytes once, and closed ones are not replaced."""
    with socket.create_server(("127.0.0.1", 0)) as listening, Attacker(listening.getsockname()[1], 0, 0.2) as attacker:
        crowd = Flows(attacker, 2, holding(b"some", frames=2))
        crowd.send()
        attacker.begin()
        first, second = listening.accept()[0], listening.accept()[0]
        with second:
            first.close()
            crowd.hold()
            assert second.recv(99) == b"some"

    assert (attacker.weight, attacker.attempts, attacker.successes) == (2 * 1024 + 4 * 1024, 2, 2)


def test_attacker_without_processor_time_makes_an_attempt() -> None:
    """The time of the attack is over before the attacker runs: it still tries to connect once."""
    with refusing_port() as bound, Attacker(bound.getsockname()[1], 0, 0.0) as attacker:
        attacker.begin()
        attacker.repeat([b"some"])

    assert attacker.attempts == 1


REFUSAL: Final = encode_command(RemotingCommand(ResponseCode.SYSTEM_BUSY, flag=1))


@pytest.mark.parametrize(
    ("opening", "responses"),
    [
        # nothing listens on the port
        (key_updates, []),
        # TLS handshakes fail
        (key_updates, [b"", b""]),
        # registrations are refused
        (of_brokers(heartbeat), [REFUSAL, REFUSAL]),
    ],
)
def test_attack_without_a_connection_is_none(opening: Opening, responses: list[bytes]) -> None:
    """An attack that the server refuses from the start meets no target."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        if responses:
            listening.listen()
        accepting = threading.Thread(target=_respond, args=(listening, responses))
        accepting.start()
        with Attacker(listening.getsockname()[1], 0, 60.0) as attacker:
            with pytest.raises(BenchError, match="no attack: 0 of 0 attempts succeeded"):
                attacker.check()
            Flows(attacker, 2, opening)
            with pytest.raises(BenchError, match="no attack: 0 of 2 attempts succeeded"):
                attacker.check()
        accepting.join()


def _respond(listening: socket.socket, responses: list[bytes]) -> None:
    for response in responses:
        with listening.accept()[0] as peer:
            peer.recv(4096)
            peer.sendall(response)


def _accept(listening: socket.socket, count: int) -> None:
    for _ in range(count):
        peer, _ = listening.accept()
        with peer:
            while peer.recv(4096):
                pass
