"""Misconfigurations that leave a client without a usable route, and the texts that name their cause."""

import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from tests.support.ctl import Result, at, ctl, one_server
from tests.support.fake_clock import FakeClock, until
from tests.support.in_process import InProcess
from tests.support.namesrv_peer import MASTER, OTHER, SLAVE, Broker, NamesrvPeer, native_registration, registration
from tests.support.signing import Key

# Addresses of the broker and of the client.
BROKERS, CLIENT = "127.0.0.2", "127.0.0.1"
ACCESS: Final = '[accounts.brokers]\nnetworks = ["127.0.0.2"]\nmay = ["broker-control"]\n'
HIDING: Final = '[[views]]\nname = "outside"\nnetworks = ["127.0.0.1"]\nothers = "hide"\n'


class World:
    """NameServers, and a client that sends its requests to the last one."""

    def __init__(self, directory: Path, stack: AsyncExitStack) -> None:
        self.directory = directory
        self.servers: list[InProcess] = []
        # Fields of the client's route request beyond the topic, and the key that signs it.
        self.ext: dict[str, str] = {}
        self.key: Key | None = None
        self._stack = stack

    async def serve(self, name: str = "ns1", **settings: Any) -> InProcess:
        """A server with settings of `one_server`."""
        entering = one_server(self.directory / name, nameserver_name=name, **settings)
        server, _ = await self._stack.enter_async_context(entering)
        self.servers.append(server)
        return server

    async def broker(self, broker: Broker = MASTER, *topics: str, **settings: Any) -> NamesrvPeer:
        """A broker on a new server, with topic T by default."""
        peer = await (await self.serve(**settings)).connect(source=BROKERS)
        # Like Apache's, the server ignores the first registration of a broker with a single topic.
        await peer.register(broker, registration(*(topics or ("T",)), "V"))
        return peer

    async def remark(self) -> str:
        """The remark of the response to the client's request for topic T."""
        peer, ext = await self.servers[-1].connect(source=CLIENT), {"topic": "T", **self.ext}
        if self.key is None:
            return (await peer.call(105, ext)).remark or ""
        peer.send(self.key.request_frame(105, ext))
        return (await peer.receive()).remark or ""

    async def explain(self) -> Result:
        """The output of `namesrvctl explain T` with all servers; for a client with a zone, that of `route`."""
        key, zone = self.key, self.ext.get("__ZONE_NAME")
        env = {} if key is None else {"NAMESRV_ACCESS_KEY": key.access_key, "NAMESRV_SECRET_KEY": key.secret}
        command = ("explain", "T") if zone is None else ("route", "T", "--zone", zone, "--explain")
        return await ctl(*at(*self.servers), "--timeout", "1m", *command, env=env)


class Cause(NamedTuple):
    """A misconfiguration, and the words that name it."""

    set_up: Callable[[World], Awaitable[object]]
    words: str
    # False if the request is answered with a route, which no client can use: then only namesrvctl names the cause.
    is_in_remark: bool = True


async def wrong_server(world: World) -> None:
    """The client's list names the server of another environment."""
    await world.broker(OTHER, "other", name="staging")


async def split_list(world: World) -> None:
    """The broker registers with one server, and the client asks another one."""
    await world.broker()
    await world.serve("ns2")


async def acting_master(world: World) -> None:
    """A slave acts as master, and has registered topics, but not this one."""
    peer = await (await world.serve()).connect()
    await peer.register(SLAVE, registration("U", "V"), enableActingMaster="true")
    assert "U" in world.servers[-1].namesrv.manager.tables.topic_queue_table


async def silent(world: World) -> None:
    """The broker hangs; its connection stays open."""
    await world.broker()
    # the expiry of 120 s is over, and the scan is due
    await world.servers[-1].clock.advance(130)


async def killed(world: World) -> None:
    """The broker's process was killed."""
    peer = await world.broker()
    await world.servers[-1].hang_up(peer)
    await until(lambda: not world.servers[-1].namesrv.manager.tables.broker_live_table)


async def shut_down(world: World) -> None:
    """The broker was shut down in order."""
    await (await world.broker()).call(104, MASTER.ext)


async def other_broker_at_its_address(world: World) -> None:
    """Another broker registers with the same address."""
    await (await world.broker()).register(MASTER._replace(name="broker-z"), registration("U", "V"))


async def deleted_by_an_operator(world: World) -> None:
    """An operator deletes the topic from the NameServer."""
    await (await world.broker()).call(216, {"topic": "T"})


async def deleted_on_its_broker(world: World, views: str = "") -> None:
    """The topic is deleted on its broker, which then registers without it."""
    peer = await (await world.serve(views=views)).connect()
    for seq, topics in (("1", ("T", "U")), ("2", ("U",))):
        body = native_registration(*topics, counter=int(seq))
        await peer.register(MASTER, body, spelling="native", registrationSeq=seq, agentId="a", kind="full")


async def account(world: World, text: str) -> None:
    """A server with an access file, in which these lines describe the client's account."""
    await world.broker(access=f"{ACCESS}[accounts.app]\n{text}\n")


