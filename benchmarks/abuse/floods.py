"""Floods: small frames or TLS records with little or no response, and how their connections are opened."""

import itertools
from collections.abc import Callable, Iterator
from typing import Final

from benchmarks.abuse.attacker import Attacker, Flow, Opening
from benchmarks.abuse.records import KEY_UPDATE_BYTES, TlsRecords
from benchmarks.abuse.well_behaved import PULL
from benchmarks.harness.wire import Broker, request
from namesrv_remoting.codes import FLAG_ONEWAY, FLAG_RESPONSE, RequestCode

_CHUNK_BYTES: Final = 256 * 1024
# KeyUpdate records of each connection
_UPDATES_BYTES: Final = 128 * 1024
_SLOW_SECONDS: Final = 0.1


def hostile(name: str) -> Broker:
    """A broker of an attacker."""
    return Broker(name, f"{name}:10911", cluster="Hostile")


def heartbeat(name: str) -> bytes:
    """A one-way BROKER_HEARTBEAT (904) request."""
    return hostile(name).heartbeat(flag=FLAG_ONEWAY)


def _response(name: str) -> bytes:
    """A response to a request that the server has never sent."""
    return request(0, {"brokerName": name}, flag=FLAG_RESPONSE)


def _chunks(data: bytes) -> Iterator[memoryview]:
    return itertools.repeat(memoryview(data * (_CHUNK_BYTES // len(data))))


def of_brokers(make: Callable[[str], bytes], *, is_reading: bool = False) -> Opening:
    """Connections that register a broker each, and then send its frame again and again."""

    def opening(attacker: Attacker, number: int, source: int) -> Flow | None:
        name = f"hostile-{number}"
        peer = attacker.connect(source)
        if peer is None or not attacker.request(peer, hostile(name).json_frame()):
            return None
        data = make(name)
        return Flow(peer, len(data), _chunks(data), is_reading=is_reading)

    return opening


def _slow(attacker: Attacker, _: int, source: int) -> Flow | None:
    """A connection that sends one request after the other, a byte at a time."""
    peer = attacker.connect(source)
    if peer is None:
        return None
    pull = memoryview(PULL)
    single_bytes = itertools.cycle([pull[at : at + 1] for at in range(len(pull))])
    return Flow(peer, len(pull), single_bytes, pause_seconds=_SLOW_SECONDS)


def _unread(attacker: Attacker, _: int, source: int) -> Flow | None:
    """A connection that requests topic lists all the time, and never reads a response."""
    peer, data = attacker.connect(source), request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    return None if peer is None else Flow(peer, len(data), _chunks(data))


_MIXED: Final = (of_brokers(heartbeat), _slow, _unread, of_brokers(_response))


def mixed(attacker: Attacker, number: int, source: int) -> Flow | None:
    """Connections of several kinds in turn."""
    return _MIXED[number % len(_MIXED)](attacker, number, source)


def key_updates(attacker: Attacker, _: int, source: int) -> Flow | None:
    """A TLS connection that sends KeyUpdate records."""
    peer = attacker.connect(source)
    if peer is None:
        return None
    try:
        records = TlsRecords(peer)
    except OSError:
        attacker.disconnect(peer)
        return None
    updates = records.key_updates(_UPDATES_BYTES // KEY_UPDATE_BYTES)
    return Flow(peer, KEY_UPDATE_BYTES, iter([memoryview(updates)]))
