"""Builders of a NameServer's tables and registrations, without a server."""

from collections.abc import Mapping
from typing import Any

from namesrv.routeinfo.checks import check_registration
from namesrv.routeinfo.eviction import plan_removal
from namesrv.routeinfo.manager import RouteInfoManager
from namesrv.routeinfo.registration import plan_registration
from namesrv.routeinfo.route_cache import ResponseMemory, RouteCache
from namesrv.routeinfo.routes import RouteInputs
from namesrv.routeinfo.rules import Rules, TableLimits, TableQuotas, TakeoverPolicy
from namesrv.routeinfo.shares import Holdings
from namesrv.routeinfo.tables.effects import Effect, RouteChanged
from namesrv.routeinfo.tables.liveness import LivenessClock
from namesrv.routeinfo.tables.records import BrokerAddrInfo, BrokerLiveInfo, RegisterResult, Registration, RouteOptions
from namesrv.routeinfo.tables.route_tables import Changes, RouteTables
from namesrv.routeinfo.tables.rows import RowChanges
from namesrv.routeinfo.write_section import WriteSection
from namesrv_remoting.bodies.dialects import JSON, NATIVE
from namesrv_remoting.bodies.register import RegisterBrokerBody
from namesrv_remoting.bodies.route import QueueData, TopicRouteData
from namesrv_remoting.bodies.topic import DataVersion, TopicConfig
from namesrv_remoting.zones import ZoneFallback
from tests.support.fake_clock import FakeClock
from tests.support.steps import finished

# more than any test fills
ROOMY = TableLimits(*[1_000_000] * 6)


def rules(**others: Any) -> Rules:
    """Rules without limits for a server whose connections are all open, and others by name."""
    defaults = {
        "options": RouteOptions(),
        "limits": ROOMY,
        "quotas": TableQuotas(),
        "policy": TakeoverPolicy(),
        "is_connected": lambda _: True,
        "network_of": lambda _: "",
        "now": lambda: 0.0,
    }
    return Rules(**{**defaults, **others})


def topic(name: str, queues: int = 8) -> TopicConfig:
    """A topic with as many read queues as write queues."""
    return TopicConfig(name, queues, queues)


def body(*topics: TopicConfig | str, counter: int = 1, state_version: int = 0, **fields: Any) -> RegisterBrokerBody:
    """A registration body: topics (a name means eight queues, perm 6), a version, no filter server list."""
    configs = tuple(topic(item) if isinstance(item, str) else item for item in topics)
    version = DataVersion(counter, state_version)
    return RegisterBrokerBody(configs, **{"data_version": version, "filter_servers": None, **fields})


def registration(broker_name: str, broker_id: int, broker_addr: str, *topics: Any, **fields: Any) -> Registration:
    """A registration in cluster c1 over connection 1, with these topics or a `body`, and other fields by name."""
    if topics:
        fields["body"] = body(*topics)
    return Registration(
        **{
            "cluster_name": "c1",
            "broker_name": broker_name,
            "broker_id": broker_id,
            "broker_addr": broker_addr,
            "body": body("t1", "t2"),
            "connection_id": 1,
            "expiry_seconds": 120.0,
            **fields,
        }
    )


def queue_data(broker_name: str, queues: int = 8, perm: int = 6) -> QueueData:
    """One broker's queues as the tables hold them."""
    return QueueData(broker_name, queues, queues, perm)


def key(broker_addr: str) -> BrokerAddrInfo:
    """The key of a live broker."""
    return BrokerAddrInfo("c1", broker_addr)


def apply(tables: RouteTables, changes: Changes) -> RowChanges:
    """Apply changes; return what they changed in each topic's row."""
    prepared = finished(tables.prepare(changes))
    tables.apply(prepared)
    return prepared.topics.row_changes


def check(tables: RouteTables, broker: Registration, by: Rules) -> None:
    """Check a registration by these rules. Raises ResponseError."""
    finished(check_registration(WriteSection(tables, by, Holdings(tables), on_publish=None), broker))


def register(
    tables: RouteTables, *brokers: Registration, options: RouteOptions | None = None, now: float = 0.0
) -> list[tuple[Changes, RegisterResult]]:
    """Check, plan and apply registrations; return the plan and result of each."""
    plans = []
    for number, broker in enumerate(brokers, start=1):
        check(tables, broker, rules(options=options or RouteOptions()))
        plans.append(finished(plan_registration(tables, broker, options or RouteOptions(), now, number)))
        apply(tables, plans[-1][0])
    return plans


