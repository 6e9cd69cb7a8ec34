"""Pulls while the heartbeat log cannot be written."""

import tempfile
from functools import partial
from pathlib import Path

from benchmarks import loads
from benchmarks.build import program
from benchmarks.figures import Figure, Target, ratios, spelt_medians
from benchmarks.loads import Load
from benchmarks.rounds import Bench, Cores, Effort
from benchmarks.seeding import Wire, pulled_brokers, register
from benchmarks.servers import daemon
from tests.scoreboard.row import none_of
from tests.support.disk_faults import FaultyDisk


def stuck_log(rounds: int) -> list[Figure]:
    """Pulls, in turn with writes that are stuck and with those that are not."""
    bench = Bench(Effort(rounds, 2), Cores.ours(), program("load"), Path())
    with tempfile.TemporaryDirectory(prefix="namesrv-scoreboard-") as root:
        data = Path(root) / "data"
        disk = FaultyDisk(data, Path(root))
        with daemon(bench, "--data-dir", str(data), environ=disk.environ) as server, Wire(server) as wire:
            register(wire, pulled_brokers())

            def pulls(mode: str) -> Load:
                disk.turn(mode)
                return loads.run(bench, server)

            found = bench.in_turn("pulls", {mode: partial(pulls, mode) for mode in ("slow", "ok")})
            disk.turn("ok")
    late = [loads.p99s(found[mode]) for mode in ("slow", "ok")]
    failed = sum(load.failed for load in found["slow"])
    return [
        none_of("failed", "pulls that failed", failed, f"of {sum(load.answers for load in found['slow']):,}"),
        Figure(
            "p99",
            "p99 while every write is stuck / while none is",
            "times",
            ratios(*late),
            Target("<=", 1.2),
            spelt_medians("milliseconds", *late),
        ),
    ]
