"""Requests of strangers: an open server obeys them, and a server with an access file refuses them.

The list of what an open server allows in docs/security.md covers each row.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.namesrv.access.test_matrix import QUEUES, state
from tests.support.in_process import InProcess, namesrv_in_process
from tests.support.namesrv_peer import Broker, Spelling, native, native_registration, registration, request_frame
from tests.support.signing import Key

SECRET = "secret-of-the-owners"
FILE = f"""
[accounts.brokers]
secrets = ["{SECRET}"]
may = ["broker-control"]

[accounts.team]
secrets = ["{SECRET}"]
may = [
    {{ access = "broker-control", clusters = ["cluster-1"], brokers = ["team-*"], topics = ["team-*"] }},
    {{ access = "route-read", topics = ["team-*"] }},
    {{ access = "admin-write", clusters = ["cluster-1"], brokers = ["team-*"] }},
    {{ access = "admin-write", topics = ["team-*"] }},
]
"""
OWNER, TEAM = Key("brokers", SECRET), Key("team", SECRET)
VICTIM, AGENT = Broker(), Broker("broker-b", 0, "10.0.0.2:10911")
NO_PERMISSION = 16


class Attack(NamedTuple):
    """A request of a peer without an account."""

    code: int
    ext: Mapping[str, str] | None = None
    body: bytes = b""
    spelling: Spelling = "json"


ATTACKS = {
    "add a broker of its own to any topic": Attack(
        103, Broker("broker-evil", 0, "10.6.6.6:10911").ext, registration("T", "U")
    ),
    "take over the name and id of a live broker": Attack(
        103, Broker("broker-a", 0, "10.6.6.6:10911").ext, registration("T", "U")
    ),
    "register as a live broker, name, id and address": Attack(103, VICTIM.ext, registration("T")),
    "take the address of a live broker under another name": Attack(
        103, Broker("broker-evil", 0, VICTIM.addr).ext, registration("T", "U")
    ),
    "ask for an expiry of ten minutes": Attack(
        103, {**Broker("broker-e", 0, "10.6.6.6:1").ext, "heartbeatTimeoutMillis": "600000"}, registration("T", "U")
    ),
    "remove a broker": Attack(104, VICTIM.ext),
    "remove a broker, an agent's": Attack(104, AGENT.ext, spelling="native"),
    "keep a dead broker alive": Attack(904, VICTIM.ext),
    "delete a topic": Attack(216, {"topic": "T"}),
    "create a topic": Attack(217, {"topic": "evil"}, QUEUES),
    "take away the write permission of a broker": Attack(205, {"brokerName": "broker-a"}),
    "write KV configuration": Attack(100, {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "broker-evil:8"}),
    "list topics": Attack(206),
    "list clusters and brokers": Attack(106),
    "list brokers with their state": Attack(20005, None, native({}), "native"),
    "list connections": Attack(20004, None, native({}), "native"),
    "read the settings": Attack(319),
    "read recent events": Attack(20003, None, native({"since": 0, "limit": 10}), "native"),
}
LISTINGS = {name for name in ATTACKS if name.startswith(("list", "read"))}


async def populate(server: InProcess, key: Key | None) -> None:
    """Register two brokers over a connection that stays open."""
    peer = await server.connect()
    for opaque, (broker, body, spelling) in enumerate(
        [(VICTIM, registration("T", "U"), "json"), (AGENT, native_registration("T", "U"), "native")]
    ):
        encode = request_frame if key is None else key.request_frame
        peer.send(encode(103, broker.ext, body, spelling=spelling, opaque=opaque))  # type: ignore[arg-type]
        assert (await peer.receive()).code == 0
    await server.clock.advance(10)


@pytest.mark.parametrize("name", ATTACKS)
async def test_open_server_allows(tmp_path: Path, name: str) -> None:
    """A server with the default settings obeys every request, as Apache's NameServer does."""
    async with namesrv_in_process(tmp_path) as server:
        await populate(server, None)
        stranger, before = await server.connect(), state(server)
        code, ext, body, spelling = ATTACKS[name]
        response = await stranger.call(code, ext, body, spelling=spelling)
        assert response.code == 0, response.remark
        assert (name in LISTINGS) == (_tables(before) == _tables(state(server)))


