"""Cost of hostile peers to the others: attacks on a server, on loopback, one after another, each on a fresh one.

The exit code is 1 when a target is missed, 2 when something could not be measured.
"""

import dataclasses
from collections.abc import Sequence

from benchmarks.abuse import report
from benchmarks.abuse.attacks import ATTACKS
from benchmarks.abuse.scenario import FULL, SHORT, Result, run
from benchmarks.harness.command import Command, save, write_block
from benchmarks.harness.conditions import Conditions, sentence
from benchmarks.harness.figures import BenchError
from benchmarks.harness.rounds import Bench, Cores, raise_file_limit


def main(arguments: Sequence[str]) -> int:
    """Attack a server."""
    command = Command("abuse", "Attack a NameServer on loopback.", {name: each.what for name, each in ATTACKS.items()})
    command.parser.add_argument(
        "--seconds", type=float, metavar="S", help="duration of an attack; at least 5 to see a dead broker leave"
    )
    command.parser.add_argument("--short", action="store_true", help="the most important attacks, for two seconds each")
    options = command.parse(arguments)
    durations = SHORT if options.short else FULL
    if options.seconds is not None:
        durations = dataclasses.replace(durations, attack_seconds=options.seconds)
    bench, conditions = unpinned_bench(), Conditions.now()
    named = options.subjects or [name for name, attack in ATTACKS.items() if attack.is_short or not options.short]
    results: list[Result] = []
    for name in named:
        try:
            results.append(run(bench, name, ATTACKS[name], durations))
        except (BenchError, OSError) as error:
            bench.progress(f"{name} cannot be measured: {error}")
        else:
            bench.progress(f"{name}: {' '.join(report.missed(results[-1])) or 'within its share'}")
    members = conditions.members()
    unmeasured = sorted(set(named) - {result.name for result in results}, key=named.index)
    summary = report.summary(results, unmeasured)
    if results:
        print(f"{report.text(results)}\n\n{sentence(members)}\n{summary}")
    attacks = [{**dataclasses.asdict(result), "missed": report.missed(result)} for result in results]
    save(options.json, {"conditions": members, "attacks": attacks})
    if options.write is not None and results:
        write_block(options.write, f"{sentence(members)}\n\n{report.markdown(results)}\n\n{summary}")
    if unmeasured:
        return 2
    return int(any(map(report.missed, results)))


def unpinned_bench() -> Bench:
    """The attacker and the well-behaved peers share a core; the server has one of its own."""
    raise_file_limit()
    return Bench(cores=Cores.ours())
