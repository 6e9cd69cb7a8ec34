"""Cost of hostile peers to the others: `python -m benchmarks.abuse` (or `make abuse`) attacks a server and reports it.

On loopback, one attack after another, each against a fresh server. The exit code is 1 when a target is missed, 2 when
something could not be measured.
"""

import argparse
import dataclasses
import json
import resource
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.abuse import table
from benchmarks.abuse.attacks import ATTACKS
from benchmarks.abuse.trial import FULL, SHORT, Result, run
from benchmarks.conditions import Conditions
from benchmarks.figures import BenchError
from benchmarks.report import listing, with_block
from benchmarks.rounds import QUICK, Bench, Cores
from benchmarks.servers import end_in_order


def main(arguments: Sequence[str] | None = None) -> int:
    """Attack, print, and write where the options say."""
    options = _options().parse_args(arguments)
    if options.list:
        print(listing({name: attack.what for name, attack in ATTACKS.items()}))
        return 0
    end_in_order()
    bench = quiet_bench()
    conditions = Conditions.now(bench)
    results, failed = _results(bench, options)
    conditions = conditions.ended()
    print(f"{table.text(results)}\n\n{conditions}\n{table.summary(results)}")
    if options.json is not None:
        members = {"conditions": conditions.members(), "attacks": [_members(result) for result in results]}
        options.json.write_text(json.dumps(members, indent=2) + "\n", encoding="utf-8")
    if options.write is not None and not failed:
        page = options.write.read_text(encoding="utf-8")
        block = f"{conditions}\n\n{table.markdown(results)}\n\n{table.summary(results)}."
        options.write.write_text(with_block(page, block), encoding="utf-8")
    return 2 if failed else int(any(map(table.missed, results)))


def quiet_bench() -> Bench:
    """Ours: no load of C programs, and as many files as there are connections."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return Bench(QUICK, Cores.ours(), Path(), Path())


def _results(bench: Bench, options: argparse.Namespace) -> tuple[list[Result], bool]:
    names = _named(options.only) or [name for name, attack in ATTACKS.items() if attack.is_short or not options.short]
    pace = SHORT if options.short else FULL
    if options.seconds is not None:
        pace = dataclasses.replace(pace, attack_seconds=options.seconds)
    results, failed = [], False
    for name in names:
        try:
            result = run(bench, name, ATTACKS[name], pace)
        except (BenchError, OSError) as error:
            bench.progress(f"{name} cannot be measured: {error}")
            failed = True
        else:
            results.append(result)
            bench.progress(f"{name}: {' '.join(table.missed(result)) or 'within its share'}")
    return results, failed


def _family(word: str) -> list[str]:
    """The attack of this name, or all whose names begin with it."""
    found = [word] if word in ATTACKS else [name for name in ATTACKS if name.startswith(f"{word}-")]
    if not found:
        raise argparse.ArgumentTypeError(f"unknown attack {word!r}; --list names all")
    return found


def _named(families: Sequence[list[str]]) -> list[str]:
    # each once, though families may overlap
    return list(dict.fromkeys(name for family in families for name in family))


def _members(result: Result) -> dict[str, object]:
    return {**dataclasses.asdict(result), "missed": table.missed(result)}


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.abuse", description="Attack a NameServer on loopback.")
    parser.add_argument(
        "--only",
        nargs="+",
        type=_family,
        default=(),
        metavar="NAME",
        help="these attacks (see --list) or families, such as oneway",
    )
    parser.add_argument(
        "--seconds", type=float, metavar="S", help="duration of an attack; at least 5 to see a dead broker leave"
    )
    parser.add_argument("--short", action="store_true", help="the most important attacks, each for a few seconds")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure")
    parser.add_argument("--write", type=Path, metavar="FILE", help="replace the marked block of a Markdown file")
    parser.add_argument("--list", action="store_true", help="list the attacks and end")
    return parser


if __name__ == "__main__":
    sys.exit(main())
