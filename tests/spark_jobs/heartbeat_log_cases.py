"""Random heartbeat logs of several servers: mostly plausible registration periods, partly absurd lines.

A log of sixty boots takes more choices than hypothesis draws for one example, so that hypothesis draws the seed.
"""

import json
from collections.abc import Callable
from random import Random
from typing import Any, Final

from tests.support.heartbeat_lines import MIDNIGHT_MS, HeartbeatLines, broker, member

Line = dict[str, Any]
Files = dict[str, list[str]]

# equal times, intervals around 10 ms (shorter ones do not count) and around the expiries below, whole microseconds
_STEPS: Final = (0, 0, 0.001, 5, 9.999, 10, 300, 990.5, 1_000, 1_000, 1_000, 1_100, 1_333.333, 2_000, 4_500)
_EXPIRIES: Final = (2_000, 2_000, 2_000, 3_500, None)
_CLIENTS: Final = ("k#1", "k#2")
_TOPICS: Final = ("t", "<u>")
_BROKERS: Final = ("broker-a", "broker-b")
_KINDS: Final = (
    *("heartbeat",) * 10,
    *("burst",) * 3,
    *("scan",) * 5,
    *("evict",) * 4,
    *("route",) * 3,
    *("served",) * 4,
    *("late", "fenced", "pulls", "client_gone", "opened", "stop", "dropped", "some_new_event"),
)
_REASONS: Final = ("silent", "silent", "silent", "disconnected", "unregistered", "superseded")


