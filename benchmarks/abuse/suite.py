"""Attacks on a server on loopback, one after another, each on a fresh server: what they cost other peers.

The exit code is 1 when a target is missed, 2 when something could not be measured.
"""

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Final

from benchmarks.abuse.attacks import ATTACKS
from benchmarks.abuse.scenario import FULL, SHORT, run
from benchmarks.harness.command import Command, Found, judged, measure_and_report
from benchmarks.harness.figures import Figure
from benchmarks.harness.rounds import Bench, Cores, raise_file_limit
from benchmarks.harness.table import Sections

# Figures of each attack in the table; others are shown only if they miss their bound.
_SHOWN: Final = frozenset({"sent", "cpu", "memory", "tables", "longest", "p99", "refused"})


def main(arguments: Sequence[str]) -> int:
    """Attack a server."""
    command = Command("abuse", "Attack a NameServer on loopback.", {name: each.what for name, each in ATTACKS.items()})
    command.add_results()
    command.parser.add_argument(
        "--seconds", type=float, metavar="S", help="duration of an attack; at least 5 to see a dead broker leave"
    )
    command.parser.add_argument("--short", action="store_true", help="the most important attacks, for two seconds each")
    options = command.parse(arguments)
    durations = SHORT if options.short else FULL
    if options.seconds is not None:
        durations = dataclasses.replace(durations, attack_seconds=options.seconds)
    subjects = {name: partial(run, name=name, attack=attack, durations=durations) for name, attack in ATTACKS.items()}
    options.only = options.only or [name for name, attack in ATTACKS.items() if attack.is_short or not options.short]
    figures, is_complete = measure_and_report(unpinned_bench(), subjects, options, _sections)
    return judged(figures, is_complete=is_complete)


def _sections(found: Found) -> Sections:
    return {"Attacks": [figure for figures in found.values() for figure in figures if _is_shown(figure)]}


def _is_shown(figure: Figure) -> bool:
    return figure.name.rpartition(".")[2] in _SHOWN or figure.verdict == "missed"


def unpinned_bench() -> Bench:
    """A bench for attacks: only the server is pinned, to a core of its own."""
    raise_file_limit()
    return Bench(cores=Cores.ours())
