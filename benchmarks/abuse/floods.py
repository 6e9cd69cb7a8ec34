"""Floods: small frames or TLS records with little or no response, on one or many connections."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.abuse.attacker import Attacker, Flow, Opening
from benchmarks.abuse.records import KEY_UPDATE_BYTES, TlsRecords
from benchmarks.abuse.well_behaved import PULL
from benchmarks.harness.wire import Broker, request
from benchmarks.speed.tls import certified
from namesrv_remoting.codes import FLAG_ONEWAY, FLAG_RESPONSE, RequestCode
from namesrv_remoting.signatures import sign_rocketmq

_CHUNK_BYTES: Final = 256 * 1024
# KeyUpdate records of all connections of a flood together, which are made before the attack
_UPDATES_BYTES: Final = 8 * 1024 * 1024
# KeyUpdate records of a connection that replaces a closed one during the attack
_FURTHER_UPDATES_BYTES: Final = 32 * 1024
_SLOW_SECONDS: Final = 0.1
_SECRET: Final = b"a-secret-of-a-tenant"
# The account of the well-behaved peers is bound to their network, in which no attacker is.
_ACCESS_FILE: Final = f"""
[accounts.peers]
networks = ["127.0.0.0/24"]
may = ["route-read", "broker-control", "admin-read"]

[accounts.tenant]
secrets = ["{_SECRET.decode()}"]
may = [{{ access = "broker-control", clusters = ["Hostile"], brokers = ["hostile-*"], topics = ["hostile-*"] }}]
"""


@dataclass(frozen=True, slots=True)
class Family:
    """A kind of flood; it is measured on one and on many connections, from one and from several addresses."""

    what: str
    # takes the number of connections, and returns how each of them is opened
    opening: Callable[[int], Opening]
    # opens connections that replace closed ones; None: `opening` does
    reopening: Opening | None = None
    # returns the flags of the server, whose files it writes into a directory
    configured: Callable[[Path], tuple[str, ...]] = lambda _: ()


# -- frames -----------------------------------------------------------------------------------------------------------


def _hostile(name: str) -> Broker:
    return Broker(name, f"{name}:10911", cluster="Hostile")


def _heartbeat(name: str) -> bytes:
    """A one-way BROKER_HEARTBEAT (904) request."""
    return _hostile(name).heartbeat(flag=FLAG_ONEWAY)


def _version(name: str) -> bytes:
    """A one-way QUERY_DATA_VERSION (322) request, the heartbeat of RocketMQ 4.x."""
    return _hostile(name).version_query(flag=FLAG_ONEWAY)


def _response(name: str) -> bytes:
    """A response to a request that the server has never sent."""
    return request(0, {"brokerName": name}, flag=FLAG_RESPONSE)


def _signed(name: str) -> bytes:
    """A one-way heartbeat that is signed by the tenant."""
    fields = sign_rocketmq(_hostile(name).identity, b"", "tenant", _SECRET)
    return request(RequestCode.BROKER_HEARTBEAT, fields, flag=FLAG_ONEWAY)


def _chunks(data: bytes) -> Iterator[memoryview]:
    return itertools.repeat(memoryview(data * (_CHUNK_BYTES // len(data))))


def _of_brokers(make: Callable[[str], bytes], *, is_reading: bool = False) -> Opening:
    """Connections that register a broker each, and then send its frame again and again."""

    def opening(attacker: Attacker, number: int, source: int) -> Flow | None:
        name = f"hostile-{number}"
        peer = attacker.connect(source)
        if peer is None or not attacker.request(peer, _hostile(name).json_frame()):
            return None
        data = make(name)
        return Flow(peer, len(data), _chunks(data), is_reading=is_reading)

    return opening


def _slow(attacker: Attacker, _: int, source: int) -> Flow | None:
    """A connection that sends one request after the other, a byte at a time."""
    peer = attacker.connect(source)
    if peer is None:
        return None
    request = memoryview(PULL)
    single_bytes = itertools.cycle([request[at : at + 1] for at in range(len(request))])
    return Flow(peer, len(request), single_bytes, pause_seconds=_SLOW_SECONDS)


def _unread(attacker: Attacker, _: int, source: int) -> Flow | None:
    """A connection that requests topic lists all the time, and never reads a response."""
    peer, data = attacker.connect(source), request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    return None if peer is None else Flow(peer, len(data), _chunks(data))


def _mixed(*openings: Opening) -> Opening:
    """Connections of several kinds in turn."""
    return lambda attacker, number, source: openings[number % len(openings)](attacker, number, source)


def _tenants(attacker: Attacker, number: int, source: int) -> Flow | None:
    """A connection of an account for some brokers only; every other connection names a foreign broker."""
    peer = attacker.connect(source)
    data = _signed("live-0" if number % 2 else f"hostile-{number}")
    return None if peer is None else Flow(peer, len(data), _chunks(data))


def _access_file(directory: Path) -> tuple[str, ...]:
    file = directory / "access.toml"
    file.write_text(_ACCESS_FILE, encoding="utf-8")
    file.chmod(0o600)
    return ("--access", str(file))


# -- TLS --------------------------------------------------------------------------------------------------------------


def _of_key_updates(size: int, *, is_http: bool) -> Opening:
    """Connections that send `size` bytes of KeyUpdate records."""

    def opening(attacker: Attacker, _: int, source: int) -> Flow | None:
        peer = attacker.connect(source, attacker.http_port if is_http else None)
        if peer is None:
            return None
        try:
            records = TlsRecords(peer)
        except OSError:
            attacker.closed += 1
            attacker.disconnect(peer)
            return None
        updates = records.key_updates(size // KEY_UPDATE_BYTES)
        return Flow(peer, KEY_UPDATE_BYTES, iter([memoryview(updates)]))

    return opening


def _key_updates(what: str, *, is_http: bool = False) -> Family:
    """A family whose connections divide the prepared records among them."""
    return Family(
        what,
        lambda count: _of_key_updates(_UPDATES_BYTES // count, is_http=is_http),
        _of_key_updates(_FURTHER_UPDATES_BYTES, is_http=is_http),
        configured=lambda directory: (*certified(directory)[0], *(("--http-tls",) if is_http else ())),
    )


# in the order of the table
FAMILIES: Final[dict[str, Family]] = {
    "oneway": Family("one-way 904 of a registered broker, pipelined", lambda _: _of_brokers(_heartbeat)),
    "oneway-322": Family("one-way 322 of a registered broker, pipelined", lambda _: _of_brokers(_version)),
    "heartbeats": Family(
        "904 of a registered broker, pipelined, its responses read",
        lambda _: _of_brokers(lambda name: _hostile(name).heartbeat(), is_reading=True),
    ),
    "responses": Family("responses to nothing", lambda _: _of_brokers(_response)),
    "mixtures": Family(
        "in turn one-way 904, a byte each 0.1 s, lists that are not read, responses to nothing",
        lambda _: _mixed(_of_brokers(_heartbeat), _slow, _unread, _of_brokers(_response)),
    ),
    "tenants": Family(
        "one-way 904 signed by a narrowed account, for its own broker and for a foreign one",
        lambda _: _tenants,
        configured=_access_file,
    ),
    "key-update": _key_updates("TLS 1.3 KeyUpdates"),
    "key-update-https": _key_updates("TLS 1.3 KeyUpdates to the HTTPS port", is_http=True),
}
