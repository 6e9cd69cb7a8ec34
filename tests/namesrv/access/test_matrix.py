"""Every request code with every kind of credentials: the response, and that a refusal changes nothing."""

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
from tests.support.heartbeat_files import of, read_log
from tests.support.in_process import InProcess, guarded_namesrv
from tests.support.namesrv_peer import Broker, NamesrvPeer, Spelling, native, registration, request_frame
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
ANY_ACCOUNT = AccessClass.ANY_ACCOUNT
MINUTE_MS = 60_000


class Credentials(NamedTuple):
    """The credentials of a peer, the address it connects from, and the classes that they open."""

    key: Key | None
    allowed: set[AccessClass]
    source: str = OTHER_NETWORK
    # the subject name of the peer's certificate
    certificate: str = ""


NOW_MS = Key("", "").now_ms
MATRIX = {
    "no credentials": Credentials(None, set()),
    "reader": Credentials(Key("reader", SECRET), {READ, ANY_ACCOUNT}),
    "reader as RocketMQ signs": Credentials(Key("reader", SECRET, "rocketmq"), {READ, ANY_ACCOUNT}),
    "broker": Credentials(Key("broker", SECRET), {CONTROL, ANY_ACCOUNT}),
    "broker as RocketMQ signs": Credentials(Key("broker", SECRET, "rocketmq"), {CONTROL, ANY_ACCOUNT}),
    "operator": Credentials(Key("op", SECRET), ADMIN),
    "operator with the next secret": Credentials(Key("op", f"next-{SECRET}"), ADMIN),
    # a RocketMQ signature covers neither code nor time, so a copy of it works for ever
    "operator as RocketMQ signs": Credentials(Key("op", SECRET, "rocketmq"), {READ, CONTROL, ANY_ACCOUNT}),
    "operator whose RocketMQ signature is trusted": Credentials(
        Key("java-operator", SECRET, "rocketmq"), {AccessClass.ADMIN_READ, AccessClass.ADMIN_WRITE, ANY_ACCOUNT}
    ),
    "wrong secret": Credentials(Key("op", f"wrong-{SECRET}"), set()),
    "wrong secret as RocketMQ signs": Credentials(Key("op", f"wrong-{SECRET}", "rocketmq"), set()),
    "unknown key": Credentials(Key("operator", SECRET), set()),
    "expired account": Credentials(Key("former", SECRET), set()),
    "signed two minutes ago": Credentials(Key("op", SECRET, now_ms=NOW_MS - 2 * MINUTE_MS), set()),
    "signed in two minutes": Credentials(Key("op", SECRET, now_ms=NOW_MS + 2 * MINUTE_MS), set()),
    "from another network": Credentials(Key("bound", SECRET), set()),
    "from the account's network": Credentials(Key("bound", SECRET), ADMIN, THEIR_NETWORK),
    "network only": Credentials(None, {READ, CONTROL, ANY_ACCOUNT}, CLOSED_NETWORK),
    "certificate only": Credentials(None, {CONTROL, ANY_ACCOUNT}, certificate="broker-1.example.com"),
    "certificate of no account": Credentials(None, set(), certificate="broker-3.example.com"),
    "certificate of two accounts": Credentials(None, set(), certificate="broker-1.example.com,broker-2.example.com"),
    "certificate from another network": Credentials(None, set(), certificate="broker-4.example.com"),
    "certificate of an expired account": Credentials(None, set(), certificate="broker-5.example.com"),
    # the signature decides the account, and a wrong one is refused in spite of a good certificate or network
    "reader's key over a broker's certificate": Credentials(
        Key("reader", SECRET), {READ, ANY_ACCOUNT}, certificate="broker-1.example.com"
    ),
    "wrong secret over a certificate": Credentials(
        Key("op", f"wrong-{SECRET}"), set(), certificate="broker-1.example.com"
    ),
    "wrong secret from a network": Credentials(Key("op", f"wrong-{SECRET}"), set(), CLOSED_NETWORK),
}


class Sample(NamedTuple):
    """A request that an authorized peer sends to a populated server with success."""

    ext: Mapping[str, str] | None = None
    body: bytes = b""
    spelling: Spelling = "json"


