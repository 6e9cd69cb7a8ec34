"""The list of attacks: costly bodies, requests, connections, floods, and attacks on HTTP.

There is one attack for each kind of cost. Bounds on the cost of each decoder are tested in tests/fuzz/test_costs.py,
each request code in tests/abuse/test_every_request.py; `storm` sends the costliest headers.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.abuse import floods, payloads
from benchmarks.abuse.attacker import Attacker, Flow, Flows, Opening, holding
from benchmarks.abuse.payloads import BODY_BYTES, filled, registration
from benchmarks.abuse.well_behaved import CLUSTER, PULL
from benchmarks.harness.servers import Server
from benchmarks.harness.wire import Broker, Wire, request, topics
from benchmarks.speed.tls import certified
from namesrv_remoting.codes import FLAG_ONEWAY, RequestCode, SerializeType

MSGPACK: Final = SerializeType.MSGPACK
_NO_SEED: Final = b""

# Makes the bytes of an attack, and opens the connections that exist before it; the returned function attacks.
Preparation = Callable[[Attacker], Callable[[], object]]


@dataclass(frozen=True, slots=True)
class Attack:
    """An attack: how its bytes are made and sent, the server that it needs, and what may happen to other peers."""

    what: str
    prepare: Preparation = lambda _: lambda: None
    # number of addresses from which the attack comes
    peers: int = 1
    # returns the flags of the server, whose files it writes into a directory
    configured: Callable[[Path], tuple[str, ...]] = lambda _: ()
    # a registration that the server receives before the attack
    seed: Callable[[], bytes] = lambda: _NO_SEED
    # True: part of the short form.
    is_short: bool = False
    # True: the server may refuse clients, because connection slots or memory are used up.
    may_refuse_clients: bool = False
    # limit of a memory cgroup in which the server runs; 0: no cgroup
    memory_limit_bytes: int = 0
    # least duration, for an attack that needs more than the usual one
    seconds: float = 0.0


def _repeated(make: Callable[[], bytes | Sequence[bytes]], together: int = 1) -> Preparation:
    def prepare(attacker: Attacker) -> Callable[[], object]:
        made = make()
        frames = [made] if isinstance(made, bytes) else made
        bursts = [b"".join(frames[at : at + together]) for at in range(0, len(frames), together)]
        return partial(attacker.repeat, bursts, together=together)

    return prepare


def _body(
    what: str,
    body: Callable[[], bytes],
    *,
    kind: SerializeType = SerializeType.JSON,
    is_short: bool = False,
) -> Attack:
    """The attack of a peer that sends registrations with this body one after another."""

    def make() -> list[bytes]:
        # Two bodies in turn, because the server does not decode an unchanged registration again.
        first = body()
        return [registration(each, kind) for each in (first, payloads.changed(first))]

    return Attack(what, _repeated(make), is_short=is_short)


def _crowd(count: int, make: Callable[[], bytes] = bytes, *, sources: int = 1, **how: Any) -> Preparation:
    """Many connections that send the same bytes, never read, and stay open until the attack is over."""

    def prepare(attacker: Attacker) -> Callable[[], object]:
        opening = holding(make(), **how)
        return lambda: Flows(attacker, count, opening, sources=sources).hold()

    return prepare


def _watch_frame(attacker: Attacker, pattern: str, count: int) -> bytes:
    """A watch of `count` topics."""
    with Wire(Server(0, attacker.port)) as wire:
        return wire.watch_frame([pattern % number for number in range(count)])


# -- earlier registrations --------------------------------------------------------------------------------------------


def _many_topics() -> bytes:
    """The registration of a broker with 90,000 topics and an expiry of ten minutes."""
    body = payloads.json_topics(90_000, b"an-ordinary-topic-of-an-ordinary-broker-%d")
    return registration(body, broker_name="seed", heartbeat_timeout_millis=600_000)


# -- requests ---------------------------------------------------------------------------------------------------------


def _lists() -> list[bytes]:
    codes = (206, 304, 311, 312, 313)
    return [
        *(request(code) for code in codes),
        request(RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": CLUSTER}),
        request(RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": "Hostile"}),
        request(RequestCode.GET_BROKER_CLUSTER_INFO),
    ]


def _keys() -> list[bytes]:
    """Requests that set 20,000 different keys of the KV configuration."""
    value = "v" * 15_000
    return [request(100, {"namespace": "N", "key": str(number), "value": value}) for number in range(20_000)]


def _watches(attacker: Attacker) -> Callable[[], object]:
    """152 watches of 20,000 topics each on one connection."""

    def opening(attacker: Attacker, _: int, source: int) -> Flow | None:
        peer = attacker.connect(source)
        frame = memoryview(_watch_frame(attacker, "an-ordinary-topic-of-an-ordinary-broker-%d", 20_000))
        return None if peer is None else Flow(peer, len(frame), itertools.repeat(frame, 152), is_staying=True)

    return lambda: Flows(attacker, 1, opening).hold()


def _slow_watchers(attacker: Attacker) -> Callable[[], object]:
    """A thousand connections with 50 watches of a broker's topics each never read; the broker changes its topics."""
    names = topics("watched-%d", 100)
    changes = [
        Broker("watched", "watched:10911", names, "Hostile", counter=number).changed(number).json_frame()
        for number in (8, 9)
    ]

    def attack() -> None:
        watches = _watch_frame(attacker, "watched-%d", 100) * 50
        watchers = Flows(attacker, 1_000, holding(watches, frames=50), sources=_ADDRESSES)
        watchers.send()
        attacker.repeat(changes)
        watchers.close()

    return attack


