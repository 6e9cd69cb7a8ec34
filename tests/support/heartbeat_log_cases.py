"""Random heartbeat logs of several servers, mostly about brokers that live and die, partly absurd.

A log of sixty boots is made of far more choices than hypothesis draws for one example: it draws the seed.
"""

import json
from random import Random
from typing import Any, Final

from tests.support.heartbeat_lines import MIDNIGHT_MS, HeartbeatLines, broker, member

Line = dict[str, Any]
Files = dict[str, list[str]]

# ties, gaps around the 10 ms that are no gap, around the expiries below, and whole microseconds
_STEPS: Final = (0, 0, 0.001, 5, 9.999, 10, 300, 990.5, 1_000, 1_000, 1_000, 1_100, 1_333.333, 2_000, 4_500)
_EXPIRIES: Final = (2_000, 2_000, 2_000, 3_500, None)
_CLIENTS: Final = ("k#1", "k#2")
_TOPICS: Final = ("t", "<u>")
_KINDS: Final = (
    *("beat",) * 10,
    *("burst",) * 3,
    *("scan",) * 5,
    *("evict",) * 4,
    *("route",) * 3,
    *("served",) * 4,
    *("late", "fenced", "pulls", "client_gone", "opened", "stop", "dropped", "some_new_event"),
)
_REASONS: Final = ("silent", "silent", "silent", "disconnected", "unregistered", "superseded")


def _brokers(rng: Random) -> list[Line]:
    """A few brokers; two may come from one address, and one may come without an agent or an expiry."""
    return [
        broker(
            rng.choice(["broker-a", "broker-b"]),
            rng.choice([0, 0, 1]),
            broker_addr=f"10.0.0.{rng.randint(1, 2)}:10911",
            agent_id=rng.choice([None, None, "agent-1", "agent-2"]),
            expiry_ms=rng.choice(_EXPIRIES),
        )
        for _ in range(rng.randint(1, 3))
    ]


def boot(rng: Random, name: str, nameserver: str, wall_ms: int) -> HeartbeatLines:
    """One boot of a server, or rarely of a client; its lines are made one after the other."""
    lines = HeartbeatLines(name, nameserver, wall_ms)
    if rng.randrange(10):
        lines.start(rng.choice([0, 0.25]), scan_ms=rng.choice([500, 1_000]), expiry_ms=2_000)
    if not rng.randrange(20):
        lines.add("isolated", 1, client="c", broker_name="broker-a", for_ms=1)
    known, at, scans = _brokers(rng), 1.0, 0
    for _ in range(rng.randint(0, 60)):
        at += rng.choice(_STEPS)
        kind = rng.choice(_KINDS)
        scans += kind == "scan"
        at = _tell(rng, lines, kind, at, scans, rng.choice(known))
    return lines


def _tell(rng: Random, lines: HeartbeatLines, kind: str, at: float, scans: int, of: Line) -> float:
    """Add lines of a kind; what happened under a lock is told after later things."""
    moment = round(max(0.0, at - rng.choice([0, 0, 0, 0, 2.5])), 3)
    match kind:
        case "beat":
            lines.beat(moment, of)
        case "burst":
            for _ in range(rng.randint(2, 14)):
                at += rng.choice([1_000, 1_000, 1_000.5, 950, 1_300])
                lines.beat(round(at, 3), of)
        case "evict":
            reason = rng.choice(_REASONS)
            scan = scans if reason == "silent" else None
            lines.evict(moment, of, reason, scan=scan, silent_ms=rng.choice([0, 1_500.5, 2_100]))
        case "fenced":
            lines.add("fenced", moment, **of, reason=rng.choice(_REASONS), scan=scans + rng.randint(0, 1))
        case _:
            _tell_of_topics(rng, lines, kind, moment, scans)
    return at


