"""Ring of recent losses of routes: by which change topics lost their last broker, and when."""

from collections import OrderedDict
from typing import Final, NamedTuple

from namesrv.routeinfo.tables.effects import Effect, Evicted, RouteChanged
from namesrv_runtime.clock import Clock

MAX_LOSSES: Final = 1000


class LostRoute(NamedTuple):
    """A change after which some topics had no route."""

    # Monotonic time.
    at: float
    # The group whose registration or eviction removed topics; None if an operator removed them.
    broker_name: str | None = None
    # The eviction that removed the topics; None if the broker stayed.
    eviction: Evicted | None = None


class LostRoutes:
    """The most recent losses of routes, as an observer of effects.

    A loss is found by the revision of the route change. The tables know the last revision of each topic, so that this
    ring needs no names of topics, and no time for each topic of a broker that leaves.
    """

    def __init__(self, clock: Clock, size: int = MAX_LOSSES) -> None:
        self._clock = clock
        self._size = size
        # Revision -> the loss, oldest first.
        self._losses: OrderedDict[int, LostRoute] = OrderedDict()

    def __repr__(self) -> str:
        return f"<LostRoutes [{len(self._losses)} losses]>"

    def observe(self, effect: Effect) -> None:
        """Note a change that left topics without a route; the eviction of its broker is the effect that follows."""
        match effect:
            case RouteChanged(topics_lost=True):
                self._losses[effect.revision] = LostRoute(self._clock.monotonic(), effect.broker_name)
                if len(self._losses) > self._size:
                    self._losses.popitem(last=False)
            case Evicted() if effect.revision in self._losses:
                self._losses[effect.revision] = self._losses[effect.revision]._replace(eviction=effect)

    def find(self, revision: int) -> LostRoute | None:
        """Return the loss with this revision; None if it is not in the ring."""
        return self._losses.get(revision)
