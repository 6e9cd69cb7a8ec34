"""What do the daemon's parts share?"""

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from namesrv.counters import Counters
from namesrv.heartbeat_log.log import HeartbeatLog
from namesrv.kv.store import KVConfig
from namesrv.routeinfo.manager import RouteInfoManager
from namesrv.routeinfo.records import RouteOptions
from namesrv.server.events import EventRing
from namesrv.server.sd_notify import ServiceManager
from namesrv.server.snapshot import Readiness
from namesrv.server.watchers import RouteWatchers
from namesrv.settings.model import Settings
from namesrv_runtime.clock import Clock

if TYPE_CHECKING:
    from namesrv.fast_lane import FastLane
    from namesrv_remoting.aio.server import RemotingServer


@dataclass(slots=True)
class LiveSettings(RouteOptions):
    """The settings that can be changed while the server runs (318), and nothing else."""

    return_order_topic_config_to_broker: bool = True
    enable_topic_list: bool = True
    enable_all_topic_list: bool = True

    @classmethod
    def of(cls, settings: Settings) -> "LiveSettings":
        """As they are at start."""
        return cls(**{item.name: getattr(settings, item.name) for item in fields(cls)})


@dataclass(slots=True)
class Namesrv:
    """One running NameServer: its state and what reaches it, wired together by the controller."""

    settings: Settings
    live: LiveSettings
    clock: Clock
    kv: KVConfig
    manager: RouteInfoManager
    watchers: RouteWatchers
    events: EventRing
    readiness: Readiness
    started_wall: float
    started_monotonic: float
    # a new one says that this is another run of the server, which knows nothing that it was not told since
    boot_id: str = field(default_factory=lambda: secrets.token_hex(8))
    # set while starting: both need the others
    server: "RemotingServer" = field(init=False)
    fast_lane: "FastLane" = field(init=False)
    # starts work that must not hold up a request, owned by the daemon's TaskGroup
    spawn: Callable[..., asyncio.Task[Any]] = field(init=False)
    # what has happened so far, for whoever looks from outside
    counters: Counters = field(default_factory=Counters)
    service_manager: ServiceManager = field(default_factory=ServiceManager)
    is_listening: bool = False
    is_draining: bool = False
    # None: switched off
    heartbeat_log: HeartbeatLog | None = None

    def uptime(self) -> float:
        """Seconds since the start, whatever happened to the wall clock."""
        return self.clock.monotonic() - self.started_monotonic

    def is_ready(self) -> bool:
        """Whether route questions may be answered."""
        return self.readiness.is_ready(self.clock.monotonic())
