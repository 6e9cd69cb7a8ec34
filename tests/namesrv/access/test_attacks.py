"""Requests of an account with narrowed rules."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.namesrv.access.test_matrix import state
from tests.support.in_process import InProcess, guarded_namesrv
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
    """A request of the account."""

    code: int
    ext: Mapping[str, str] | None = None
    body: bytes = b""
    spelling: Spelling = "json"


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
    "its own route": (Attack(105, {"topic": "team-x"}), True),
    "another's route": (Attack(105, {"topic": "T"}), False),
    "its own routes": (Attack(20001, None, native({"topics": ["team-x"]}), "native"), True),
    "another's among its own": (Attack(20001, None, native({"topics": ["team-x", "T"]}), "native"), False),
    "its own permission": (Attack(205, {"brokerName": "team-1"}), True),
    "permission of an unknown broker": (Attack(205, {"brokerName": "team-9"}), False),
    "its own topic": (Attack(216, {"topic": "team-x"}), True),
    "a list": (Attack(206), False),
    "server information": (Attack(20002, None, b"", "native"), True),
}


@pytest.mark.parametrize("name", NARROW)
async def test_narrowed_account(tmp_path: Path, name: str) -> None:
    """A narrowed account reaches its own cluster, brokers and topics, and naming one of them opens nothing else."""
    async with guarded_namesrv(tmp_path, FILE) as server:
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
            assert (response.code, state(server)) == (NO_PERMISSION, before), response.remark


async def test_repeated_registration_is_checked_against_the_new_account(tmp_path: Path) -> None:
    """An unchanged registration is skipped for the account that sent it, never for an account that lacks the topics."""
    async with guarded_namesrv(tmp_path, FILE) as server:
        peer = await server.connect()
        body = registration("T", "U")
        peer.send(OWNER.request_frame(103, TEAM_BROKER.ext, body))
        assert (await peer.receive()).code == 0
        before = state(server)
        peer.send(TEAM.request_frame(103, TEAM_BROKER.ext, body))
        assert ((await peer.receive()).code, state(server)) == (NO_PERMISSION, before)
