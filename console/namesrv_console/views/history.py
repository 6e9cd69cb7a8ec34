"""What happened to one topic lately, as far as the servers remember."""

from collections.abc import Collection
from dataclasses import dataclass

from namesrv_console.state import Cluster
from namesrv_remoting.bodies.extensions import Event


@dataclass(frozen=True, slots=True)
class TopicEvent:
    """One event that changed a topic's route, or may have."""

    server: str
    event: Event
    # A change of many topics names only the first of them, and this one is not among those.
    is_uncertain: bool = False


def topic_history(cluster: Cluster, topic: str, brokers: Collection[str], most: int = 100) -> list[TopicEvent]:
    """Changes of the route, and what became of the brokers that the topic is on; the last one first."""
    found = []
    for view in cluster.servers:
        for event in view.events:
            if event.event != "route":
                if event.fields.get("broker_name") in brokers:
                    found.append(TopicEvent(view.address, event))
                continue
            named, count = event.fields.get("topics"), event.fields.get("count")
            names = named if isinstance(named, list) else []
            if topic in names:
                found.append(TopicEvent(view.address, event))
            elif not isinstance(count, int) or count > len(names):
                found.append(TopicEvent(view.address, event, is_uncertain=True))
    found.sort(key=lambda one: (-(one.event.ts_ms or 0), one.server, -one.event.seq))
    return found[:most]
