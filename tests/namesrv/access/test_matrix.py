"""Every code with every kind of credentials: the answer, and that a refusal changes nothing."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from namesrv_remoting.access import GRANTABLE
from namesrv_remoting.requests import REQUESTS, AccessClass
from tests.support.certificates import Authority, Identity
from tests.support.in_process import InProcess, namesrv_in_process
from tests.support.namesrv_peer import Broker, NamesrvPeer, Spelling, native, question, registration
from tests.support.signing import Key

SECRET = "secret-of-the-matrix"
OTHER_NETWORK, THEIR_NETWORK, CLOSED_NETWORK = "127.0.0.1", "127.0.0.2", "127.0.0.3"
FILE = f"""
[accounts.reader]
secrets = ["{SECRET}"]
may = ["route-read"]

[accounts.broker]
secrets = ["{SECRET}"]
may = ["broker-control"]

[accounts.operator]
access_key = "op"
secrets = ["next-{SECRET}", "{SECRET}"]
may = {[*map(str, GRANTABLE)]}

[accounts.java-operator]
secrets = ["{SECRET}"]
trust_rocketmq_signatures = true
may = ["admin-write", "admin-read"]

[accounts.former]
secrets = ["{SECRET}"]
expires = 2023-11-14T22:13:20Z
may = {[*map(str, GRANTABLE)]}

[accounts.bound]
secrets = ["{SECRET}"]
networks = ["{THEIR_NETWORK}"]
may = {[*map(str, GRANTABLE)]}

[accounts.certified]
certificates = ["broker-1.example.com"]
may = ["broker-control"]

[accounts.certified-too]
certificates = ["broker-2.example.com"]
may = ["broker-control"]

[accounts.certified-there]
certificates = ["broker-4.example.com"]
networks = ["{THEIR_NETWORK}"]
may = ["route-read", "broker-control"]

[accounts.certified-formerly]
certificates = ["broker-5.example.com"]
expires = 2023-11-14T22:13:20Z
may = ["route-read", "broker-control"]

