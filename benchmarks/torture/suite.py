"""Torture: the same world and the same faults for our NameServer and for other registries (`make torture`)."""

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.harness.command import IMPOSSIBLE, Command
from benchmarks.harness.conditions import Conditions
from benchmarks.harness.figures import BenchError
from benchmarks.harness.rounds import Bench, raise_file_limit
from benchmarks.harness.table import Row, markdown, with_block
from benchmarks.torture.faults import FAULTS, Fault
from benchmarks.torture.load import EXPIRY_SECONDS
from benchmarks.torture.servers import PEERS, Peer
from benchmarks.torture.world import world
from tests.netns.network import why_not

# open files of this process: a herd of 2,000 clients, and all others
_FILES: Final = 2_500
# The wait after a fault, in expiries, until all tables are the truth; tables that need longer count as never true.
_PATIENCE: Final = 4
HEADINGS: Final = (
    *("fault", "server", "live brokers evicted (longest)", "dead ones served"),
    *("failed pulls", "wrong pulls", "of", "tables true after", "memory", "measured"),
)


@dataclass(frozen=True, slots=True)
class Cell:
    """What a fault did to a server's world."""

    # live brokers that a server removed, and the longest time for which one was missing
    evicted: int
    missing_seconds: float
    # as in `Pulls`
    dead_seconds: float
    pulls: int
    failed: int
    wrong: int
    # time from the end of the fault until all tables were the truth; None if the wait was over before
    true_seconds: float | None
    # largest resident memory of one server
    megabytes: float
    conditions: Mapping[str, Any]


# fault -> peer -> what the fault did
Cells = dict[str, dict[str, Cell]]


def main(arguments: Sequence[str]) -> int:
    """Torture the chosen servers with the chosen faults."""
    what = {name: fault.what for name, fault in FAULTS.items()}
    command = Command("torture", "Inflict the same faults on this NameServer and on other registries.", what)
    command.add_results()
    command.parser.add_argument("--peer", nargs="+", choices=PEERS, help="only these servers")
    options = command.parse(arguments)
    raise_file_limit(_FILES)
    if (reason := why_not()) is not None:
        raise BenchError(reason)
    cells, is_complete = _measured(options.only or FAULTS, options.peer or PEERS, options.json)
    print(table(cells))
    if options.write is not None:
        page = options.write.read_text(encoding="utf-8")
        options.write.write_text(replaced(page, cells), encoding="utf-8")
    return int(not is_complete)


def _measured(faults: Iterable[str], peers: Iterable[str], path: Path) -> tuple[Cells, bool]:
    """The cells of a file, in place of which those of these faults and peers are measured anew.

    Also return False if one of them could not be measured; peers that are not available do not count.
    """
    bench, cells, is_complete = Bench(), _read(path), True
    for name in peers:
        peer = PEERS[name]
        try:
            program = peer.fetch(bench)
        except BenchError as why:
            bench.progress(f"left out: {why}")
            continue
        for fault in (each for each in faults if name not in FAULTS[each].spared):
            bench.progress(f"{peer.label}: {FAULTS[fault].what}")
            try:
                cells.setdefault(fault, {})[name] = asyncio.run(_suffered(bench, peer, program, FAULTS[fault]))
            except IMPOSSIBLE as why:
                bench.progress(f"not measured: {why}")
                is_complete = False
            else:
                # Written after each cell, so that an interrupted run keeps the cells before.
                _write(path, cells)
    return cells, is_complete


async def _suffered(bench: Bench, peer: Peer, program: Path, fault: Fault) -> Cell:
    """What a fault does to a new world of one peer."""
    conditions = Conditions.now()
    async with world(bench, peer, program, has_small_disks=fault.has_small_disks) as made:
        await fault.inflict(made)
        true_seconds = await made.become_true(_PATIENCE * EXPIRY_SECONDS)
    return Cell(
        evicted=sum(probe.evicted for probe in made.probes),
        missing_seconds=max(probe.longest_missing for probe in made.probes),
        dead_seconds=made.pulls.dead_seconds,
        pulls=made.pulls.count,
        failed=made.pulls.failed,
        wrong=made.pulls.wrong,
        true_seconds=true_seconds,
        megabytes=made.fleet.peak_bytes / 1e6,
        conditions=conditions.members(),
    )


def _read(path: Path) -> Cells:
    if not path.exists():
        return {}
    cells = json.loads(path.read_text(encoding="utf-8"))
    return {fault: {peer: Cell(**members) for peer, members in peers.items()} for fault, peers in cells.items()}


def _write(path: Path, cells: Cells) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(cells, indent=1, default=asdict) + "\n", encoding="utf-8")


# -- the table --------------------------------------------------------------------------------------------------------


def table(cells: Mapping[str, Mapping[str, Cell]]) -> str:
    """A row for each cell; the best server of a fault stands first."""
    rows: list[Row] = [HEADINGS]
    for fault in (name for name in FAULTS if name in cells):
        what = f"{FAULTS[fault].what}: `{fault}`"
        for peer, cell in sorted(cells[fault].items(), key=lambda each: _harm(each[1])):
            rows.append((what, PEERS[peer].label, *_words(cell)))
            what = ""
    return markdown(rows, range(2, len(HEADINGS)))


def replaced(page: str, cells: Mapping[str, Mapping[str, Cell]]) -> str:
    """The page with the table of these cells.

    Raises:
        BenchError: the page has rows that the cells lack, as those of another machine.
    """
    text = with_block(page, table(cells))
    if (lost := page.count("\n|") - text.count("\n|")) > 0:
        raise BenchError(f"rows that the page would lose, as they were not measured here: {lost}")
    return text


def _harm(cell: Cell) -> tuple[Any, ...]:
    """Key that sorts cells: tables that stay wrong harm most, then evictions and wrong routes, then failed pulls."""
    late = cell.true_seconds is None
    return late, cell.evicted + cell.wrong, cell.failed, cell.dead_seconds, cell.true_seconds or 0.0, cell.megabytes


def _words(cell: Cell) -> Sequence[str]:
    return (
        f"{cell.evicted} ({cell.missing_seconds:.1f} s)" if cell.evicted else "0",
        f"{cell.dead_seconds:.1f} s",
        str(cell.failed),
        str(cell.wrong),
        f"{cell.pulls:,}",
        "never" if cell.true_seconds is None else f"{cell.true_seconds:.1f} s",
        f"{cell.megabytes:.0f} MB",
        cell.conditions["date"],
    )