async def wrong_secret(world: World) -> None:
    """The client signs with another secret than that of its account."""
    app = '[accounts.app]\nsecrets = ["the-secret-of-the-app"]\nmay = ["route-read"]\n'
    clock = FakeClock(wall=time.time())
    await world.serve(access=ACCESS + app, clock=clock)
    world.key = Key("app", "another-secret", now_ms=int(clock.wall() * 1000))


async def restarted(world: World) -> None:
    """The server was restarted, and its broker has not registered again."""
    async with one_server(world.directory / "ns1") as (server, _):
        await (await server.connect()).register(MASTER)
    await world.serve()


async def default_topic_is_read_only(world: World) -> None:
    """The only broker that creates topics has no write permission, since an operator removed it."""
    peer = await world.broker(MASTER, "TBW102", "U")
    await peer.call(205, {"brokerName": "broker-a"})


async def zone_without_broker(world: World) -> None:
    """The client wants brokers of a zone that has no broker."""
    await world.broker()
    world.ext = {"__ZONE_MODE": "true", "__ZONE_NAME": "z1"}


async def write_permission_removed(world: World) -> None:
    """An operator has removed the write permission of the broker."""
    await (await world.broker()).call(205, {"brokerName": "broker-a"})


NETWORK: Final = f'networks = ["{CLIENT}"]\n'
CAUSES: Final = {
    "wrong server": Cause(wrong_server, "NameServer staging, up since 2023-11-14T22:13:20Z, has 1 broker."),
    "split list": Cause(
        split_list, "No broker is registered: each broker needs this server in its list of NameServers (namesrvAddr)."
    ),
    "no broker": Cause(lambda world: world.serve(), "has 0 brokers. No broker is registered"),
    "auto-create is off": Cause(
        lambda world: world.broker(MASTER, "U"),
        "a first message would not create it: no broker has autoCreateTopicEnable (TBW102 is missing).",
    ),
    "no message yet": Cause(
        lambda world: world.broker(MASTER, "TBW102"), "a first message would create it (TBW102 exists)."
    ),
    "default topic is read-only": Cause(
        default_topic_is_read_only, "a first message would not create it: no master has TBW102 with write permission."
    ),
    "only a slave": Cause(
        lambda world: world.broker(SLAVE), "No master is registered, and no slave has registered the topic."
    ),
    "only an acting master": Cause(acting_master, "No master is registered, and no slave has registered the topic."),
    "silent broker": Cause(
        silent,
        "lost its last broker at 2023-11-14T22:15:30Z: broker-a of cluster cluster-1 sent no heartbeat for 130 s.",
    ),
    "killed broker": Cause(killed, "the connection of broker-a of cluster cluster-1 closed."),
    "broker shut down": Cause(shut_down, "broker-a of cluster cluster-1 unregistered."),
    "other broker at its address": Cause(
        other_broker_at_its_address, "another broker took the place of broker-a of cluster cluster-1."
    ),
    "deleted by an operator": Cause(deleted_by_an_operator, "an operator deleted the topic."),
    "deleted on its broker": Cause(deleted_on_its_broker, "broker-a registered without the topic."),
    "deleted on a hidden broker": Cause(
        lambda world: deleted_on_its_broker(world, HIDING),
        ": a broker that address view outside does not show registered without the topic.",
    ),
    "account without the topic": Cause(
        lambda world: account(world, NETWORK + 'may = [{access = "route-read", topics = ["U"]}]'),
        "account app lacks route-read for topic T",
    ),
    "no account": Cause(
        lambda world: world.broker(access=ACCESS), "request is not signed, and no account matches this address"
    ),
    "expired account": Cause(
        lambda world: account(world, NETWORK + 'may = ["route-read"]\nexpires = 2020-01-01T00:00:00Z'),
        "account app expired at 2020-01-01",
    ),
    "wrong secret": Cause(wrong_secret, "access key 'app' is unknown, or the request is not signed with its secret"),
    "hiding view": Cause(
        lambda world: world.broker(views=HIDING),
        "Address view outside hides all brokers of the topic from this address.",
    ),
    "server is not ready": Cause(restarted, "name server not ready"),
    "zone without a broker": Cause(
        zone_without_broker, "zone z1: 0 masters, 0 write queues (zone-fallback is off)", is_in_remark=False
    ),
    "no write permission": Cause(
        write_permission_removed, "write permission removed by an operator", is_in_remark=False
    ),
}


@pytest.mark.parametrize("name", CAUSES)
async def test_cause_is_named(tmp_path: Path, name: str) -> None:
    """The response's remark and namesrvctl contain the cause."""
    cause = CAUSES[name]
    async with AsyncExitStack() as stack:
        world = World(tmp_path, stack)
        await cause.set_up(world)

        remark, explained = await world.remark(), await world.explain()

    assert (cause.words if cause.is_in_remark else "") in remark.replace("\n", " ")
    assert bool(remark) == cause.is_in_remark
    assert cause.words in explained.err