BROKER = Broker()
NEW = Broker("broker-new", 0, "10.0.0.9:10911")
QUEUES = b'{"queueDatas":[{"brokerName":"broker-a","readQueueNums":4,"writeQueueNums":4,"perm":6,"topicSysFlag":0}]}'
_SAMPLES: dict[int, Sample] = {
    100: Sample({"namespace": "ORDER_TOPIC_CONFIG", "key": "U", "value": "broker-a:4"}),
    101: Sample({"namespace": "ORDER_TOPIC_CONFIG", "key": "T"}),
    102: Sample({"namespace": "ORDER_TOPIC_CONFIG", "key": "T"}),
    103: Sample(NEW.ext, registration("T", "U")),
    104: Sample(BROKER.ext),
    105: Sample({"topic": "T"}),
    205: Sample({"brokerName": "broker-a"}),
    216: Sample({"topic": "T"}),
    217: Sample({"topic": "NEW"}, QUEUES),
    219: Sample({"namespace": "ORDER_TOPIC_CONFIG"}),
    224: Sample({"cluster": "cluster-1"}),
    318: Sample(None, b"orderMessageEnable=true"),
    322: Sample(BROKER.ext, b'{"counter":1,"stateVersion":0,"timestamp":1700000000000}'),
    327: Sample({"brokerName": "broker-b"}),
    901: Sample({"clusterName": "cluster-1", "brokerName": "broker-a"}),
    904: Sample(BROKER.ext),
    905: Sample({"brokerName": "broker-a"}),
    20001: Sample(None, native({"topics": ["T"], "boot_id": None, "since": 0, "wait_ms": 0}), "native"),
}
_EMPTY, _NATIVE = Sample(), Sample(None, b"", "native")
# a request of every code, and one of a code without a class
SAMPLES = {code: _SAMPLES.get(code, _NATIVE if REQUESTS[code].is_extension else _EMPTY) for code in sorted(REQUESTS)}
SAMPLES[99999] = _EMPTY
NO_PERMISSION = 16


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The certificate authority that server and peers trust."""
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def identity(ca: Authority) -> Identity:
    """The server's certificate."""
    return ca.issue("server")


async def connect(server: InProcess, ca: Authority, credentials: Credentials) -> NamesrvPeer:
    """A connection with these credentials: from their network, and over TLS if they have a certificate."""
    if not credentials.certificate:
        return await NamesrvPeer.connect(server.address, source=credentials.source)
    shown = ca.issue("client", *credentials.certificate.split(","))
    context = ssl.create_default_context(cafile=ca.ca_file)
    context.load_cert_chain(shown.cert_file, shown.key_file)
    return NamesrvPeer(*await asyncio.open_connection(*server.address, ssl=context))


@pytest.fixture
async def server(tmp_path: Path, ca: Authority, identity: Identity) -> AsyncIterator[InProcess]:
    """A server with the access file, and with brokers, topics and KV configuration."""
    tls: dict[str, Any] = {"tls_mode": "permissive", "tls_client_auth": "optional", "tls_ca_file": str(ca.ca_file)}
    async with guarded_namesrv(tmp_path, FILE, **tls, **identity.server_settings) as server:
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
            peer.send(operator.request_frame(code, ext, body, opaque=opaque))
            assert (await peer.receive()).code == 0
        await server.clock.advance(5)
        yield server


def state(server: InProcess) -> Any:
    """All state that a request could change."""
    tables, namesrv = server.namesrv.manager.tables, server.namesrv
    return {
        "clusters": {name: set(brokers) for name, brokers in tables.cluster_addr_table.items()},
        "groups": dict(tables.broker_addr_table),
        "live": dict(tables.broker_live_table),
        "topics": dict(tables.topic_queue_table),
        "write_removed": set(tables.write_removed),
        "revision": namesrv.manager.revisions.revision,
        "kv": dict(namesrv.kv.namespace("ORDER_TOPIC_CONFIG") or {}),
        "settings": asdict(namesrv.settings.live),
        "roles": sorted(each.peer.role for each in namesrv.slots.connections.values()),
    }


def frame(key: Key | None, code: int, opaque: int) -> bytes:
    """The request, signed if there is a key."""
    ext, body, spelling = SAMPLES[code]
    if key is None:
        return request_frame(code, ext, body, spelling=spelling, opaque=opaque)
    return key.request_frame(code, ext, body, spelling=spelling, opaque=opaque)


