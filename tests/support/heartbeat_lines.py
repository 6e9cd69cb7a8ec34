"""Heartbeat logs written by hand, one call a line."""

import json
from typing import Any, Final, Self

# 2026-03-01 00:00:00 UTC
MIDNIGHT_MS: Final = 1_772_323_200_000

Broker = dict[str, Any]


def broker(name: str = "broker-a", broker_id: int = 0, **fields: Any) -> Broker:
    """The fields of a broker in its log lines; by default a native agent at an address of its own."""
    return {
        "cluster": "c1",
        "broker_name": name,
        "broker_id": broker_id,
        "broker_addr": f"10.0.0.1:{name}-{broker_id}",
        "data_version": "0/1/1",
        "expiry_ms": 120_000,
        "topics": 1,
        "agent_id": f"agent-of-{name}-{broker_id}",
        **fields,
    }


def member(name: str = "broker-a", *ids: int) -> dict[str, Any]:
    """A broker as it appears in a route; only its master when no ids are given."""
    return {"name": name, "master": not ids or 0 in ids, "ids": list(ids or (0,))}


class HeartbeatLines:
    """The lines of one boot; `at` is `mono_ms`, and the wall clock is 2026-03-01 plus `at`."""

    def __init__(self, boot: str = "boot-1", nameserver: str = "ns-1", wall_ms: int = MIDNIGHT_MS) -> None:
        self.boot = boot
        self.nameserver = nameserver
        self.wall_ms = wall_ms
        self.lines: list[str] = []
        self._seq = 0

    def add(self, event: str, at: float, **fields: Any) -> Self:
        """Add a line; fields given here replace the default ones."""
        self._seq += 1
        line = {
            "v": 1,
            "seq": self._seq,
            "ts_ms": self.wall_ms + round(at),
            "mono_ms": at,
            "nameserver": self.nameserver,
            "boot_id": self.boot,
            "event": event,
            **fields,
        }
        self.lines.append(json.dumps(line))
        return self

    def start(self, at: float = 0, *, scan_ms: int = 5_000, expiry_ms: int = 120_000) -> Self:
        settings = {"scan_interval_ms": scan_ms, "broker_expiry_ms": expiry_ms, "evict_on_disconnect": True}
        return self.add("start", at, **settings, version="0.1.0")

    def lost(self, count: int) -> Self:
        """Skip the numbers of lines that are missing from the log."""
        self._seq += count
        return self

    def heartbeat(self, at: float, of: Broker | None = None, **fields: Any) -> Self:
        return self.add("heartbeat", at, **{**(of or broker()), "kind": "touch", "silent_ms": 0, **fields})

    def heartbeats(self, *times: float, of: Broker | None = None, **fields: Any) -> Self:
        for at in times:
            self.heartbeat(at, of, **fields)
        return self

    def evict(self, at: float, of: Broker | None = None, reason: str = "silent", **fields: Any) -> Self:
        return self.add(
            "evict",
            at,
            **{**(of or broker()), "reason": reason, "silent_ms": 0, "last_seq": None, "scan": None, **fields},
        )

    def scan(self, at: float, number: int) -> Self:
        return self.add("scan", at, scan=number, brokers=1)

    def late(self, at: float, late_ms: float) -> Self:
        """Add a line for a stalled server."""
        return self.add("late", at, late_ms=late_ms)

    def route(self, at: float, revision: int, *members: dict[str, Any], topic: str = "t") -> Self:
        return self.add("route", at, topic=topic, revision=revision, brokers=list(members))

    def served(self, at: float, revision: int, *, client: str = "k#1", topic: str = "t") -> Self:
        return self.add("served", at, client=client, topic=topic, revision=revision)

    def gone(self, at: float, client: str = "k#1") -> Self:
        return self.add("client_gone", at, client=client)

    def pulls(self, at: float, revision: int, count: int, *, topic: str = "t") -> Self:
        return self.add("pulls", at, topic=topic, revision=revision, count=count)


def files_of(*boots: HeartbeatLines) -> dict[str, list[str]]:
    """One file per boot."""
    return {f"{lines.boot}.jsonl": lines.lines for lines in boots}
