"""Pulls on two cores, which the load shares."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from benchmarks.figures import BenchError, Figure
from benchmarks.peers.contestants import OURS, Peers, fewer_rounds, started
from benchmarks.peers.work import figures, in_turn, warm_up
from benchmarks.rounds import Bench, Cores


def measure(bench: Bench, peers: Peers) -> list[Figure]:
    """All of them run, and count two processors; one of them is busy. Ours computes on one, and leaves the other."""
    others = peers.had(bench)
    with _on_both(bench) as bench_on_both, ExitStack() as stack:
        running = started(bench_on_both, stack, [OURS, *others])
        warm_up(bench, running, [OURS, *others])
        pulls = in_turn(fewer_rounds(bench), "pulls on two cores", running, lambda asked: asked.pull())
    return figures("two_cores", "pulls on 200 connections", pulls, others)


@contextmanager
def _on_both(bench: Bench) -> Iterator[Bench]:
    """Nobody is put anywhere, until the block ends.

    Raises:
        BenchError: there are no two cores.
    """
    server, load = bench.cores.server, bench.cores.load
    if server is None or load is None:
        raise BenchError("there is one core only")
    os.sched_setaffinity(0, {server, load})
    try:
        yield replace(bench, cores=Cores(None, None))
    finally:
        os.sched_setaffinity(0, {load})
