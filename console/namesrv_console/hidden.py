"""Things that servers reported until they stopped responding, and may report again."""

from collections.abc import Collection, Hashable, Mapping
from typing import Generic, TypeVar

from namesrv_console.state import Cluster

K = TypeVar("K", bound=Hashable)


class Hidden(Generic[K]):
    """Things that may not be over: no server reports them any more, but one that did has stopped responding."""

    def __init__(self) -> None:
        # The servers that may report the thing again.
        self._servers: dict[K, frozenset[str]] = {}
        # The servers that did not report at the last look.
        self._silent: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        return f"<Hidden [{len(self._servers)}]>"

    def look(self, before: Mapping[K, Collection[str]], found: Collection[K], cluster: Cluster) -> frozenset[K]:
        """Compare with the last look; returns the keys of all hidden things.

        `before` has the things of the last look, and the servers without which a thing is not known to be over; `found`
        has those that `cluster` reports now.
        """
        silent = frozenset(view.address for view in cluster.servers if not view.is_compared)
        stopped = silent - self._silent
        awaited = self._servers | {key: stopped & {*servers} for key, servers in before.items()}
        self._silent = silent
        self._servers = {
            key: servers & silent for key, servers in awaited.items() if key not in found and servers & silent
        }
        return frozenset(self._servers)
