"""The heat map of the overview: every broker on every server, coloured by the age of its last heartbeat."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from namesrv_client.health import RED_SHARE, YELLOW_SHARE, InstanceKey, subject_of
from namesrv_console.state import BrokerKey, BrokerSeen, Cluster, ServerView
from namesrv_console.views.differences import Disagreement

# in_time, late, dying: by the age of the last heartbeat; missing: the server does not have the broker; awaited: the
# server does not have the broker, but is expected to have it soon, or other servers to remove it soon; frozen: the last
# report of a server that no longer responds; ageless: the server reports no ages; unknown: the server reports no
# brokers, or waits for brokers after its start.
Heat = Literal["in_time", "late", "dying", "missing", "awaited", "frozen", "ageless", "unknown"]


class HeatCell(NamedTuple):
    """One broker on one server."""

    view: ServerView
    heat: Heat
    seen: BrokerSeen | None

    @property
    def is_timed(self) -> bool:
        """True if the heat changes with time."""
        return self.heat in ("in_time", "late", "dying")

    @property
    def is_reported(self) -> bool:
        """True if the server reports the broker now."""
        return self.seen is not None and self.view.reports_brokers


# Cluster -> broker name -> broker id -> a cell for each server, all sorted.
HeatMap = Mapping[str, Mapping[str, Mapping[int, Sequence[HeatCell]]]]


def heat_map(
    cluster: Cluster, gone: Iterable[InstanceKey], disagreements: Iterable[Disagreement], now: float | None
) -> HeatMap:
    """Cells of all brokers of the cluster, and of those that have left it; without `now` no heartbeat is late."""
    # Broker -> the servers whose lack of the broker is expected.
    expected = {one.difference.name: one.expected_on for one in disagreements if one.is_missing_broker}
    clusters: dict[str, dict[str, dict[int, list[HeatCell]]]] = {}
    keys = {key for view in cluster.servers for key in view.brokers} | {BrokerKey(*key) for key in gone}
    for key in sorted(keys):
        groups = clusters.setdefault(key.cluster, {})
        groups.setdefault(key.broker_name, {})[key.broker_id] = [
            _cell(key, view, now, is_expected=view.address in expected.get(subject_of(key), ()))
            for view in cluster.servers
        ]
    return clusters


def fewer_groups(heat: HeatMap, most: int) -> tuple[HeatMap, int]:
    """At most so many groups of a heat map, those with missing or unknown brokers first; and the number left out."""
    ranked = sorted(
        (all(cell.is_timed for cells in instances.values() for cell in cells), cluster, name)
        for cluster, groups in heat.items()
        for name, instances in groups.items()
    )
    kept = {(cluster, name) for _, cluster, name in ranked[:most]}
    fewer = {
        cluster: {name: instances for name, instances in groups.items() if (cluster, name) in kept}
        for cluster, groups in heat.items()
    }
    return {cluster: groups for cluster, groups in fewer.items() if groups}, len(ranked) - len(kept)


def _cell(key: BrokerKey, view: ServerView, now: float | None, *, is_expected: bool) -> HeatCell:
    seen = view.brokers.get(key)
    if seen is None:
        return HeatCell(
            view, "unknown" if not view.reports_all_brokers else "awaited" if is_expected else "missing", None
        )
    if seen.last_seen_at is None or seen.evicted_at is None:
        return HeatCell(view, "ageless" if view.reports_brokers else "unknown", seen)
    if not view.reports_brokers:
        return HeatCell(view, "frozen", seen)
    return HeatCell(view, "in_time" if now is None else _heat(seen.last_seen_at, seen.evicted_at, now), seen)


def _heat(last_seen_at: float, evicted_at: float, now: float) -> Heat:
    life = evicted_at - last_seen_at
    left = (evicted_at - now) / life if life > 0 else 0.0
    return "dying" if left < RED_SHARE else "late" if left < YELLOW_SHARE else "in_time"
