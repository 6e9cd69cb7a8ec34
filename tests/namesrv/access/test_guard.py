"""The access guard of a running server: remarks, log lines, reloads and takeovers."""

import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from namesrv.access.quotas import Rank
from namesrv.routeinfo.tables.connections import MAX_OTHER_CONNECTIONS
from namesrv.routeinfo.tables.records import BrokerAddrInfo
from namesrv.server.reload import Reloader
from namesrv.settings.flags import parse
from namesrv.settings.sources import SettingsError, load
from tests.support.certificates import Authority
from tests.support.fake_clock import until
from tests.support.heartbeat_files import read_log
from tests.support.in_process import InProcess, namesrv_in_process
from tests.support.logged import logged
from tests.support.namesrv_peer import (
    SPELLINGS,
    Broker,
    NamesrvPeer,
    Spelling,
    native,
    registration,
    request_frame,
    topic_config,
)
from tests.support.signing import Key

SECRET = "secret-of-the-guard"
BROKERS = f'[accounts.brokers]\nsecrets = ["{SECRET}"]\nmay = ["broker-control"]\n'
OPERATOR = f'[accounts.operator]\nsecrets = ["{SECRET}"]\nmay = ["admin-read"]\n'
NETWORK = '[accounts.network]\nnetworks = ["127.0.0.0/8"]\nmay = ["route-read"]\n'
KEY = Key("brokers", SECRET)
BROKER = Broker()
NO_PERMISSION = 16
MEBIBYTE = 1024 * 1024


@pytest.fixture
def access(tmp_path: Path) -> Path:
    """The access file, readable by its owner only."""
    path = tmp_path / "access.toml"
    path.touch(mode=0o600)
    path.write_text(BROKERS + OPERATOR + NETWORK)
    return path


@pytest.fixture
def settings(settings: dict[str, Any], access: Path) -> dict[str, Any]:
    """Settings of a server with the access file."""
    return {"access": str(access), **settings}


async def ask(peer: NamesrvPeer, code: int, ext: Any = None, body: bytes = b"", *, key: Key | None = None) -> Any:
    """Code and remark of the response."""
    response = await peer.response_to(peer.send_request(code, ext, body)) if key is None else None
    if key is not None:
        peer.send(key.request_frame(code, ext, body))
        response = await peer.receive()
    assert response is not None
    return response.code, response.remark


async def is_closed(peer: NamesrvPeer) -> bool:
    """True if the server has closed the connection; an open one gets a response, so that no test hangs."""
    peer.send_request(105, {"topic": "T"})
    return await peer.at_end()


async def test_remarks_name_missing_permissions_only_to_the_account(server: InProcess) -> None:
    """A peer that has proven its account reads what the account lacks; any other signature gets the same remark."""
    peer = await server.connect()

    assert await ask(peer, 205, {"brokerName": "b"}, key=KEY) == (
        NO_PERMISSION,
        "account brokers lacks admin-write for broker b (WIPE_WRITE_PERM_OF_BROKER)",
    )
    why = "a RocketMQ signature is not enough for admin-write"
    hint = "sign natively, or set trust_rocketmq_signatures for account brokers"
    weak = KEY._replace(recipe="rocketmq")
    assert await ask(peer, 205, {"brokerName": "b"}, key=weak) == (NO_PERMISSION, f"{why}: {hint}")
    for key in (Key("brokers", "wrong-secret"), Key("unknown", SECRET)):
        for recipe in ("native", "rocketmq"):
            code, actual = await ask(peer, 103, BROKER.ext, key=key._replace(recipe=recipe))
            remark = f"access key '{key.access_key}' is unknown, or the request is not signed with its secret"
            assert (code, actual) == (NO_PERMISSION, remark)
    lacks = "broker-control for cluster cluster-1, broker b, address 10.0.0.1:10911 (BROKER_HEARTBEAT)"
    assert await ask(peer, 904, {**BROKER.ext, "brokerName": "b"}) == (NO_PERMISSION, f"account network lacks {lacks}")


async def test_unsigned_requests_of_strangers_all_get_the_same_remark(server: InProcess) -> None:
    """The remark for an address without an account does not even show which request codes exist."""
    await server.reload_access(BROKERS)
    peer = await server.connect()

    assert {await ask(peer, code, BROKER.ext) for code in (103, 105, 206, 318, 99999)} == {
        (NO_PERMISSION, "request is not signed, and no account matches this address or certificate")
    }