def _tell_of_topics(rng: Random, lines: HeartbeatLines, kind: str, moment: float, scans: int) -> None:
    topic, revision = rng.choice(_TOPICS), rng.randint(1, 4)
    match kind:
        case "route" | "served" | "pulls" if rng.randrange(2):
            _tell_version_2(rng, lines, kind, moment)
        case "route":
            names = rng.sample(["broker-a", "broker-b"], rng.randint(0, 2))
            lines.route(moment, revision, *(member(one, *rng.choice([(0,), (0, 1)])) for one in names), topic=topic)
        case "served":
            lines.served(moment, revision, client=rng.choice(_CLIENTS), topic=topic)
        case "pulls":
            lines.pulls(moment, revision, rng.randint(1, 9), topic=topic)
        case _:
            _tell_rest(rng, lines, kind, moment, scans)


def _tell_version_2(rng: Random, lines: HeartbeatLines, kind: str, moment: float) -> None:
    """One line of several topics; a topic stands in it once."""
    topics = rng.sample(_TOPICS, rng.randint(1, 2))
    revisions = [rng.randint(1, 6) for _ in topics]
    match kind:
        case "route":
            shares = [topics] if rng.randrange(2) else [[topic] for topic in topics]
            changes = [{"topics": share, **_change(rng)} for share in shares]
            lines.add("route", moment, v=2, revision=revisions[0], changes=changes)
        case "served":
            lines.add("served", moment, v=2, client=rng.choice(_CLIENTS), topics=topics, revisions=revisions)
        case _:
            counts = [rng.randint(1, 9) for _ in topics]
            lines.add("pulls", moment, v=2, topics=topics, revisions=revisions, counts=counts)


def _change(rng: Random) -> dict[str, Any]:
    names = ["broker-a", "broker-b"]
    new = [name for name in names if rng.randrange(2)]
    change: dict[str, Any] = {"set": [member(name, *rng.choice([(0,), (0, 1), (1,)])) for name in new]}
    if rng.randrange(2):
        return {**change, "whole": True}
    return {**change, "unset": [name for name in names if name not in new and rng.randrange(2)]}


def _tell_rest(rng: Random, lines: HeartbeatLines, kind: str, moment: float, scans: int) -> None:
    match kind:
        case "scan":
            lines.scan(moment, scans)
        case "client_gone":
            lines.gone(moment, rng.choice(_CLIENTS))
        case "late":
            lines.late(moment, rng.choice([400, 1_250.5, 0]))
        case "opened":
            lines.add("opened", moment, scan_interval_ms=700, broker_expiry_ms=2_000, late_ms=300, version="0.1.0")
        case "dropped":
            lines.add("dropped", moment, count=rng.randint(1, 3))
        case _:
            lines.add(kind, moment)


def log(seed: int, boots: int) -> Files:
    """Files of boots of three servers: with copies of lines, wall clocks that were set, and torn lines."""
    rng = Random(seed)
    files: Files = {}
    for number in range(boots):
        made = boot(rng, f"boot-{number:03}", f"ns-{number % 3}", MIDNIGHT_MS + 20_000 * (number // 3))
        lines = _disturbed(rng, made.lines)
        cut = rng.randint(0, len(lines))
        files[f"{made.boot}-1.jsonl"] = lines[:cut]
        # the second file begins with lines that are in the first one, too
        files[f"{made.boot}-2.jsonl"] = lines[max(0, cut - rng.choice([0, 0, 0, 3])) :]
    return files


def _disturbed(rng: Random, lines: list[str]) -> list[str]:
    if not lines:
        return lines
    disturbed = list(lines)
    place = rng.randrange(len(lines))
    match rng.randrange(6):
        case 0:
            disturbed[place] = disturbed[place][: len(disturbed[place]) // 2]
        case 1:
            moved = [json.loads(line) for line in disturbed[place:]]
            disturbed[place:] = [json.dumps({**line, "ts_ms": line["ts_ms"] + 3_600_000}) for line in moved]
        case 2:
            disturbed[place] = json.dumps({**json.loads(disturbed[place]), "v": 3, "unheard_of": [1, {"x": None}]})
        case 3:
            disturbed.insert(place, json.dumps({"v": 1, "seq": 1, "event": "heartbeat"}))
        case _:
            pass
    return disturbed
