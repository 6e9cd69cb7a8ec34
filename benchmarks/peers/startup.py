"""Time until the port answers, and memory then."""

from functools import partial

from benchmarks.figures import Figure
from benchmarks.peers.contestants import OURS, Contestant, Peers, against, fewer_rounds
from benchmarks.rounds import Bench


def measure(bench: Bench, peers: Peers) -> list[Figure]:
    """One start of each in each round; only one runs at a time."""
    others = peers.had(bench)
    starts = {contestant.key: partial(_start, bench, contestant) for contestant in (OURS, *others)}
    found = fewer_rounds(bench).in_turn("starts", starts)
    seconds, megabytes = (
        {key: [values[which] for values in rounds] for key, rounds in found.items()} for which in (0, 1)
    )
    return [
        *against("startup.answering", "from exec to the first answer", "seconds", seconds, others),
        *against("startup.resident", "resident then", "megabytes", megabytes, others),
    ]


def _start(bench: Bench, contestant: Contestant) -> tuple[float, float]:
    with contestant.start(bench) as asked:
        return asked.server.listening_after_seconds, asked.server.resident_bytes() / 1e6