async def test_refusals_and_connections_name_the_account(server: InProcess, caplog: pytest.LogCaptureFixture) -> None:
    """A refusal is logged with account and reason and counted by class; the list of connections shows the account."""
    peer = await server.connect()
    await ask(peer, 206, key=KEY)

    [event] = logged(caplog, "access_refused")
    assert (*(event[name] for name in ("request", "account", "peer", "reason")),) == (
        "GET_ALL_TOPIC_LIST_FROM_NAMESERVER",
        "brokers",
        peer.address,
        "not_granted",
    )
    assert server.guard.refusals == {("admin-read", "not_granted", "refused"): 1}
    peer.send(Key("operator", SECRET).request_frame(20004, None, native({}), spelling="native"))
    [shown] = (await peer.receive()).value["connections"]
    assert shown["account"] == "operator"
    assert repr(server.guard) == "<AccessGuard [enforces | 3 accounts | 1 refused]>"


async def test_log_lines_of_refusals_are_limited(server: InProcess, caplog: pytest.LogCaptureFixture) -> None:
    """The log has twenty refusals a second, then a line with the number of the others, also without a further one."""
    peer = await server.connect()
    for _ in range(25):
        await ask(peer, 206)
    await server.clock.advance(1)
    assert [event["more"] for event in logged(caplog, "requests_refused")] == [5]

    await ask(peer, 206)
    await server.clock.advance(1)
    assert len(logged(caplog, "access_refused")) == 21
    assert len(logged(caplog, "requests_refused")) == 1


@pytest.mark.settings(access_mode="observe")
async def test_observe_mode_refuses_nothing(server: InProcess, caplog: pytest.LogCaptureFixture) -> None:
    """The server obeys requests against the rules, forged signatures included, and logs and counts them as observed."""
    peer = await server.connect()

    assert (await ask(peer, 103, BROKER.ext, registration("T", "U")))[0] == 0
    assert (await ask(peer, 103, BROKER.ext, registration("T", "U"), key=Key("brokers", "wrong-secret")))[0] == 0
    assert (await ask(peer, 103, BROKER.ext, registration("T", "U"), key=KEY))[0] == 0
    assert (await ask(peer, 105, {"topic": "T"}))[0] == 0
    # this code exists in no mode
    assert (await ask(peer, 99999))[0] == 3
    # an observed access file does not enable administration
    assert await ask(peer, 318, None, b"orderMessageEnable=true") == (
        NO_PERMISSION,
        "administration is disabled on this server, see its setting admin-enabled",
    )

    assert server.guard.refusals == {
        ("broker-control", "not_granted", "observed"): 1,
        ("broker-control", "mismatch", "observed"): 1,
        ("none", "no_class", "observed"): 1,
        ("admin-write", "not_granted", "observed"): 1,
    }
    assert [event["observed"] for event in logged(caplog, "access_refused")] == [True] * 4


@pytest.mark.settings(access_mode="observe")
async def test_observed_registration_counts_one_refusal(server: InProcess) -> None:
    """A registration with several topics against the rules counts once, and all of its topics are registered."""
    narrow = '[{ access = "broker-control", topics = ["team-*"] }]'
    await server.reload_access(BROKERS.replace('["broker-control"]', narrow), "--access-mode=observe")
    peer = await server.connect()

    assert (await ask(peer, 103, BROKER.ext, registration("T", "team-x", "U"), key=KEY))[0] == 0
    assert server.namesrv.manager.tables.topic_queue_table.keys() == {"T", "U", "team-x"}
    assert server.guard.refusals == {("broker-control", "not_granted", "observed"): 1}


@pytest.mark.parametrize("spelling", SPELLINGS)
async def test_large_unsigned_frame_is_refused_by_its_header(server: InProcess, spelling: Spelling) -> None:
    """A large unsigned frame is refused before its body arrives, which is dropped; a signed one is buffered."""
    peer, budget = await server.connect(), server.namesrv.slots.budget
    used = budget.used_bytes
    frame = request_frame(103, BROKER.ext, bytes(4 * MEBIBYTE), opaque=7, spelling=spelling)
    peer.send(frame[:1000])
    refusal = await peer.receive()
    assert (refusal.opaque, refusal.code) == (7, NO_PERMISSION)
    assert "account network lacks broker-control" in str(refusal.remark)
    assert budget.used_bytes == used

    behind = request_frame(105, {"topic": "T"}, opaque=8)
    peer.send(frame[1000:] + behind)
    assert ((response := await peer.receive()).opaque, response.code) == (8, 17)
    # the same when the whole frame arrives at once
    peer.send(frame + behind)
    assert [(await peer.receive()).opaque for _ in range(2)] == [7, 8]
    assert server.guard.refusals == {("broker-control", "not_granted", "refused"): 2}

    for key in (KEY, Key("stranger", "wrong-secret")):
        peer.send((signed := key.request_frame(103, BROKER.ext, bytes(4 * MEBIBYTE)))[:1000])
        await until(lambda: budget.used_bytes > used)
        peer.send(signed[1000:])
        assert (await peer.receive()).code == (1 if key is KEY else NO_PERMISSION)