def log(seed: int, boots: int) -> Files:
    """Files of three servers' boots, with repeated lines, wall clocks that were set, and incomplete lines."""
    rng = Random(seed)
    files: Files = {}
    for number in range(boots):
        name, wall_ms = f"boot-{number:03}", MIDNIGHT_MS + 20_000 * (number // 3)
        lines = _disturbed(rng, _boot(rng, name, f"ns-{number % 3}", wall_ms).lines)
        cut = rng.randint(0, len(lines))
        files[f"{name}-1.jsonl"] = lines[:cut]
        # the second file may begin with lines of the first one
        files[f"{name}-2.jsonl"] = lines[max(0, cut - rng.choice([0, 0, 0, 3])) :]
    return files


def _disturbed(rng: Random, lines: list[str]) -> list[str]:
    if not lines:
        return lines
    place = rng.randrange(len(lines))
    before, line, after = lines[:place], lines[place], lines[place + 1 :]
    match rng.randrange(6):
        case 0:
            return [*before, line[: len(line) // 2], *after]
        case 1:
            moved = [json.loads(each) for each in (line, *after)]
            return [*before, *(json.dumps({**each, "ts_ms": each["ts_ms"] + 3_600_000}) for each in moved)]
        case 2:
            return [*before, json.dumps({**json.loads(line), "v": 3, "unknown_field": [1, {"x": None}]}), *after]
        case 3:
            return [*before, json.dumps({"v": 1, "seq": 1, "event": "heartbeat"}), line, *after]
        case _:
            return lines


def _boot(rng: Random, name: str, nameserver: str, wall_ms: int) -> HeartbeatLines:
    """The lines of one server boot, or rarely of a client."""
    lines = HeartbeatLines(name, nameserver, wall_ms)
    if rng.randrange(10):
        lines.start(rng.choice([0, 0.25]), scan_ms=rng.choice([500, 1_000]), expiry_ms=2_000)
    if not rng.randrange(20):
        lines.add("isolated", 1, client="c", broker_name="broker-a", for_ms=1)
    # two brokers may share an address, and a broker may lack an agent id or an expiry
    known = [
        broker(
            rng.choice(_BROKERS),
            rng.choice([0, 0, 1]),
            broker_addr=f"10.0.0.{rng.choice([1, 2, 2, rng.randint(3, 6)])}:10911",
            agent_id=rng.choice([None, None, "agent-1", "agent-2"]),
            expiry_ms=rng.choice(_EXPIRIES),
        )
        for _ in range(rng.choice([1, 2, 3, 6]))
    ]
    at, scans = 1.0, 0
    for _ in range(rng.randint(0, 60)):
        at += rng.choice(_STEPS)
        kind = rng.choice(_KINDS)
        scans += kind == "scan"
        if kind == "burst":
            for _ in range(rng.randint(2, 14)):
                at += rng.choice([1_000, 1_000, 1_000.5, 950, 1_300])
                lines.heartbeat(round(at, 3), rng.choice(known), silent_ms=_silent_ms(at))
        else:
            # events recorded under a lock may be logged after later ones
            moment = round(max(0.0, at - rng.choice([0, 0, 0, 0, 2.5])), 3)
            if kind in ("route", "served", "pulls") and rng.randrange(2):
                lines.add(kind, moment, v=2, **_of_several_topics(rng, kind))
            else:
                _add_line(rng, lines, kind, moment, scans, rng.choice(known))
    return lines


def _add_line(rng: Random, lines: HeartbeatLines, kind: str, at: float, scans: int, of: Line) -> None:
    topic, revision, client = rng.choice(_TOPICS), rng.randint(1, 4), rng.choice(_CLIENTS)
    reason, names = rng.choice(_REASONS), rng.sample(_BROKERS, rng.randint(0, 2))
    evicted = {"scan": scans if reason == "silent" else None, "silent_ms": rng.choice([0, 1_500.5, 2_100])}
    members = [member(name, *rng.choice([(0,), (0, 1)])) for name in names]
    settings = {"scan_interval_ms": 700, "broker_expiry_ms": 2_000, "late_ms": 300, "version": "0.1.0"}
    writers: dict[str, Callable[[], object]] = {
        "heartbeat": lambda: lines.heartbeat(at, of, silent_ms=_silent_ms(at)),
        "evict": lambda: lines.evict(at, of, reason, **evicted),
        "fenced": lambda: lines.add("fenced", at, **of, reason=reason, scan=scans + rng.randint(0, 1)),
        "route": lambda: lines.route(at, revision, *members, topic=topic),
        "served": lambda: lines.served(at, revision, client=client, topic=topic),
        "pulls": lambda: lines.pulls(at, revision, rng.randint(1, 9), topic=topic),
        "scan": lambda: lines.scan(at, scans),
        "client_gone": lambda: lines.gone(at, client),
        "late": lambda: lines.late(at, rng.choice([400, 1_250.5, 0])),
        "opened": lambda: lines.lost(rng.choice([0, 3])).add("opened", at, **settings),
        "dropped": lambda: lines.add("dropped", at, count=rng.randint(1, 3)),
    }
    writers.get(kind, lambda: lines.add(kind, at))()


def _silent_ms(at: float) -> int:
    """0, 1 or 2 by the time, so that the sequence of random choices stays; 0 begins a registration period."""
    return int(at) % 3


def _of_several_topics(rng: Random, kind: str) -> Line:
    """The fields of one version 2 line; each topic occurs once."""
    topics = rng.sample(_TOPICS, rng.randint(1, 2))
    revisions = [rng.randint(1, 6) for _ in topics]
    if kind == "route":
        shares = [topics] if rng.randrange(2) else [[topic] for topic in topics]
        return {"revision": revisions[0], "changes": [{"topics": share, **_change(rng)} for share in shares]}
    if kind == "served":
        return {"client": rng.choice(_CLIENTS), "topics": topics, "revisions": revisions}
    return {"topics": topics, "revisions": revisions, "counts": [rng.randint(1, 9) for _ in topics]}


def _change(rng: Random) -> Line:
    new = [name for name in _BROKERS if rng.randrange(2)]
    change: Line = {"set": [member(name, *rng.choice([(0,), (0, 1), (1,)])) for name in new]}
    if rng.randrange(2):
        return {**change, "whole": True}
    return {**change, "unset": [name for name in _BROKERS if name not in new and rng.randrange(2)]}