[accounts.closed-network]
networks = ["{CLOSED_NETWORK}/32"]
may = ["route-read", "broker-control"]
"""
READ, CONTROL, ADMIN = AccessClass.ROUTE_READ, AccessClass.BROKER_CONTROL, set(AccessClass)
EVERYBODY = AccessClass.ANY_ACCOUNT
MINUTE_MS = 60_000


class Credentials(NamedTuple):
    """What a peer shows, from where, and what that is good for."""

    key: Key | None
    allowed: set[AccessClass]
    source: str = OTHER_NETWORK
    # the name in the certificate that it shows
    certificate: str = ""


NOW_MS = Key("", "").now_ms
MATRIX = {
    "nobody": Credentials(None, set()),
    "reader": Credentials(Key("reader", SECRET), {READ, EVERYBODY}),
    "reader as RocketMQ signs": Credentials(Key("reader", SECRET, "rocketmq"), {READ, EVERYBODY}),
    "broker": Credentials(Key("broker", SECRET), {CONTROL, EVERYBODY}),
    "broker as RocketMQ signs": Credentials(Key("broker", SECRET, "rocketmq"), {CONTROL, EVERYBODY}),
    "operator": Credentials(Key("op", SECRET), ADMIN),
    "operator with the next secret": Credentials(Key("op", f"next-{SECRET}"), ADMIN),
    # no code and no time in it: good for what a copy of it may do for ever
    "operator as RocketMQ signs": Credentials(Key("op", SECRET, "rocketmq"), {READ, CONTROL, EVERYBODY}),
    "operator whose RocketMQ signature is trusted": Credentials(
        Key("java-operator", SECRET, "rocketmq"), {AccessClass.ADMIN_READ, AccessClass.ADMIN_WRITE, EVERYBODY}
    ),
    "wrong secret": Credentials(Key("op", f"wrong-{SECRET}"), set()),
    "wrong secret as RocketMQ signs": Credentials(Key("op", f"wrong-{SECRET}", "rocketmq"), set()),
    "unknown key": Credentials(Key("operator", SECRET), set()),
    "expired account": Credentials(Key("former", SECRET), set()),
    "signed two minutes ago": Credentials(Key("op", SECRET, now_ms=NOW_MS - 2 * MINUTE_MS), set()),
    "signed in two minutes": Credentials(Key("op", SECRET, now_ms=NOW_MS + 2 * MINUTE_MS), set()),
    "from another network": Credentials(Key("bound", SECRET), set()),
    "from the account's network": Credentials(Key("bound", SECRET), ADMIN, THEIR_NETWORK),
    "network only": Credentials(None, {READ, CONTROL, EVERYBODY}, CLOSED_NETWORK),
    "certificate only": Credentials(None, {CONTROL, EVERYBODY}, certificate="broker-1.example.com"),
    "certificate of nobody": Credentials(None, set(), certificate="broker-3.example.com"),
    "certificate of two": Credentials(None, set(), certificate="broker-1.example.com,broker-2.example.com"),
    "certificate from another network": Credentials(None, set(), certificate="broker-4.example.com"),
    "certificate of an expired account": Credentials(None, set(), certificate="broker-5.example.com"),
    # who signs is the signer, and a signature that is no good is not made good by anything else
    "reader's key over a broker's certificate": Credentials(
        Key("reader", SECRET), {READ, EVERYBODY}, certificate="broker-1.example.com"
    ),
    "wrong secret over a certificate": Credentials(
        Key("op", f"wrong-{SECRET}"), set(), certificate="broker-1.example.com"
    ),
    "wrong secret from a network": Credentials(Key("op", f"wrong-{SECRET}"), set(), CLOSED_NETWORK),
}


class Question(NamedTuple):
    """A request that does something to a populated server, if it is let."""

    ext: Mapping[str, str] | None = None
    body: bytes = b""
    spelling: Spelling = "json"


BROKER = Broker()
NEW = Broker("broker-new", 0, "10.0.0.9:10911")
QUEUES = b'{"queueDatas":[{"brokerName":"broker-a","readQueueNums":4,"writeQueueNums":4,"perm":6,"topicSysFlag":0}]}'
_SAMPLES: dict[int, Question] = {
    100: Question({"namespace": "ORDER_TOPIC_CONFIG", "key": "U", "value": "broker-a:4"}),
    101: Question({"namespace": "ORDER_TOPIC_CONFIG", "key": "T"}),
    102: Question({"namespace": "ORDER_TOPIC_CONFIG", "key": "T"}),
    103: Question(NEW.ext, registration("T", "U")),
    104: Question(BROKER.ext),
    105: Question({"topic": "T"}),
    205: Question({"brokerName": "broker-a"}),
    216: Question({"topic": "T"}),
    217: Question({"topic": "NEW"}, QUEUES),
    219: Question({"namespace": "ORDER_TOPIC_CONFIG"}),
    224: Question({"cluster": "cluster-1"}),
    318: Question(None, b"orderMessageEnable=true"),
    322: Question(BROKER.ext, b'{"counter":1,"stateVersion":0,"timestamp":1700000000000}'),
    327: Question({"brokerName": "broker-b"}),
    901: Question({"clusterName": "cluster-1", "brokerName": "broker-a"}),
    904: Question(BROKER.ext),
    905: Question({"brokerName": "broker-a"}),
    20001: Question(None, native({"topics": ["T"], "boot_id": None, "since": 0, "wait_ms": 0}), "native"),
}
_EMPTY, _NATIVE = Question(), Question(None, b"", "native")
# of every code, and of one that is in no class
QUESTIONS = {code: _SAMPLES.get(code, _NATIVE if REQUESTS[code].is_extension else _EMPTY) for code in sorted(REQUESTS)}
QUESTIONS[99999] = _EMPTY
NO_PERMISSION = 16


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The authority that server and peers trust."""
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def identity(ca: Authority) -> Identity:
    """The server's certificate."""
    return ca.issue("server")


async def connect(server: InProcess, ca: Authority, credentials: Credentials) -> NamesrvPeer:
    """A connection as these credentials have it: from their network, over TLS if they show a certificate."""
    if not credentials.certificate:
        return await NamesrvPeer.connect(server.address, source=credentials.source)
    shown = ca.issue("client", *credentials.certificate.split(","))
    context = ssl.create_default_context(cafile=ca.ca_file)
    context.load_cert_chain(shown.cert_file, shown.key_file)
    return NamesrvPeer(*await asyncio.open_connection(*server.address, ssl=context))


@pytest.fixture
async def server(tmp_path: Path, ca: Authority, identity: Identity) -> AsyncIterator[InProcess]:
    """A server with the access file, and with brokers, topics and KV configuration."""
    access = tmp_path / "access.toml"
    access.write_text(FILE)
    settings: dict[str, Any] = {"access": str(access), **identity.server_settings}
    settings |= {"tls_mode": "permissive", "tls_client_auth": "optional", "tls_ca_file": str(ca.ca_file)}
    async with namesrv_in_process(tmp_path / "data", **settings) as server:
        peer = await server.connect()
        operator = MATRIX["operator"].key
        assert operator is not None
        population = [
            (103, BROKER.ext, registration("T", "U")),
            (103, Broker("broker-b", 0, "10.0.0.2:10911").ext, registration("T", "U")),
            (205, {"brokerName": "broker-b"}, b""),
            (100, {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "broker-a:8"}, b""),
        ]
        for opaque, (code, ext, body) in enumerate(population):
            peer.send(operator.question(code, ext, body, opaque=opaque))
            assert (await peer.receive()).code == 0
        await server.clock.advance(5)
        yield server