@pytest.mark.settings(max_memory_bytes=64 * MEBIBYTE)
@pytest.mark.parametrize("is_alive", [True, False])
async def test_signed_frame_beyond_the_memory_limit_gets_busy(server: InProcess, *, is_alive: bool) -> None:
    """A signed frame without room for its body is a heartbeat on the broker's own connection, and not a refusal."""
    peer, budget = await server.connect(), server.namesrv.slots.budget
    peer.send(KEY.request_frame(103, BROKER.ext, registration("T", "U")))
    assert (await peer.receive()).code == 0
    await server.clock.advance(70)
    sender = peer if is_alive else await server.connect()
    used = budget.used_bytes
    sender.send(KEY.request_frame(103, BROKER.ext, b" " * (9 * MEBIBYTE)))
    # The wait for memory begins when the server has read the header, which its buffered bytes show.
    await until(lambda: budget.used_bytes > used)
    await server.clock.advance(32)
    assert (await sender.receive()).code == 2
    # The server answers the next request only when it has dropped the whole body, which must not be late.
    assert (await sender.call(105, {"topic": "V"})).code == 17
    # The registration has expired unless the frame was a heartbeat.
    await server.clock.advance(30)
    assert (await (await server.connect()).call(105, {"topic": "T"})).code == (0 if is_alive else 17)
    assert not server.guard.refusals


@pytest.mark.settings(max_connections=10, share_per_ip_percent=100)
async def test_reserved_connection_slot_goes_to_an_authorized_broker(server: InProcess) -> None:
    """A refused peer holds a reserved slot until a broker arrives, which keeps it from its first response on."""
    clients = [await server.connect() for _ in range(9)]
    stranger = await server.connect()
    for _ in range(2):
        assert (await stranger.call(904, BROKER.ext)).code == NO_PERMISSION
    broker = await server.connect()
    assert await stranger.at_end()
    broker.send(
        KEY.request_frame(103, BROKER.ext, registration("T", "U")) + request_frame(105, {"topic": "T"}, opaque=2)
    )
    assert [(response.opaque, response.code) for response in [await broker.receive() for _ in range(2)]] == [
        (1, 0),
        (2, 0),
    ]

    late = await NamesrvPeer.connect(server.address)
    assert await late.at_end()
    late.close()
    assert (await clients[0].call(105, {"topic": "V"})).code == 17
    await server.clock.advance(20)
    assert (await broker.call(105, {"topic": "T"})).code == 0


async def test_unknown_access_keys_can_be_ignored(server: InProcess) -> None:
    """With `unknown_access_keys = "ignore"` a request that was signed for a broker counts as not signed."""
    peer = await server.connect()
    foreign = Key("of-the-brokers-acl", "their-secret", "rocketmq")
    assert (await ask(peer, 105, {"topic": "T"}, key=foreign))[0] == NO_PERMISSION

    await server.reload_access(f'unknown_access_keys = "ignore"\n{BROKERS}{NETWORK}')

    assert (await ask(peer, 105, {"topic": "T"}, key=foreign))[0] == 17
    # a known access key still needs its secret
    assert (await ask(peer, 105, {"topic": "T"}, key=Key("brokers", "wrong-secret")))[0] == NO_PERMISSION


# -- reload -----------------------------------------------------------------------------------------------------------


async def test_reload_reaches_open_connections(server: InProcess) -> None:
    """After a reload the dispatcher and the fast path check the next request of an open connection by the new file."""
    peer = await server.connect()
    await ask(peer, 103, BROKER.ext, registration("T", "U"), key=KEY)
    # the dispatcher answers the first request
    assert [(await ask(peer, 105, {"topic": "T"}))[0] for _ in range(2)] == [0, 0]
    assert server.namesrv.fast_path.pulls == 1

    await server.reload_access(BROKERS.replace(SECRET, "another-secret") + NETWORK.replace("route-read", "admin-read"))

    assert (await ask(peer, 105, {"topic": "T"}))[0] == NO_PERMISSION
    assert (await ask(peer, 904, BROKER.ext, key=KEY))[0] == NO_PERMISSION
    assert (await ask(peer, 904, BROKER.ext, key=Key("brokers", "another-secret")))[0] == 0
    assert (await ask(peer, 206))[0] == 0
    assert server.namesrv.fast_path.pulls == 1