# -- totals -----------------------------------------------------------------------------------------------------------


def _many_full_brokers() -> list[bytes]:
    return [
        registration(payloads.json_topics(99_000, b"%d", first=100_000 * number), broker_name=f"full-{number}")
        for number in range(1, 9)
    ]


def _many_brokers() -> list[bytes]:
    # Two topics each: the server refuses a first registration of a single topic, which might be an increment.
    return [registration(payloads.json_topics(2), broker_name=f"one-of-many-{number}") for number in range(20_000)]


# -- all at once ------------------------------------------------------------------------------------------------------


def _storm(attacker: Attacker) -> Callable[[], object]:
    """A thousand connections send the costliest bytes in turn, each beginning with a different item."""
    bodies = {
        SerializeType.JSON: (
            b"[" * BODY_BYTES,
            filled(b'{"topicConfigSerializeWrapper":', b"{},", b""),
            filled(b'{"filterServerList":[', b'"",', b'""]}'),
            payloads.json_topics(10_000_000),
        ),
        MSGPACK: (b"\x91" * BODY_BYTES, b"\x80" * BODY_BYTES, payloads.native_names("filter_server_list")),
    }
    zipped = (payloads.compressed_version(), payloads.compressed_topics(), payloads.compressed_filters())
    hostile = [
        *(registration(body, kind) for kind, some in bodies.items() for body in some),
        *(registration(body, compressed=True) for body in zipped),
        payloads.million_fields(),
        payloads.binary_header(),
        payloads.native_header(b"\x80"),
        payloads.partial_unknown(),
        b"\x7f\xff\xff\xff",
        b"\x00\xff\xff\xff" + bytes(256),
    ]
    views = [memoryview(payload) for payload in hostile]

    def opening(attacker: Attacker, number: int, source: int) -> Flow | None:
        peer, first = attacker.connect(source), number % len(views)
        chunks = itertools.cycle(views[first:] + views[:first])
        return None if peer is None else Flow(peer, BODY_BYTES, chunks, is_reading=True)

    return lambda: Flows(attacker, 1_000, opening, sources=_ADDRESSES).send()


