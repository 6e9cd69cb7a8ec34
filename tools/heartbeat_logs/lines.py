"""Lines of the log, made as fast as possible.

All but the first fields of a line are made once and used again, since a day has millions of heartbeats.
"""

import json
from collections.abc import Sequence
from typing import Any

from tools.heartbeat_logs.boots import Boot
from tools.heartbeat_logs.settings import Settings
from tools.heartbeat_logs.world import Broker, Process

# Time of the event, and the line from its `event` on.
Event = tuple[int, str]


def tail(event: str, **fields: Any) -> str:
    """The line from its `event` on."""
    return json.dumps({"event": event, **fields}, separators=(",", ":"))[1:]


def milliseconds(time: int) -> float:
    """A time in milliseconds as in the log, with at most three decimals."""
    return time / 1000


def settings_fields(settings: Settings) -> dict[str, Any]:
    """The fields of `start` and `opened`."""
    return {
        "scan_interval_ms": settings.scan // 1000,
        "broker_expiry_ms": settings.expiry // 1000,
        "evict_on_disconnect": True,
        "version": "0.1.0",
    }


def broker_fields(broker: Broker, process: Process) -> dict[str, Any]:
    """The fields of every line of a broker."""
    return {
        "cluster": broker.cluster,
        "broker_name": broker.name,
        "broker_id": broker.broker_id,
        "broker_addr": broker.addr,
        "data_version": f"0/{process.start // 1000}/1",
        "expiry_ms": broker.expiry // 1000,
        "topics": len(broker.topics),
        "agent_id": process.agent_id,
    }


def heartbeat_tail(broker: Broker, process: Process, kind: str) -> str:
    """The line of a heartbeat without its last value, the length of the silence before it."""
    event = "heartbeat" if kind == "touch" else "register"
    return tail(event, **broker_fields(broker, process), kind=kind, silent_ms=0)[: -len("0}")]


def numbered(boot: Boot, nameserver: str, events: Sequence[Event], first_seq: int, wall_step_ms: int) -> list[str]:
    """The numbered lines of events, in the order of the events."""
    origin = boot.origin
    head = '{"v":2,"seq":'
    middle = f'"nameserver":"{nameserver}","boot_id":"{boot.boot_id}",'
    return [
        f'{head}{seq},"ts_ms":{at // 1000 + wall_step_ms},"mono_ms":{(at - origin) / 1000},{middle}{rest}\n'
        for seq, (at, rest) in enumerate(events, first_seq)
    ]