def state(server: InProcess) -> Any:
    """All that a request could change."""
    tables, namesrv = server.namesrv.manager.tables, server.namesrv
    return {
        "clusters": {name: set(brokers) for name, brokers in tables.cluster_addr_table.items()},
        "groups": dict(tables.broker_addr_table),
        "live": dict(tables.broker_live_table),
        "topics": dict(tables.topic_queue_table),
        "wiped": set(tables.wiped),
        "revision": namesrv.manager.revisions.revision,
        "kv": dict(namesrv.kv.namespace("ORDER_TOPIC_CONFIG") or {}),
        "settings": asdict(namesrv.live),
        "roles": sorted(each.peer.role for each in namesrv.connections.values()),
    }


def frame(key: Key | None, code: int, opaque: int) -> bytes:
    """The request, signed if there is a key."""
    ext, body, spelling = QUESTIONS[code]
    if key is None:
        return question(code, ext, body, spelling=spelling, opaque=opaque)
    return key.question(code, ext, body, spelling=spelling, opaque=opaque)


@pytest.mark.parametrize("who", MATRIX)
async def test_every_code(server: InProcess, ca: Authority, who: str) -> None:
    """What is of an allowed class gets an answer of its own; all else gets code 16, and nothing has changed."""
    credentials = MATRIX[who]
    key, allowed = credentials.key, credentials.allowed
    peer = await connect(server, ca, credentials)
    for opaque, code in enumerate(QUESTIONS, start=100):
        about, before = REQUESTS.get(code), state(server)
        peer.send(frame(key, code, opaque))
        response = await peer.receive()
        assert opaque == response.opaque
        if about is not None and about.access_class in allowed:
            assert response.code != NO_PERMISSION, (code, response.remark)
        else:
            assert (NO_PERMISSION, before) == (response.code, state(server)), code
            assert response.remark
            assert SECRET not in response.remark
    peer.close()


async def test_what_is_allowed_is_done(server: InProcess) -> None:
    """The requests of this matrix do change something: what is refused above is no mistake in them."""
    peer = await server.connect()
    changing = [904, 322, 100, 102, 205, 327, 217, 216, 318, 103, 104]
    answering = {901, 905}
    assert {*changing} | answering == {
        code for code, about in REQUESTS.items() if about.access_class in {CONTROL, AccessClass.ADMIN_WRITE}
    }
    for opaque, code in enumerate(changing):
        before = state(server)
        await server.clock.advance(1)
        peer.send(frame(MATRIX["operator"].key, code, opaque))
        response = await peer.receive()
        assert (response.code, before == state(server)) == (0, False), (code, response.remark)


async def test_replayed(server: InProcess) -> None:
    """A copy of a native request is good for nothing, over its own connection and over another one."""
    peer, thief = await server.connect(), await server.connect()
    for opaque, code in enumerate(QUESTIONS, start=100):
        once = frame(MATRIX["operator"].key, code, opaque)
        peer.send(once)
        await peer.receive()
        before = state(server)
        for who in (peer, thief):
            who.send(once)
            response = await who.receive()
            assert (NO_PERMISSION, before) == (response.code, state(server)), code


async def test_oneway_requests_are_refused_without_an_answer(server: InProcess) -> None:
    """The next question gets the first answer, and nothing has changed."""
    peer, before = await server.connect(), state(server)
    for opaque, code in enumerate(QUESTIONS, start=100):
        ext, body, spelling = QUESTIONS[code]
        peer.send(question(code, ext, body, spelling=spelling, opaque=opaque, flag=2))
    assert (await peer.call(105, {"topic": "T"})).code == NO_PERMISSION
    assert before == state(server)


@pytest.mark.parametrize("spelling", ["json", "binary", "native"])
async def test_strangers_on_the_fast_path(server: InProcess, spelling: Spelling) -> None:
    """Routes and heartbeats, in each spelling, many in one packet: all refused, and none of them counts."""
    peer, before = await server.connect(), state(server)
    pulls, heartbeats = question(105, {"topic": "T"}, spelling=spelling), question(904, BROKER.ext, spelling=spelling)
    peer.send((pulls + heartbeats) * 5)
    assert [(await peer.receive()).code for _ in range(10)] == [NO_PERMISSION] * 10
    assert before == state(server)
    assert (server.namesrv.fast_path.pulls, server.namesrv.fast_path.heartbeats) == (0, 0)


async def test_known_networks_are_on_the_fast_path(server: InProcess) -> None:
    """Who is known by the connection is answered as fast as on an open server."""
    peer = await NamesrvPeer.connect(server.address, source=CLOSED_NETWORK)
    for _ in range(2):
        # the first time they are learnt
        peer.send(question(105, {"topic": "T"}) + question(904, BROKER.ext))
        assert [(await peer.receive()).code for _ in range(2)] == [0, 0]
    assert (server.namesrv.fast_path.pulls, server.namesrv.fast_path.heartbeats) == (1, 1)
    peer.close()
