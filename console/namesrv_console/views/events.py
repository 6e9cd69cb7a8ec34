"""Events as sentences, and equal events of several servers as one. Pure functions."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from namesrv_client.health import instance_of
from namesrv_console.state import ServerView
from namesrv_remoting.bodies.extensions import Event

# Servers notice one act within this time of each other: they scan for silent brokers every ten seconds.
_TOGETHER_MS: Final = 15_000
# Fields with a value of each server's own.
_OWN_FIELDS: Final = frozenset({"revision", "silent_ms", "age_ms"})
_SHOWN_TOPICS: Final = 3
_OF_A_BROKER: Final = frozenset({"register", "evict", "fenced", "takeover_attempted"})
_REASONS: Final = ("silent", "disconnected", "unregistered", "superseded")


@dataclass(slots=True)
class Happening:
    """One act, as one or several servers noticed it."""

    event: Event
    # Names of the servers.
    servers: list[str]


def happenings(found: Iterable[tuple[ServerView, Event]]) -> list[Happening]:
    """Events, newest first, with equal events of several servers merged into the newest of them."""
    merged: list[Happening] = []
    last: dict[object, Happening] = {}
    for view, event in found:
        key = event.event, *((name, str(value)) for name, value in event.fields.items() if name not in _OWN_FIELDS)
        known = last.get(key)
        if known and view.name not in known.servers and _is_near(known.event, event):
            known.servers.append(view.name)
        else:
            last[key] = Happening(event, [view.name])
            merged.append(last[key])
    return merged


def _is_near(newer: Event, older: Event) -> bool:
    return newer.ts_ms is not None and older.ts_ms is not None and newer.ts_ms - older.ts_ms <= _TOGETHER_MS


def sentence(event: Event) -> tuple[str, Mapping[str, Any]] | None:
    """Key and values of the sentence in the catalogues; None for an event that this console does not know."""
    fields, key, instance = event.fields, _key(event), instance_of(event)
    if key is None or (instance is None and event.event in _OF_A_BROKER):
        return None
    silent_ms, named, count = (fields.get(name) for name in ("silent_ms", "topics", "count"))
    topics = list(map(str, named)) if isinstance(named, list) else []
    total = count if isinstance(count, int) else len(topics)
    return key, {
        "broker": "/".join(map(str, instance)) if instance else fields.get("broker_name") or "?",
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
        case ("register" | "fenced" | "takeover_attempted" | "route") as name, _:
            return name
    return None
