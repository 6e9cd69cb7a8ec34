"""One run: a seed makes a cluster and a plan of faults, and the checks look on."""

import gc
import logging
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.simulation.checks import Checks
from tests.simulation.cluster import DEFAULTS, SHORT, Cluster, Times
from tests.simulation.faults import Fault, Injector, plan, slow_readers
from tests.simulation.patches import simulated_surroundings
from tests.simulation.world import Violation, World

_MOST_FAULTS: Final = 8
# one run of so many has the times that everybody has who sets nothing
_RUNS_PER_DEFAULTS: Final = 10
# after a poll: an answer that does not come, and another server's
_CALL_SECONDS: Final = 5.0
_LEAVE_SECONDS: Final = 30.0
_LOOK_SECONDS: Final = 0.5
_TWICE: Final = 2


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a run."""

    seed: int
    faults: tuple[Fault, ...]
    # of the time line
    checksum: int
    seconds: float
    invariant: str = ""
    message: str = ""
    lines: tuple[str, ...] = ()


def times_of(seed: int) -> Times:
    """The times of a seed's run."""
    return SHORT if seed % _RUNS_PER_DEFAULTS else DEFAULTS


def planned(seed: int) -> list[Fault]:
    """The faults of a seed."""
    world, pace = World(seed), times_of(seed).pace
    faults = plan(world.random("plan"), pace=pace, most=_MOST_FAULTS)
    return sorted([*faults, *slow_readers(world.random("slow readers"), pace=pace)], key=lambda fault: fault.at)


def simulate(seed: int, faults: Sequence[Fault] | None = None, *, keeps_lines: bool = False) -> Outcome:
    """Run a seed, with its own faults or with these."""
    faults = planned(seed) if faults is None else faults
    with _quiet(), tempfile.TemporaryDirectory(dir=_quick_directory()) as directory:
        world = World(seed, directory, keeps_lines=keeps_lines)
        with simulated_surroundings(world):
            return _outcome(world, Path(directory), faults)


def _outcome(world: World, directory: Path, faults: Sequence[Fault]) -> Outcome:
    try:
        invariant, message = _found(world, directory, faults)
    finally:
        _bury(world)
    lines = tuple(world.lines or ())
    return Outcome(world.seed, tuple(faults), world.checksum, world.now, invariant, message, lines)


def _found(world: World, directory: Path, faults: Sequence[Fault]) -> tuple[str, str]:
    """The invariant that a run broke, and how; nothing, and nothing."""
    try:
        _run(world, directory, faults)
    except Violation as violation:
        message = str(violation)
        world.note("violation", message)
        return violation.invariant, message
    return "", ""


def _run(world: World, directory: Path, faults: Sequence[Fault]) -> None:
    cluster = Cluster.built(world, times_of(world.seed), directory, world.random("cluster"))
    checks = Checks(cluster, faults)
    chosen, injector = world.random("start"), Injector(cluster)
    for node in cluster.nodes:
        world.at(chosen.uniform(0.0, 2.0), node.start)
    for fault in faults:
        injector.schedule(fault)
    checks.begin()
    last = max((fault.until for fault in faults), default=0.0)
    world.run(last)
    _run_until(world, last + checks.settle_seconds(), checks.check_tables)
    _run_until(world, world.now + cluster.times.poll + _CALL_SECONDS, checks.check_settled)
    for node in cluster.nodes:
        world.at(world.now + chosen.uniform(0.0, 2.0), node.stop)
    _run_until(world, world.now + _LEAVE_SECONDS, checks.check_gone)
    checks.check_report()
    if world.violation is not None:
        raise world.violation


def _run_until(world: World, latest: float, check: Callable[[], None]) -> None:
    """Let time pass until a check passes twice in a row. Raises Violation at the latest moment at which it has to."""
    passed = 0
    while passed < _TWICE:
        world.run(world.now + _LOOK_SECONDS)
        check()
        found, world.violation = world.violation, None
        passed = passed + 1 if found is None else 0
        if found is not None and world.now >= latest:
            raise found


def _quick_directory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


@contextmanager
def _quiet() -> Iterator[None]:
    """No log, and no garbage collector: it would run finalizers at moments that no seed knows."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    gc.disable()
    # what was there before is not looked at when the run's own is collected
    gc.freeze()
    try:
        yield
    finally:
        # the world itself, which held all that was collected before
        gc.collect()
        gc.unfreeze()
        gc.enable()
        logging.disable(before)


def _close(coroutine: Any) -> None:
    """Close a coroutine that may await something on its way out."""
    for _ in range(20):
        try:
            coroutine.close()
        except RuntimeError:
            continue
        except BaseException:  # noqa: BLE001 - whatever a dead process says
            return
        return


def _bury(world: World) -> None:
    """End what the killed processes were at, without a word of it."""
    world.is_over = True
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        for machine in world.machines.values():
            loops = [*machine.graves, *([machine.loop] if machine.loop is not None else [])]
            for loop in loops:
                for task in loop.tasks:
                    task._log_destroy_pending = False  # type: ignore[attr-defined]
                    _close(task.get_coro())
                loop.close()
            machine.graves.clear()
        for machine in world.machines.values():
            world.is_over = False
            if machine.disk is not None:
                machine.disk.close_all()
        world.forget()
        gc.collect()
    finally:
        sys.unraisablehook = hook
