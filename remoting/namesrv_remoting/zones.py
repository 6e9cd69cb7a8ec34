"""Routes for clients of a zone, which spill over to other zones when the zone has too few brokers.

Without rules a client of a zone gets only the brokers of its zone, as from RocketMQ's NameServer, and nothing when the
zone has none.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from namesrv_remoting.bodies.route import BrokerData, TopicRouteData
from namesrv_remoting.codes import MASTER_ID, PERM_WRITE

_EXAMPLE: Final = "*, or zone-1>zone-2>zone-3;zone-2>zone-1;masters=2;write-queues=8"
_MINIMUM: Final = re.compile(r"(masters|write-queues)=([1-9]\d{0,4})")
_ZONE: Final = re.compile(r"[^\s;>*=]{1,255}")


class ZoneStep(NamedTuple):
    """A zone whose brokers a route has, and the masters and write queues of all zones up to this one."""

    # empty: the step to all zones
    zone: str
    masters: int
    write_queues: int


class ZoneRoute(NamedTuple):
    """A route for clients of a zone, and how it was found."""

    route: TopicRouteData
    steps: list[ZoneStep]


@dataclass(frozen=True, slots=True)
class ZoneFallback:
    """When routes for a zone spill over, and to which zones first."""

    # False: routes never spill over
    is_on: bool = False
    # casefolded zone -> its neighbours, nearest first; after these, and for other zones, come all zones
    neighbours: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # a route with fewer masters or write queues spills over
    masters: int = 1
    write_queues: int = 1

    def route(self, route: TopicRouteData, zone_name: str) -> ZoneRoute:
        """The route with the groups of the zone, and with those of further zones as long as it has too few brokers."""
        zone = zone_name.casefold()
        zones, steps = list[str](), list[ZoneStep]()
        for further in (zone, *self.neighbours.get(zone, ())):
            zones.append(further)
            kept = in_zones(route, zones)
            steps.append(_step(further, kept))
            if not self._needs_more(steps[-1]):
                return ZoneRoute(kept, steps)
        return ZoneRoute(route, [*steps, _step("", route)])

    def _needs_more(self, step: ZoneStep) -> bool:
        return self.is_on and (step.masters < self.masters or step.write_queues < self.write_queues)


def _step(zone: str, route: TopicRouteData) -> ZoneStep:
    names = {group.broker_name for group in route.broker_datas if _has_master(group)}
    queues = [each for each in route.queue_datas if each.broker_name in names and each.perm & PERM_WRITE]
    return ZoneStep(zone, len(names), sum(each.write_queue_nums for each in queues))


def in_zones(route: TopicRouteData, zones: Collection[str]) -> TopicRouteData:
    """The route with the groups of these zones, and all groups without a master, as RocketMQ's NameServer filters.

    The names of the zones must be casefolded.
    """
    kept = [group for group in route.broker_datas if _is_in(group, zones) or not _has_master(group)]
    names = {group.broker_name for group in kept}
    addrs = {addr for group in kept for addr in group.broker_addrs.values()}
    return TopicRouteData(
        kept,
        [queues for queues in route.queue_datas if queues.broker_name in names],
        {addr: servers for addr, servers in route.filter_server_table.items() if addr in addrs},
        route.order_topic_conf,
        route.topic_queue_mapping_by_broker,
    )


def _is_in(group: BrokerData, zones: Collection[str]) -> bool:
    return (group.zone_name or "").casefold() in zones


def _has_master(group: BrokerData) -> bool:
    return MASTER_ID in group.broker_addrs


# -- the setting ------------------------------------------------------------------------------------------------------


def read_zone_fallback(text: str) -> ZoneFallback:
    """The rules in a text such as `zone-1>zone-2;masters=2`; an empty text has none. Raises ValueError."""
    neighbours: dict[str, tuple[str, ...]] = {}
    minimums: dict[str, int] = {}
    for term in filter(None, (term.strip() for term in text.split(";"))):
        zones = [zone.strip().casefold() for zone in term.split(">")]
        if minimum := _MINIMUM.fullmatch(term):
            is_known = minimum[1] in minimums
            minimums[minimum[1]] = int(minimum[2])
        elif len(zones) > 1 and all(map(_ZONE.fullmatch, zones)) and len(zones) == len(set(zones)):
            is_known = zones[0] in neighbours
            neighbours[zones[0]] = tuple(zones[1:])
        elif term != "*":
            raise ValueError(f"has no valid rule in {term!r}, for example {_EXAMPLE}")
        else:
            is_known = False
        if is_known:
            raise ValueError(f"has a second rule for the same zone or minimum in {term!r}")
    return ZoneFallback(bool(text), neighbours, minimums.get("masters", 1), minimums.get("write-queues", 1))
