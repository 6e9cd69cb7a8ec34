"""The recent events of one topic, as far as the servers remember them."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from namesrv_console.state import Cluster
from namesrv_remoting.bodies.extensions import Event


@dataclass(frozen=True, slots=True)
class TopicEvent:
    """An event that changed a topic's route, or may have."""

    server: str
    event: Event
    # True: the event names only the first of many topics, and this topic is not among them.
    is_uncertain: bool = False


def topic_history(
    cluster: Cluster, topic: str, brokers: Collection[str], moment_ms: Callable[[float], int], most: int = 100
) -> list[TopicEvent]:
    """Route changes of a topic, and events of its brokers, on the console's clock; the last one first."""
    found = []
    for view in cluster.servers:
        for event in view.events_on_console_clock(moment_ms):
            if event.event != "route":
                if event.fields.get("broker_name") in brokers:
                    found.append(TopicEvent(view.name, event))
                continue
            touches = event.touches(topic)
            if touches is not False:
                found.append(TopicEvent(view.name, event, is_uncertain=touches is None))
    found.sort(key=lambda one: (-(one.event.ts_ms or 0), one.server, -one.event.seq))
    return found[:most]