def _crowd_of_waiting_bytes(attacker: Attacker) -> Callable[[], object]:
    """Connections whose bytes wait: the beginning of a frame, pipelined requests, or responses that are not read."""
    pipelined = request(_UNKNOWN_CODE, {"any": "v" * 3_000}, flag=FLAG_ONEWAY)
    data = (payloads.partial_registration()[:_WAITING_BYTES], pipelined * (_WAITING_BYTES // len(pipelined)), _LISTS)
    openings = [holding(each) for each in data]

    def opening(attacker: Attacker, number: int, source: int) -> Flow | None:
        return openings[number % len(openings)](attacker, number, source)

    return lambda: Flows(attacker, _CROWD, opening, sources=_ADDRESSES).hold()


# -- floods -----------------------------------------------------------------------------------------------------------


# connections of a flood, and their addresses
_FLOODING: Final = 64
_FLOODING_ADDRESSES: Final = 10


def _flood(
    what: str,
    opening: Opening,
    *,
    configured: Callable[[Path], tuple[str, ...]] = lambda _: (),
    is_short: bool = False,
) -> Attack:
    """A flood on 64 connections from ten addresses, which are open before the attack."""

    def prepare(attacker: Attacker) -> Callable[[], object]:
        return Flows(attacker, _FLOODING, opening, sources=_FLOODING_ADDRESSES).send

    where = f"{_FLOODING} connections from {_FLOODING_ADDRESSES} addresses"
    return Attack(f"{what}: {where}", prepare, peers=_FLOODING_ADDRESSES, configured=configured, is_short=is_short)


# -- HTTP -------------------------------------------------------------------------------------------------------------


_MEMORY_LIMIT_BYTES: Final = 768 * 1024 * 1024
# connections of a crowd, nearly as many as a server admits, and the bytes of each that wait
_CROWD: Final = 8_900
_WAITING_BYTES: Final = 400_000
_UNKNOWN_CODE: Final = 9_999
_LISTS: Final = request(206) * 300
_GET: Final = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"
_ADDRESSES: Final = 200

# in the order of the table
ATTACKS: Final[dict[str, Attack]] = {
    # bodies of registrations
    "version-bare": _body(
        "103, 16 MiB: DataVersion of `,1:`",
        lambda: filled(b'{"topicConfigSerializeWrapper":{"dataVersion":{', b",1:", b"}}}"),
        is_short=True,
    ),
    "topics-json": _body("103, 16 MiB: 500,000 topics", lambda: payloads.json_topics(10_000_000), is_short=True),
    "topics-native": _body("native 103, 16 MiB: 850,000 topics", payloads.native_topics, kind=MSGPACK, is_short=True),
    "legal-100k": _body("103 with the legal most: 100,000 topics", lambda: payloads.json_topics(100_000)),
    # requests
    "lists": Attack(
        "206, 224, 304, 311 to 313, 106 over 90,000 topics, 8 at once",
        _repeated(_lists, together=8),
        seed=_many_topics,
        is_short=True,
    ),
    "lists-unread": Attack(
        "150 peers ask for lists of 90,000 topics, 50 times each, and never read",
        _crowd(150, lambda: request(206) * 50, frames=50, sources=150),
        peers=150,
        seed=_many_topics,
        may_refuse_clients=True,
        is_short=True,
    ),
    "lists-unread-one": Attack(
        "one peer does the same on 150 connections",
        _crowd(150, lambda: request(206) * 50, frames=50),
        seed=_many_topics,
    ),
    "watches": Attack("one connection with 152 watches of 20,000 topics", _watches, seed=_many_topics, is_short=True),
    "watches-unread": Attack(
        "1,000 connections with 50 watches of 100 topics each, which change all the time, and never read",
        _slow_watchers,
        peers=_ADDRESSES,
        may_refuse_clients=True,
        is_short=True,
    ),
    "pulls-native": Attack("20001 for 100,000 topics", _repeated(lambda: payloads.native_pull(100_000)), is_short=True),
    "keys": Attack("100 with 15 KB each and another key each time, 16 at once", _repeated(_keys, 16), is_short=True),
    # totals
    "topics-total": Attack("792,000 topics of 8 brokers over one connection", _repeated(_many_full_brokers)),
    "brokers-total": Attack("20,000 brokers over one connection", _repeated(_many_brokers, 16)),
    # connections
    "partial-frames": Attack(
        "200 peers with 15 MiB of a registration each",
        _crowd(_ADDRESSES, payloads.partial_registration, sources=_ADDRESSES),
        peers=_ADDRESSES,
        may_refuse_clients=True,
        is_short=True,
    ),
    "partial-one": Attack(
        "one peer with 20 connections, 15 MiB of a registration on each",
        _crowd(20, payloads.partial_registration),
    ),
    "partial-headers": Attack(
        "200 peers with 60 KB of a header each, of a frame of 16 MiB",
        _crowd(_ADDRESSES, payloads.partial_unknown, sources=_ADDRESSES),
        peers=_ADDRESSES,
    ),
    "connections": Attack("10,000 silent connections from one address", _crowd(10_000), is_short=True),
    "connections-spread": Attack(
        "10,000 silent connections from 200 addresses",
        _crowd(10_000, sources=_ADDRESSES),
        peers=_ADDRESSES,
        may_refuse_clients=True,
    ),
    "slow-frames": Attack(
        "500 connections from one address that send a byte each every 0.2 s", _crowd(500, lambda: PULL, every=0.2)
    ),
    "slowloris": Attack(
        "2,000 connections from 200 addresses that send a byte each a second: the deadline of the first frame is 10 s",
        _crowd(2_000, lambda: PULL, every=1.0, sources=_ADDRESSES),
        peers=_ADDRESSES,
        seconds=14.0,
        may_refuse_clients=True,
    ),
    # requests without a response
    "oneway": _flood("one-way 904 of a registered broker, pipelined", floods.of_brokers(floods.heartbeat)),
    "heartbeats": _flood(
        "904 of a registered broker, pipelined, its responses read",
        floods.of_brokers(lambda name: floods.hostile(name).heartbeat(), is_reading=True),
    ),
    "mixtures": _flood(
        "in turn one-way 904, a byte each 0.1 s, lists that are not read, responses to nothing",
        floods.mixed,
        is_short=True,
    ),
    "key-update": _flood(
        "TLS 1.3 KeyUpdates", floods.key_updates, configured=lambda directory: certified(directory)[0]
    ),
    # all at once
    "storm": Attack(
        "1,000 connections send giant lengths, nested arrays, empty maps, zlib bombs, a million ext fields, over and "
        "over, to a server in a memory cgroup of 768 MiB",
        _storm,
        peers=_ADDRESSES,
        may_refuse_clients=True,
        memory_limit_bytes=_MEMORY_LIMIT_BYTES,
        is_short=True,
    ),
    "crowd": Attack(
        "8,900 connections, each with 400 KB of a frame's beginning, of pipelined requests, or of requests for lists "
        "that are not read, to a server in a memory cgroup of 768 MiB",
        _crowd_of_waiting_bytes,
        peers=_ADDRESSES,
        may_refuse_clients=True,
        memory_limit_bytes=_MEMORY_LIMIT_BYTES,
        seconds=12.0,
    ),
    # HTTP
    "http-connections": Attack("2,000 silent connections to the HTTP port", _crowd(2_000, to_http=True), is_short=True),
    "http-unread": Attack(
        "200 connections ask for metrics 50 times each and never read",
        _crowd(200, lambda: _GET * 50, to_http=True),
    ),
}