NARROWED = BROKERS.replace('may = ["broker-control"]', 'may = [{{ access = "broker-control", {by} }}]')


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (OPERATOR, "account brokers is not in the access file"),
        (NARROWED.format(by='brokers = ["b-*"]'), "account brokers lacks broker-control for broker broker-a"),
        (NARROWED.format(by='topics = ["U"]'), "account brokers lacks broker-control for topic T"),
        (BROKERS + 'networks = ["10.0.0.0/8"]\n', "account brokers may not be used from 127.0.0.1"),
        (BROKERS + "expires = 2020-01-01T00:00:00Z\n", "account brokers expired at 2020-01-01 00:00:00+00:00"),
    ],
    ids=["removed", "other brokers", "other topics", "other network", "expired"],
)
async def test_reload_revokes_registrations(
    server: InProcess, text: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A reload removes a broker that its account may no longer register, with all its connections; others stay."""
    peer, further, operator = [await server.connect() for _ in range(3)]
    await ask(peer, 103, BROKER.ext, registration("T", "U"), key=KEY)
    assert (await ask(further, 904, BROKER.ext, key=KEY))[0] == 0
    assert (await ask(operator, 206, key=Key("operator", SECRET)))[0] == 0
    tables = server.namesrv.manager.tables

    await server.reload_access(text + (OPERATOR if text is not OPERATOR else ""))

    assert not tables.broker_live_table
    [event] = logged(caplog, "registration_revoked")
    assert tuple(event[name] for name in ("broker_name", "broker_addr", "account", "reason")) == (
        "broker-a",
        BROKER.addr,
        "brokers",
        reason,
    )
    assert not tables.topic_queue_table
    assert [await is_closed(each) for each in (peer, further)] == [True, True]
    expected_back = server.namesrv.boot.expected_back
    assert (expected_back.expected(), expected_back.may_lack_live_brokers) == ((), False)
    assert (await ask(operator, 206, key=Key("operator", SECRET)))[0] == 0
    await server.stop()
    lines = [line for line in read_log(server.data_dir / "audit") if line["event"] == "change"]
    assert [
        (change["account"], change["reason"])
        for line in lines
        for change in line["changes"]
        if change["what"] == "registration"
    ] == [("brokers", reason)]


async def test_reload_revokes_registrations_of_peers_that_the_account_no_longer_has(
    server: InProcess, caplog: pytest.LogCaptureFixture
) -> None:
    """A broker is removed when its network, like a certificate, has moved to another account; its neighbours stay."""
    hosts = '[accounts.hosts]\nnetworks = ["127.0.0.0/8"]\nmay = ["broker-control"]\n'
    await server.reload_access(hosts)
    kept, moved = await server.connect(), await server.connect(source="127.0.0.2")
    other = Broker("broker-b", 0, "10.0.0.2:10911")
    await kept.register(BROKER)
    await moved.register(other)

    await server.reload_access(hosts + '[accounts.guests]\nnetworks = ["127.0.0.2"]\nmay = ["route-read"]\n')

    assert [key.broker_addr for key in server.namesrv.manager.tables.broker_live_table] == [BROKER.addr]
    [event] = logged(caplog, "registration_revoked")
    assert event["reason"] == f"no certificate or network of {moved.address} belongs to account hosts"
    assert await is_closed(moved)


async def test_reload_revokes_registrations_that_are_being_decoded(server: InProcess, access: Path) -> None:
    """Large registrations take a while, and may have been admitted under the file before."""
    hosts = '[accounts.hosts]\nnetworks = ["127.0.0.1"]\nmay = ["admin-read", "{}"]\n'
    await server.reload_access(hosts.format("broker-control"))
    # The next state of the file is read before, because reading it could take longer than a registration.
    access.write_text(hosts.format("route-read"))
    loaded = server.reloader(f"--access={access}").read()
    body = registration(*map(str, range(20_000)))
    peers = [await server.connect() for _ in range(4)]
    for number, peer in enumerate(peers):
        peer.send_request(103, Broker(f"broker-{number}", 0, f"10.0.0.{number}:10911").ext, body)
    # More memory than for the bodies is charged once registrations have been admitted and are decoded.
    await until(lambda: server.namesrv.slots.budget.used_bytes > 5 * len(body))

    await Reloader(server.namesrv, lambda: loaded).reload()

    # Each peer gets a response, or is disconnected.
    for peer in peers:
        await peer.reader.read(1)
    await until(lambda: not server.namesrv.manager.tables.broker_live_table)


async def test_reload_keeps_a_slave_whose_master_has_topics_of_another_account(server: InProcess) -> None:
    """The topics of a group are those of its master; a slave's account needs permissions only for what it sends."""
    slaves = NARROWED.format(by='topics = ["S*"]').replace("accounts.brokers", "accounts.slaves")
    await server.reload_access(BROKERS + slaves)
    master, slave = await server.connect(), await server.connect()
    await ask(master, 103, BROKER.ext, registration("T", "U"), key=KEY)
    ext = Broker("broker-a", 1, "10.0.0.9:10911").ext
    assert (await ask(slave, 103, ext, registration("S1", "S2"), key=Key("slaves", SECRET)))[0] == 0

    await server.reload_access(BROKERS + slaves + OPERATOR)

    assert len(server.namesrv.manager.tables.broker_live_table) == 2


@pytest.mark.settings(evict_on_disconnect=False)
@pytest.mark.parametrize("is_connected", [True, False])
async def test_reload_revokes_registrations_without_eviction_on_disconnect(
    server: InProcess, *, is_connected: bool
) -> None:
    """A broker that its account may no longer register is removed, also one whose connection is closed already."""
    peer = await server.connect()
    await ask(peer, 103, BROKER.ext, registration("T", "U"), key=KEY)
    if not is_connected:
        await server.hang_up(peer)
        await server.clock.advance(1.0)
    assert server.namesrv.manager.tables.broker_live_table

    await server.reload_access(OPERATOR, "--no-evict-on-disconnect")

    assert not server.namesrv.manager.tables.broker_live_table
    if is_connected:
        assert await is_closed(peer)


async def test_reload_keeps_registrations_that_are_still_allowed(server: InProcess) -> None:
    """A reload keeps a broker whose account has a new secret and rules that still list the broker and its topics."""
    peer = await server.connect()
    await ask(peer, 103, BROKER.ext, registration("T", "U"), key=KEY)

    narrowed = NARROWED.format(by='brokers = ["broker-*"], topics = ["T", "U"]')
    await server.reload_access(narrowed.replace(SECRET, "another-secret"))

    assert (await ask(peer, 904, BROKER.ext, key=Key("brokers", "another-secret")))[0] == 0
    assert [key.broker_addr for key in server.namesrv.manager.tables.broker_live_table] == [BROKER.addr]


async def test_replay_is_refused_after_a_reload(server: InProcess) -> None:
    """The signatures seen before a reload count as used after it."""
    peer, once = await server.connect(), KEY.request_frame(103, BROKER.ext, registration("T", "U"))
    peer.send(once)
    assert (await peer.receive()).code == 0
    await server.reload_access(BROKERS)
    peer.send(once)
    assert (await peer.receive()).code == NO_PERMISSION


async def test_reload_of_a_wrong_access_file_changes_nothing(
    server: InProcess, access: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A wrong or missing file keeps the old rules; log and metric report the problem until the file is right."""
    peer, counters = await server.connect(), server.namesrv.counters
    wrong = {"[accounts.a]": "account a: object missing required field may", None: "cannot be read"}
    for text, problem in wrong.items():
        access.unlink() if text is None else access.write_text(text)
        caplog.clear()
        await server.reloader(f"--access={access}", "--max-brokers=7").reload()
        [refused] = logged(caplog, "reload_refused")
        assert problem in refused["problems"][0]
        assert str(access) in refused["problems"][0]
        assert (counters.is_reload_refused, server.namesrv.settings.current.max_brokers) == (True, 10_000)
        assert (await ask(peer, 904, BROKER.ext, key=KEY))[0] == 0
    await server.reload_access(BROKERS)
    assert not counters.is_reload_refused


async def test_new_path_of_the_access_file_needs_a_restart(
    server: InProcess, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A reload ignores another path or an empty one, so a running server never opens itself."""
    other = tmp_path / "other.toml"
    other.write_text(NETWORK.replace("route-read", "admin-write"))
    for path in (str(other), ""):
        caplog.clear()
        await server.reloader(f"--access={path}").reload()
        assert [event["setting"] for event in logged(caplog, "setting_needs_restart")] == ["access"]
        assert (await ask(await server.connect(), 205, {"brokerName": "b"}))[0] == NO_PERMISSION


@pytest.mark.settings(access_mode="observe")
@pytest.mark.parametrize("is_named", [False, True])
async def test_mode_is_reloaded_although_the_path_is_not(server: InProcess, tmp_path: Path, is_named: bool) -> None:
    """The reloaded settings show the new mode, and the guard enforces it."""
    other = tmp_path / "other.toml"
    other.write_text(NETWORK.replace("route-read", "admin-read"))
    assert (await ask(await server.connect(), 206))[0] == 0

    path = other if is_named else ""
    await server.reloader(f"--access={path}", "--access-mode=enforce").reload()

    assert server.namesrv.settings.current.access_mode == "enforce"
    assert (await ask(await server.connect(), 206))[0] == NO_PERMISSION


@pytest.mark.parametrize(
    ("text", "further", "code"),
    [
        # without the account
        (BROKERS, (), NO_PERMISSION),
        (BROKERS + NETWORK.replace("route-read", "admin-read"), (), NO_PERMISSION),
        # with the account unchanged
        (BROKERS + NETWORK, (), 0),
        (BROKERS + OPERATOR + NETWORK, ("--access-mode=observe",), 0),
    ],
)
async def test_reload_ends_watches_without_routes(
    server: InProcess, text: str, further: tuple[str, ...], code: int
) -> None:
    """Watches under the old rules end without a route at a reload; the next request is checked by the new rules."""
    peer, broker = await server.connect(), await server.connect()
    assert (await ask(broker, 103, BROKER.ext, registration("T", "U"), key=KEY))[0] == 0
    revision, watchers = server.namesrv.manager.revisions.revision, server.namesrv.routes.watchers
    members = {"topics": ["T"], "boot_id": server.namesrv.boot.id, "since": revision, "wait_ms": 300_000}
    watched = [native(members), native(members | {"topics": ["U"]})]
    opaques = [peer.send_request(20001, None, body, spelling="native") for body in watched]
    await until(lambda: len(watchers) == 2)

    await server.reload_access(text, *further)
    changed = registration({**topic_config("T"), "readQueueNums": 3}, "U", counter=2)
    assert (await ask(broker, 103, BROKER.ext, changed, key=KEY))[0] == 0
    await until(lambda: not watchers)

    for opaque in opaques:
        response = await peer.response_to(opaque)
        assert (response.code, response.value["routes"], response.value["revision"]) == (0, {}, revision)
    assert (await peer.call(20001, None, native(members), spelling="native")).code == code


async def test_watch_ends_when_its_account_expires(server: InProcess) -> None:
    """The watch ends early and without a route when its account expires; the next request is refused."""
    # a minute after the server's start
    await server.reload_access(BROKERS + NETWORK + "expires = 2023-11-14T22:14:20Z\n")
    peer, broker = await server.connect(), await server.connect()
    assert (await ask(broker, 103, BROKER.ext, registration("T", "U"), key=KEY))[0] == 0
    revision = server.namesrv.manager.revisions.revision
    members = {"topics": ["T"], "boot_id": server.namesrv.boot.id, "since": revision, "wait_ms": 300_000}
    opaque = peer.send_request(20001, None, native(members), spelling="native")
    await until(lambda: len(server.namesrv.routes.watchers) == 1)

    await server.clock.advance(61)

    response = await peer.response_to(opaque)
    assert (response.code, response.value["routes"], response.value["revision"]) == (0, {}, revision)
    assert (await peer.call(20001, None, native(members), spelling="native")).code == NO_PERMISSION


@pytest.mark.parametrize(
    ("code", "key", "rank"), [(105, None, Rank.READ), (904, KEY, Rank.LIVENESS)], ids=["by network", "signed"]
)
@pytest.mark.parametrize(("text", "refused"), [(OPERATOR, True), (BROKERS + NETWORK, False)], ids=["removed", "kept"])
@pytest.mark.settings(quotas="enforce", quota_requests_per_second=100)
async def test_request_delayed_by_a_quota_is_checked_against_the_new_file(
    server: InProcess, code: int, key: Key | None, rank: Rank, text: str, *, refused: bool
) -> None:
    """A delayed request is refused if a reload removed its account; otherwise its one-time signature still counts."""
    peer, limiter = await server.connect(), server.limiter
    assert any(limiter.draw("127.0.0.1", rank)[0] for _ in range(100_000))
    peer.send(request_frame(code, BROKER.ext | {"topic": "T"}) if key is None else key.request_frame(code, BROKER.ext))
    await until(lambda: limiter.exceeded.total() == 1)

    await server.reload_access(text)
    await server.clock.advance(1)

    assert ((await peer.receive()).code == NO_PERMISSION) is refused


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ('"broker-control"', {"T": "broker-a:8", "U": "broker-a:4"}),
        ('"route-read", { access = "broker-control", topics = ["T", "V"] }', {"T": "broker-a:8", "U": "broker-a:4"}),
        ('{ access = "broker-control", topics = ["T", "V"] }', {"T": "broker-a:8"}),
        (
            '{ access = "broker-control", topics = ["T", "V"] }, { access = "route-read", topics = ["U"] }',
            {"T": "broker-a:8", "U": "broker-a:4"},
        ),
    ],
)
async def test_order_configuration_is_limited_to_permitted_topics(
    server: InProcess, rules: str, expected: dict[str, str]
) -> None:
    """The registration response has the order configuration of topics that the account may register or read."""
    await server.reload_access(BROKERS.replace('"broker-control"', rules))
    for topic, value in {"T": "broker-a:8", "U": "broker-a:4"}.items():
        await server.namesrv.kv.put("ORDER_TOPIC_CONFIG", topic, value)
    peer = await server.connect()

    peer.send(KEY.request_frame(103, BROKER.ext, registration("T", "V")))
    response = await peer.receive()

    assert (response.outcome, response.value) == ((0, None), {"table": expected})


