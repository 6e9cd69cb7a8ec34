"""Events of all servers or of one topic, equal ones of several servers as one, and events as sentences."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from namesrv_client.ctl import audit_trail
from namesrv_client.health import instance_of, subject_of
from namesrv_console.state import KEPT_EVENTS, Cluster, ServerView
from namesrv_remoting.addresses import host_of
from namesrv_remoting.bodies.extensions import Event

T = TypeVar("T")

# Servers notice one act within this time of each other: they scan for silent brokers every ten seconds, and an
# operator's program sends a request to all of them.
_TOGETHER_MS: Final = 15_000
# Fields with a value of each server's own.
_OWN_FIELDS: Final = frozenset({"revision", "silent_ms", "age_ms"})
_SHOWN_TOPICS: Final = 3
_SHOWN_EVENTS: Final = 30
_OF_A_BROKER: Final = frozenset({"register", "unregister", "evict", "fenced", "takeover_attempted"})
_REASONS: Final = ("silent", "disconnected", "unregistered", "superseded")


@dataclass(slots=True)
class Happening(Generic[T]):
    """One act, as one or several servers noticed it."""

    # The event, or the audit line, of the server that noticed it last.
    event: T
    # Names of the servers.
    servers: list[str]
    ts_ms: int | None


def newest_first(
    cluster: Cluster, moment_ms: Callable[[float], int], most: int = KEPT_EVENTS
) -> list[tuple[ServerView, Event]]:
    """The last events of each server on the console's clock, newest first.

    Those of one server stay in its order, although several may have one time, some none, and its clock may have been
    set back.
    """
    found = []
    for view in cluster.servers:
        events = view.events_on_console_clock(moment_ms)[-most:]
        at_latest = next((event.ts_ms for event in reversed(events) if event.ts_ms is not None), 0)
        for number, event in reversed([*enumerate(events)]):
            at_latest = min(at_latest, at_latest if event.ts_ms is None else event.ts_ms)
            found.append((at_latest, number, view, event))
    found.sort(key=lambda it: it[:2], reverse=True)
    return [(view, event) for _, _, view, event in found]


def last_events(
    cluster: Cluster, moment_ms: Callable[[float], int], most: int = _SHOWN_EVENTS
) -> list[Happening[Event]]:
    """The last events of all servers on the console's clock, newest first, equal ones merged."""
    return happenings(newest_first(cluster, moment_ms, most))[:most]


def happenings(found: Iterable[tuple[ServerView, Event]]) -> list[Happening[Event]]:
    """Events, newest first, with equal events of several servers merged into the newest of them."""
    return merged((view.name, event, _about(event), event.ts_ms) for view, event in found)


def _about(event: Event) -> object:
    return event.event, *((name, str(value)) for name, value in event.fields.items() if name not in _OWN_FIELDS)


def acts(lines: Iterable[audit_trail.Line]) -> list[Happening[audit_trail.Line]]:
    """Lines, newest first, with equal lines of several servers merged into the newest of them."""
    return merged((_where(line), line, _about_line(line), line["ts_ms"]) for line in lines)


def _where(line: audit_trail.Line) -> str:
    """The server, or the console whose trail has the line."""
    return str(line.get("nameserver") or line.get("console") or "")


def _about_line(line: audit_trail.Line) -> object:
    peer = line.get("peer")
    # The port of a peer differs from server to server.
    host = host_of(peer) if isinstance(peer, str) else None
    return line["event"], line.get("account"), line.get("request"), host, audit_trail.sentence(line)


def merged(found: Iterable[tuple[str, T, object, int | None]]) -> list[Happening[T]]:
    """Events or lines, newest first; those of several servers with one key, at about the same time, are one.

    Each event or line is given as server, event, key and time.
    """
    acts: list[Happening[T]] = []
    last: dict[object, Happening[T]] = {}
    for server, event, key, ts_ms in found:
        known = last.get(key)
        if known and server not in known.servers and _is_near(known.ts_ms, ts_ms):
            known.servers.append(server)
        else:
            last[key] = Happening(event, [server], ts_ms)
            acts.append(last[key])
    return acts


def _is_near(newer_ms: int | None, older_ms: int | None) -> bool:
    return newer_ms is not None and older_ms is not None and abs(newer_ms - older_ms) <= _TOGETHER_MS


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
    """Route changes of a topic, and events of its brokers, on the console's clock; the last one first.

    `brokers` are those that have the topic now; brokers that changed its route before count, too.
    """
    # Whether a route event touched the topic; False for other events.
    events = [
        (view.name, event, event.event == "route" and event.touches(topic))
        for view, event in newest_first(cluster, moment_ms)
    ]
    names = {*brokers, *(event.fields.get("broker_name") for _, event, touches in events if touches)} - {None}
    found = [
        TopicEvent(server, event, is_uncertain=touches is None)
        for server, event, touches in events
        if touches is not False or (event.event != "route" and event.fields.get("broker_name") in names)
    ]
    return found[:most]


def sentence(event: Event) -> tuple[str, Mapping[str, Any]] | None:
    """Key and values of the sentence in the catalogues; None for an event that this console does not know."""
    fields, key, instance = event.fields, _key(event), instance_of(event)
    if key is None or (instance is None and event.event in _OF_A_BROKER):
        return None
    silent_ms, named, count = (fields.get(name) for name in ("silent_ms", "topics", "count"))
    topics = list(map(str, named)) if isinstance(named, list) else []
    total = count if isinstance(count, int) else len(topics)
    return key, {
        "broker": subject_of(instance) if instance else fields.get("broker_name") or "?",
        "by": fields.get("by"),
        "seconds": f"{silent_ms / 1000 if isinstance(silent_ms, int) else 0.0:.1f}",
        "number": named if isinstance(named, int) else total,
        "topics": ", ".join([*topics[:_SHOWN_TOPICS], *(["…"] if total > len(topics[:_SHOWN_TOPICS]) else [])]),
    }


def _key(event: Event) -> str | None:
    match event.event, event.fields.get("reason"):
        case "evict", reason:
            return f"evict_{reason}" if reason in _REASONS else None
        case "write_permission", _:
            return "write_removed" if event.fields.get("removed") else "write_added"
        case "route", _:
            if event.fields.get("broker_name"):
                return "route"
            # Without topics a setting changed the routes, and without a broker group a request changed those of topics.
            return "route_by_setting" if event.fields.get("topics") is None else "route_by_request"
        case ("register" | "unregister" | "fenced" | "takeover_attempted") as name, _:
            return name
    return None