def tables_of(*brokers: Registration, options: RouteOptions | None = None, now: float = 0.0) -> RouteTables:
    """Tables in which these brokers registered one after the other."""
    tables = RouteTables()
    register(tables, *brokers, options=options, now=now)
    return tables


def remove(tables: RouteTables, broker: BrokerAddrInfo, options: RouteOptions | None = None) -> Changes:
    """Remove a broker from tables."""
    changes = finished(plan_removal(tables, broker, tables.broker_live_table[broker], options or RouteOptions()))
    apply(tables, changes)
    return changes


def rows(tables: RouteTables) -> dict[str, dict[str, int]]:
    """Topic -> broker name -> permission."""
    return {
        name: {queues.broker_name: queues.perm for queues in row.queues}
        for name, row in tables.topic_queue_table.items()
    }


def addresses(tables: RouteTables) -> dict[str, Mapping[int, str]]:
    """Broker name -> its addresses by id."""
    return {name: group.broker_addrs for name, group in tables.broker_addr_table.items()}


class RouteScene:
    """A manager on a fake clock, with both route caches, recorded effects, and connections from one network."""

    def __init__(
        self,
        tables: RouteTables | None = None,
        *,
        limits: TableLimits = ROOMY,
        policy: TakeoverPolicy | None = None,
        quotas: TableQuotas | None = None,
        network: str = "",
        **options: bool,
    ) -> None:
        self.clock = FakeClock()
        self.options = RouteOptions(**options)
        self.effects: list[Effect] = []
        # closed connections; every other number is an open one
        self.closed: set[int] = set()
        # topic -> order configuration
        self.order_conf: dict[str, str] = {}
        self.tables = tables or RouteTables()
        # heartbeats: the broker, its live entry, the silence before
        self.touched: list[tuple[BrokerAddrInfo, BrokerLiveInfo, float]] = []
        inputs = RouteInputs(self.tables, self.options, self.order_conf.get, ZoneFallback())
        memories = [ResponseMemory(self.tables.topic_queue_table) for _ in range(2)]
        self.json_cache = RouteCache(inputs, encode_json, memories[0])
        self.native_cache = RouteCache(inputs, encode_native, memories[1])
        self.liveness = LivenessClock(self.clock.monotonic, 10.0)
        self.manager = RouteInfoManager(
            self.tables,
            self.liveness,
            self.options,
            limits,
            sink=self.effects.append,
            is_connected=lambda connection_id: connection_id not in self.closed,
            network_of=lambda connection_id: "" if connection_id in self.closed else network,
            forget_responses=self.forget_responses,
            on_touch=lambda *touch: self.touched.append(touch),
            policy=policy,
            quotas=quotas,
        )

    def forget_responses(self) -> None:
        self.json_cache.memory.clear()
        self.native_cache.memory.clear()

    def cached(self, cache: RouteCache[bytes], topic: str) -> bytes | None:
        """The response that the fast path gives for a topic."""
        row = self.tables.topic_queue_table.get(topic)
        return None if row is None else cache.responses.get(row) or cache.find(topic)

    async def register(self, *brokers: Registration) -> list[RegisterResult]:
        return [await self.manager.register(broker) for broker in brokers]

    async def close(self, connection_id: int) -> None:
        self.closed.add(connection_id)
        await self.manager.connection_closed(connection_id)

    def data_version(self, broker: BrokerAddrInfo, connection_id: int) -> DataVersion | None:
        """The DataVersion that 322 compares; the call counts as a heartbeat."""
        live = self.manager.touch(broker, connection_id)
        return None if live is None else live.data_version

    def pass_time(self, seconds: float) -> None:
        self.clock.stall(seconds)

    def take_effects(self) -> list[Effect]:
        taken, self.effects[:] = list(self.effects), []
        return taken

    def changed_topics(self) -> list[str]:
        """Sorted topics of the RouteChanged effects since the last call."""
        changes = [effect for effect in self.take_effects() if isinstance(effect, RouteChanged)]
        return sorted(name for effect in changes for name in effect.topics or ())


def encode_json(route: TopicRouteData) -> tuple[bytes, int]:
    """Encode as the JSON cache does, without the frame."""
    encoded = JSON.encode(route)
    return encoded, len(encoded)


def encode_native(route: TopicRouteData) -> tuple[bytes, int]:
    """Encode as the native cache does, without the frame."""
    encoded = NATIVE.encode(route)
    return encoded, len(encoded)