# -- start ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "warned"),
    [
        ({}, 0),
        ({"listen_host": "0.0.0.0"}, 1),
        ({"listen_host": "127.0.0.1,127.0.0.2"}, 0),
        ({"listen_host": "0.0.0.0", "access": "access.toml"}, 0),
        ({"listen_host": "0.0.0.0", "access": "access.toml", "access_mode": "observe"}, 1),
        ({"listen_host": "0.0.0.0", "tls_mode": "enforcing"}, 1),
        ({"listen_host": "0.0.0.0", "tls_mode": "enforcing", "tls_client_auth": "require"}, 0),
    ],
)
async def test_open_server_logs_a_warning(
    tmp_path: Path, access: Path, settings: dict[str, Any], warned: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A server beyond loopback with neither an enforced access file nor required certificates logs its addresses."""
    if "access" in settings:
        settings = {**settings, "access": str(access)}
    if "tls_mode" in settings:
        ca = Authority(tmp_path)
        settings = {**settings, "tls_ca_file": str(ca.ca_file), **ca.issue("server").server_settings}
    async with namesrv_in_process(tmp_path / "data", **settings) as server:
        found = logged(caplog, "open_to_the_network")
        assert len(found) == warned
        if found:
            assert found[0]["addresses"] == [f"0.0.0.0:{server.address[1]}"]


def test_settings_check_includes_the_access_file(tmp_path: Path, access: Path) -> None:
    """Loading the settings reports an error in the access file, and warns when other users can read it."""
    access.chmod(0o604)
    [warning] = load(parse([f"--access={access}"]), {}).warnings
    assert warning == f"{access} holds secrets and is readable by every user: run chmod o-rwx {access}"

    access.write_text(f'[accounts.a]\nsecrets = ["{SECRET}"]\nmay = ["root"]')
    with pytest.raises(SettingsError) as caught:
        load(parse([f"--access={access}"]), {})
    [problem] = caught.value.problems
    assert f"{access}: account a: 'root' is not one of" in problem
    assert SECRET not in str(caught.value)


# -- takeover ---------------------------------------------------------------------------------------------------------

USURPER = Broker("broker-a", 0, "10.6.6.6:10911")
OTHER_CLUSTER = USURPER._replace(cluster="cluster-2")
RENAMED = Broker("broker-b", 0, BROKER.addr)
SLAVE = Broker("broker-a", 1, "10.6.6.6:10911")
MOVED = BROKER._replace(id=1)


@pytest.fixture
async def open_server(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[InProcess]:
    """A server without an access file."""
    [mark] = request.node.iter_markers("settings")
    async with namesrv_in_process(tmp_path / "data", **mark.kwargs) as server:
        yield server


@pytest.mark.settings(takeover="refuse")
@pytest.mark.parametrize("usurper", [USURPER, OTHER_CLUSTER, RENAMED])
@pytest.mark.parametrize("silent", [0, 45])
async def test_takeover_of_a_live_broker_is_refused(open_server: InProcess, usurper: Broker, silent: int) -> None:
    """A live broker keeps its id against another address in any cluster, and its address against another name.

    Once the broker has missed a heartbeat, its successor need not wait until the broker expires.
    """
    peer, other = await open_server.connect(), await open_server.connect()
    await peer.register(BROKER)
    await open_server.clock.advance(silent)
    await open_server.forget()
    before = dict(open_server.namesrv.manager.tables.broker_live_table)

    response = await other.register(usurper)

    holder = f"broker broker-a with id 0 at 10.0.0.1:10911 is alive, last seen {silent} s ago"
    remark = f"{holder}; this connection may not take its place"
    assert (response.code, response.remark) == (NO_PERMISSION, remark)
    assert open_server.namesrv.manager.tables.broker_live_table == before
    assert [each["refused"] for each in open_server.events("takeover_attempted")] == [True]
    assert open_server.namesrv.counters.takeovers == {"refused": 1, "warned": 0}
    await open_server.clock.advance(45.1 - silent)
    assert (await other.register(usurper)).code == 0


@pytest.mark.settings(takeover="refuse", evict_on_disconnect=False)
async def test_takeover_after_a_disconnect_is_allowed(open_server: InProcess) -> None:
    """A broker whose connection closed gives way at once, although its entry stays until it expires."""
    peer, other = await open_server.connect(), await open_server.connect()
    await peer.register(BROKER)
    await open_server.hang_up(peer)
    await open_server.clock.advance(1.0)
    assert open_server.namesrv.manager.tables.broker_live_table

    assert (await other.register(USURPER)).code == 0


@pytest.mark.settings(takeover="refuse")
async def test_registrations_that_are_not_takeovers(open_server: InProcess) -> None:
    """The same broker over a second connection, its slave, and a move over its only connection are not takeovers."""
    peer, other = await open_server.connect(), await open_server.connect()
    for sender, broker in [(peer, BROKER), (other, BROKER), (other, SLAVE), (peer, BROKER)]:
        assert (await sender.register(broker)).code == 0
    # each of the two connections may be the broker's own, so neither moves the broker while both are open
    assert [(await sender.register(broker)).code for sender, broker in [(peer, MOVED), (other, USURPER)]] == [
        NO_PERMISSION
    ] * 2

    await open_server.hang_up(peer)
    assert [(await other.register(broker)).code for broker in (USURPER, MOVED, BROKER)] == [0] * 3
    assert (await other.call(104, BROKER.ext)).code == 0
    assert not open_server.namesrv.manager.tables.broker_live_table


# requests of a stranger over its own connection; the last of them would move or remove the broker
BYPASSES: dict[str, list[tuple[int, Broker, dict[str, str]]]] = {
    "registers as the broker, then moves it": [(103, BROKER, {}), (103, USURPER, {})],
    "registers as the broker, then renames it": [(103, BROKER, {}), (103, RENAMED, {})],
    "unregisters it": [(104, BROKER, {})],
    "registers as the broker, then unregisters it": [(103, BROKER, {}), (104, BROKER, {})],
    "gives up its id": [(103, BROKER._replace(id=5), {})],
    "takes it to another cluster": [(103, BROKER._replace(cluster="cluster-2"), {})],
    "shortens its expiry": [(103, BROKER, {"heartbeatTimeoutMillis": "1000"})],
    "lengthens its expiry": [(103, BROKER, {"heartbeatTimeoutMillis": "600000"})],
}


@pytest.mark.settings(takeover="refuse")
@pytest.mark.parametrize("name", BYPASSES)
async def test_bypasses_of_the_takeover_rule_are_refused(open_server: InProcess, name: str) -> None:
    """No sequence of requests of a stranger moves a broker whose own connection is open and sends heartbeats."""
    peer, other = await open_server.connect(), await open_server.connect()
    tables = open_server.namesrv.manager.tables
    await peer.register(BROKER)
    await open_server.clock.advance(40)
    await peer.call(904, BROKER.ext)

    codes = []
    for code, broker, ext in BYPASSES[name]:
        await open_server.clock.advance(20)
        await peer.call(904, BROKER.ext)
        codes.append((await other.call(code, {**broker.ext, **ext}, registration("T", "U"))).code)

    assert codes == [*[0] * (len(codes) - 1), NO_PERMISSION]
    assert tables.broker_live_table.keys() == {BrokerAddrInfo(BROKER.cluster, BROKER.addr)}
    assert tables.broker_addr_table[BROKER.name].broker_addrs == {0: BROKER.addr}
    assert [each["refused"] for each in open_server.events("takeover_attempted")] == [True]
    # the broker still registers, and unregisters once the stranger has disconnected
    assert (await peer.register(BROKER)).code == 0
    await open_server.hang_up(other)
    assert (await peer.call(104, BROKER.ext)).code == 0
    assert not tables.broker_live_table


@pytest.mark.settings(takeover="refuse")
async def test_connections_of_strangers_do_not_displace_the_brokers_own(open_server: InProcess) -> None:
    """The connections that register one broker are limited; one more is refused, and the broker's own stays."""
    peer = await open_server.connect()
    await peer.register(BROKER)
    strangers = [await open_server.connect() for _ in range(MAX_OTHER_CONNECTIONS + 1)]
    assert [(await each.register(BROKER)).code for each in strangers] == [*[0] * MAX_OTHER_CONNECTIONS, NO_PERMISSION]
    for each in strangers[:-2]:
        await open_server.hang_up(each)

    assert (await strangers[-2].register(USURPER)).code == NO_PERMISSION
    assert (await peer.register(BROKER)).code == 0


@pytest.mark.settings(takeover="warn")
async def test_warn_mode_reports_a_takeover(open_server: InProcess, caplog: pytest.LogCaptureFixture) -> None:
    """The takeover succeeds; a warning names both brokers, and it is counted and kept among the events."""
    peer, other = await open_server.connect(), await open_server.connect()
    await peer.register(BROKER)
    await open_server.clock.advance(7)
    assert (await other.register(USURPER)).code == 0

    event = {
        "cluster": "cluster-1",
        "broker_name": "broker-a",
        "broker_id": 0,
        "broker_addr": "10.0.0.1:10911",
        "age_ms": 7_000,
        "by": "10.6.6.6:10911",
        "peer": other.address,
        "refused": False,
    }
    assert logged(caplog, "takeover_attempted") == [event]
    assert [record.levelno for record in caplog.records if record.msg == "takeover_attempted"] == [logging.WARNING]
    assert open_server.namesrv.counters.takeovers == {"refused": 0, "warned": 1}
    response = await peer.call(20003, None, native({"since": 0, "limit": 100}), spelling="native")
    assert sum(each["event"] == "takeover_attempted" for each in response.java_value["events"]) == 1