@pytest.mark.parametrize("mode", ["enforce", "observe"])
@pytest.mark.parametrize("name", ATTACKS)
async def test_access_file_refuses(tmp_path: Path, name: str, mode: str) -> None:
    """An enforced access file refuses the request before it changes anything; an observed one only counts it."""
    (tmp_path / "access.toml").write_text(FILE)
    async with namesrv_in_process(tmp_path / "data", access=str(tmp_path / "access.toml"), access_mode=mode) as server:
        await populate(server, OWNER)
        stranger, before = await server.connect(), state(server)
        code, ext, body, spelling = ATTACKS[name]
        response = await stranger.call(code, ext, body, spelling=spelling)
        guard = server.namesrv.guard
        assert guard is not None
        outcomes = [outcome for _, _, outcome in guard.refusals]
        if mode == "enforce":
            assert (NO_PERMISSION, ["refused"], before) == (response.code, outcomes, state(server))
        else:
            assert (response.code, outcomes) == (0, ["observed"])
            assert (name in LISTINGS) == (_tables(before) == _tables(state(server)))


def _tables(seen: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in seen.items() if name != "roles"}


# -- an account with narrowed rules ------------------------------------------------------------------------------------

TEAM_BROKER = Broker("team-1", 0, "10.0.1.1:10911")
NARROW: dict[str, tuple[Attack, bool]] = {
    "its own broker": (Attack(103, TEAM_BROKER.ext, registration("team-x", "team-1", "TBW102", "cluster-1")), True),
    "its own broker natively": (Attack(103, TEAM_BROKER.ext, native_registration("team-x"), "native"), True),
    "its own heartbeat": (Attack(904, TEAM_BROKER.ext), True),
    "another's topic": (Attack(103, TEAM_BROKER.ext, registration("team-x", "T")), False),
    # a registration has no such field
    "another's topic beside a field that names its own": (
        Attack(103, {**TEAM_BROKER.ext, "topic": "team-x"}, registration("team-x", "T")),
        False,
    ),
    "another's route beside a field that names its own": (
        Attack(20001, {"topic": "team-x"}, native({"topics": ["T"]}), "native"),
        False,
    ),
    "no topic, in another cluster": (Attack(103, TEAM_BROKER._replace(cluster="c").ext, registration()), False),
    "another's name": (Attack(103, Broker("broker-x", 0, "10.0.1.1:1").ext, registration("team-x")), False),
    "another's address": (Attack(103, TEAM_BROKER._replace(addr=VICTIM.addr).ext, registration("team-x")), False),
    "another's heartbeat": (Attack(904, VICTIM.ext), False),
    "another's heartbeat in its own name": (Attack(904, TEAM_BROKER._replace(addr=VICTIM.addr).ext), False),
    "another's data version in its own name": (Attack(322, TEAM_BROKER._replace(addr=VICTIM.addr).ext, b"{}"), False),
    "another's removal": (Attack(104, VICTIM.ext), False),
    "its own route": (Attack(105, {"topic": "team-x"}), True),
    "another's route": (Attack(105, {"topic": "T"}), False),
    "its own routes": (Attack(20001, None, native({"topics": ["team-x"]}), "native"), True),
    "another's among its own": (Attack(20001, None, native({"topics": ["team-x", "T"]}), "native"), False),
    "its own permission": (Attack(205, {"brokerName": "team-1"}), True),
    "another's permission": (Attack(205, {"brokerName": "broker-a"}), False),
    "permission of an unknown broker": (Attack(205, {"brokerName": "team-9"}), False),
    "its own topic": (Attack(216, {"topic": "team-x"}), True),
    "removal of another's topic": (Attack(216, {"topic": "T"}), False),
    "KV configuration": (Attack(100, {"namespace": "n", "key": "k", "value": "v"}), False),
    "a list": (Attack(206), False),
    "server information": (Attack(20002, None, b"", "native"), True),
}


