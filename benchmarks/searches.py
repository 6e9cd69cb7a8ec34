"""Time for which the scan of 10,000 brokers blocks the event loop."""

import random
import time
from dataclasses import dataclass
from typing import Final

from namesrv.routeinfo.eviction import silent_brokers
from namesrv.routeinfo.records import BrokerAddrInfo, BrokerLiveInfo
from namesrv.routeinfo.tables import RouteTables

BROKERS: Final = 10_000
_EXPIRY: Final = 120.0


@dataclass(frozen=True, slots=True)
class Search:
    """How long searches took: computing time, in milliseconds."""

    # one ten seconds after another, in tables whose brokers are heard every 30 s: what happens all day
    usual: float
    # all brokers' deadlines come up at once, and all of them were heard since
    all_heard: float
    # all of them are silent, as after a network failure
    all_silent: float


def search() -> Search:
    """Each of them in fresh tables; the clock is ours."""
    return Search(max(_all_day()), *_at_once())


def _all_day() -> list[float]:
    tables = RouteTables()
    # a third of the brokers speaks in each ten seconds, whenever it began
    thirds = [range(third, BROKERS, 3) for third in range(3)]
    took = []
    for scan in range(40):
        for number in thirds[scan % 3]:
            _hear(tables, number, scan * 10.0 + random.uniform(0.0, 10.0))
        took.append(_took(tables, scan * 10.0 + 10.0))
    return took


def _at_once() -> tuple[float, float]:
    tables = RouteTables()
    for seconds in (0.0, 60.0):
        for number in range(BROKERS):
            _hear(tables, number, seconds + random.uniform(0.0, 10.0))
    return _took(tables, _EXPIRY + 20.0), _took(tables, _EXPIRY + 100.0)


def _hear(tables: RouteTables, number: int, now: float) -> None:
    key = BrokerAddrInfo("DefaultCluster", f"10.0.0.1:{number}")
    tables.set_live(key, BrokerLiveInfo(f"broker-{number}", 0, now, _EXPIRY, None, 1, None, number))


def _took(tables: RouteTables, now: float) -> float:
    began = time.thread_time()
    silent_brokers(tables, now)
    return (time.thread_time() - began) * 1000