@pytest.mark.parametrize("name", MATRIX)
async def test_every_code(server: InProcess, ca: Authority, name: str) -> None:
    """Requests of an allowed class get a response of their own; all others get code 16 and change nothing."""
    credentials = MATRIX[name]
    key, allowed = credentials.key, credentials.allowed
    peer = await connect(server, ca, credentials)
    for opaque, code in enumerate(SAMPLES, start=100):
        about, before = REQUESTS.get(code), state(server)
        peer.send(frame(key, code, opaque))
        response = await peer.receive()
        assert response.opaque == opaque
        if about is not None and about.access_class in allowed:
            assert response.code != NO_PERMISSION, (code, response.remark)
        else:
            assert (response.code, state(server)) == (NO_PERMISSION, before), code
            assert response.remark
            assert SECRET not in response.remark
    peer.close()


async def test_certificates_are_named_in_the_audit_trail(server: InProcess, ca: Authority) -> None:
    """A line about a change or a refusal has the account and the names in the peer's certificate."""
    peer = await connect(server, ca, MATRIX["certificate only"])
    for code, expected in ((103, 0), (105, NO_PERMISSION)):
        peer.send(frame(None, code, opaque=code))
        assert (await peer.receive()).code == expected
    await server.stop()

    lines = of(read_log(server.data_dir / "audit"), "change", "refusal")
    named = [(line["request"], line["account"]) for line in lines if line["certificate"] == ["broker-1.example.com"]]
    assert named == [("REGISTER_BROKER", "certified"), ("GET_ROUTEINFO_BY_TOPIC", "certified")]


async def test_requests_of_the_matrix_change_the_state(server: InProcess) -> None:
    """Every writing request of the matrix changes the state when an operator sends it."""
    peer = await server.connect()
    changing = [904, 322, 100, 102, 205, 327, 217, 216, 318, 103, 104]
    answering = {901, 905}
    assert {code for code, about in REQUESTS.items() if about.access_class in {CONTROL, AccessClass.ADMIN_WRITE}} == {
        *changing
    } | answering
    for opaque, code in enumerate(changing):
        before = state(server)
        await server.clock.advance(1)
        peer.send(frame(MATRIX["operator"].key, code, opaque))
        response = await peer.receive()
        assert (response.code, before == state(server)) == (0, False), (code, response.remark)


async def test_replayed_request_is_refused(server: InProcess) -> None:
    """A copy of a native request is refused over the same and over another connection."""
    peer, thief = await server.connect(), await server.connect()
    for opaque, code in enumerate(SAMPLES, start=100):
        signed = frame(MATRIX["operator"].key, code, opaque)
        peer.send(signed)
        await peer.receive()
        before = state(server)
        for sender in (peer, thief):
            sender.send(signed)
            response = await sender.receive()
            assert (response.code, state(server)) == (NO_PERMISSION, before), code


async def test_refused_oneway_requests_get_no_response(server: InProcess) -> None:
    """The first response on the connection belongs to the next request that expects one, and nothing has changed."""
    peer, before = await server.connect(), state(server)
    for opaque, code in enumerate(SAMPLES, start=100):
        ext, body, spelling = SAMPLES[code]
        peer.send(request_frame(code, ext, body, spelling=spelling, opaque=opaque, flag=2))
    assert (await peer.call(105, {"topic": "T"})).code == NO_PERMISSION
    assert state(server) == before


@pytest.mark.parametrize(
    ("name", "spelling"),
    [
        *(("no credentials", spelling) for spelling in ("json", "binary", "native")),
        ("certificate from another network", "json"),
        ("certificate of an expired account", "json"),
    ],
)
async def test_fast_path_refuses_strangers(server: InProcess, ca: Authority, name: str, spelling: Spelling) -> None:
    """Route requests and heartbeats of strangers, many in one packet, are refused in each spelling and not counted."""
    peer, before = await connect(server, ca, MATRIX[name]), state(server)
    pulls, heartbeats = (
        request_frame(105, {"topic": "T"}, spelling=spelling),
        request_frame(904, BROKER.ext, spelling=spelling),
    )
    peer.send((pulls + heartbeats) * 5)
    assert [(await peer.receive()).code for _ in range(10)] == [NO_PERMISSION] * 10
    assert state(server) == before
    assert (server.namesrv.fast_path.pulls, server.namesrv.fast_path.heartbeats) == (0, 0)
    peer.close()