@pytest.mark.parametrize("name", NARROW)
async def test_narrowed_account(tmp_path: Path, name: str) -> None:
    """A narrowed account reaches its own cluster, brokers and topics, and naming one of them opens nothing else."""
    (tmp_path / "access.toml").write_text(FILE)
    async with namesrv_in_process(tmp_path / "data", access=str(tmp_path / "access.toml")) as server:
        await populate(server, OWNER)
        peer = await server.connect()
        peer.send(TEAM.request_frame(103, TEAM_BROKER.ext, registration("team-x", "team-y")))
        assert (await peer.receive()).code == 0
        await server.clock.advance(1)
        before = state(server)
        (code, ext, body, spelling), is_allowed = NARROW[name]
        peer.send(TEAM.request_frame(code, ext, body, spelling=spelling))
        response = await peer.receive()
        if is_allowed:
            assert response.code == 0, response.remark
        else:
            assert (NO_PERMISSION, before) == (response.code, state(server)), response.remark


@pytest.mark.parametrize(
    ("narrowed", "broker", "is_allowed"),
    [
        ("", Broker("T", 0, "10.0.1.1:10911"), False),
        ("", Broker("edge-1", 0, "10.0.1.1:10911", "T"), False),
        ('brokers = ["edge-*"], ', Broker("edge-1", 0, "10.0.1.1:10911", "T"), False),
        ('clusters = ["cluster-1"], ', Broker("T", 0, "10.0.1.1:10911"), False),
        ('brokers = ["edge-*"], ', Broker("edge-1", 0, "10.0.1.1:10911"), True),
        ('clusters = ["cluster-1"], ', Broker("edge-1", 0, "10.0.1.1:10911"), True),
    ],
)
async def test_topic_named_after_the_broker_or_cluster_needs_a_rule_for_that_name(
    tmp_path: Path, narrowed: str, broker: Broker, is_allowed: bool
) -> None:
    """A broker registers the topics of its own name and its cluster's only if a rule of its account lists that name."""
    rule = f'{{ access = "broker-control", {narrowed}topics = ["team-*"] }}'
    team = f'[accounts.team]\nsecrets = ["{SECRET}"]\nmay = [{rule}]\n'
    (tmp_path / "access.toml").write_text(f'{team}[accounts.brokers]\nsecrets = ["{SECRET}"]\nmay = ["broker-control"]')
    async with namesrv_in_process(tmp_path / "data", access=str(tmp_path / "access.toml")) as server:
        await populate(server, OWNER)
        peer, before = await server.connect(), state(server)
        own = broker.name if "brokers" in narrowed else broker.cluster
        topics = ("team-x", own) if is_allowed else ("team-x", "T")
        peer.send(TEAM.request_frame(103, broker.ext, registration(*topics)))
        response = await peer.receive()
        if is_allowed:
            assert response.code == 0, response.remark
        else:
            assert (NO_PERMISSION, _tables(before)) == (response.code, _tables(state(server)))


async def test_broker_name_of_another_cluster_is_refused(tmp_path: Path) -> None:
    """A broker name is one group in all clusters: an account that lacks it in one cannot join it from another."""
    (tmp_path / "access.toml").write_text(FILE)
    async with namesrv_in_process(tmp_path / "data", access=str(tmp_path / "access.toml")) as server:
        owner, peer = await server.connect(), await server.connect()
        elsewhere = Broker("team-2", 0, "10.0.2.1:10911", "cluster-2")
        owner.send(OWNER.request_frame(103, elsewhere.ext, registration("T", "U")))
        assert (await owner.receive()).code == 0
        before = state(server)
        for code in (103, 104, 904):
            peer.send(TEAM.request_frame(code, elsewhere._replace(cluster="cluster-1").ext, registration("team-x")))
            assert (await peer.receive()).code == NO_PERMISSION
        peer.send(TEAM.request_frame(205, {"brokerName": "team-2"}))
        assert (NO_PERMISSION, before) == ((await peer.receive()).code, state(server))


async def test_repeated_registration_is_checked_against_the_new_account(tmp_path: Path) -> None:
    """An unchanged registration is skipped for the account that sent it, never for an account that lacks the topics."""
    (tmp_path / "access.toml").write_text(FILE)
    async with namesrv_in_process(tmp_path / "data", access=str(tmp_path / "access.toml")) as server:
        peer = await server.connect()
        body = registration("T", "U")
        peer.send(OWNER.request_frame(103, TEAM_BROKER.ext, body))
        assert (await peer.receive()).code == 0
        before = state(server)
        peer.send(TEAM.request_frame(103, TEAM_BROKER.ext, body))
        assert (NO_PERMISSION, before) == ((await peer.receive()).code, state(server))
