"""One run: a seed determines a cluster and its faults, and the checks observe it."""

import gc
import itertools
import logging
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from tests.simulation.checks import Checks
from tests.simulation.cluster import Cluster
from tests.simulation.faults import Fault, Injector, plan, removals, slow_readers
from tests.simulation.patches import simulated_surroundings
from tests.simulation.sizes import DEFAULTS, LARGE, Size, only_registrations, small
from tests.simulation.world import Violation, World

# One in this number of runs is large, and one in this number also has the default times.
_RUNS_PER_LARGE: Final = 50
_RUNS_PER_DEFAULTS: Final = 500
# One in this number of runs of removals is large; each of its schedules takes as long as ten small ones.
_REMOVALS_PER_LARGE: Final = 500
# Schedules of removals in one run. Building, starting and ending the processes takes as long as two small schedules.
SCHEDULES: Final = 20
# Time after a poll for a response that times out, and for another server's response.
_CALL_SECONDS: Final = 5.0
_LEAVE_SECONDS: Final = 30.0
_PASSES_IN_A_ROW: Final = 2
# The duration of a collection grows with the heap.
_RUNS_PER_COLLECTION: Final = 25
_RUNS: Final = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a run."""

    seed: int
    faults: tuple[Fault, ...]
    # Checksum of the timeline.
    checksum: int
    seconds: float
    invariant: str = ""
    message: str = ""
    lines: tuple[str, ...] = ()


def size_of(seed: int) -> Size:
    """The size of the run of a seed."""
    if seed % _RUNS_PER_LARGE:
        return small(World(seed).random("size"))
    return LARGE if seed % _RUNS_PER_DEFAULTS else replace(LARGE, times=DEFAULTS)


def planned(seed: int, size: Size) -> list[Fault]:
    """The planned faults of a seed."""
    world = World(seed)
    faults = [*plan(world.random("plan"), size), *slow_readers(world.random("slow readers"), size)]
    return sorted(faults, key=lambda fault: fault.at)


def simulate(
    seed: int, faults: Sequence[Fault] | None = None, size: Size | None = None, *, keeps_lines: bool = False
) -> Outcome:
    """Run a seed with its size and planned faults, or with these."""
    size = size or size_of(seed)
    return _simulate(seed, [planned(seed, size) if faults is None else faults], size, keeps_lines=keeps_lines)


def simulate_removals(seed: int, faults: Sequence[Fault] | None = None, *, keeps_lines: bool = False) -> Outcome:
    """Run a seed whose brokers return while they are being removed: all its schedules, or one with these faults."""
    world = World(seed)
    size = LARGE if seed % _REMOVALS_PER_LARGE == 0 else only_registrations(world.random("size"))
    chosen = world.random("removals")
    schedules = [removals(chosen, size) for _ in range(SCHEDULES)] if faults is None else [faults]
    return _simulate(seed, schedules, size, keeps_lines=keeps_lines)


# kind of faults -> runs a seed with them
PLANS: Final[dict[str, Callable[..., Outcome]]] = {"any": simulate, "removals": simulate_removals}


def _simulate(seed: int, schedules: Sequence[Sequence[Fault]], size: Size, *, keeps_lines: bool) -> Outcome:
    with _quiet(), tempfile.TemporaryDirectory(dir=_memory_directory()) as directory:
        world = World(seed, directory, keeps_lines=keeps_lines)
        with simulated_surroundings(world):
            return _outcome(world, Cluster.built(world, size, Path(directory)), schedules)


def _outcome(world: World, cluster: Cluster, schedules: Sequence[Sequence[Fault]]) -> Outcome:
    injector = Injector(cluster)
    try:
        invariant, message = _found(world, cluster, injector, schedules)
    finally:
        _clean_up(world)
    lines = tuple(world.lines or ())
    return Outcome(world.seed, tuple(injector.faults), world.checksum, world.now, invariant, message, lines)


def _found(world: World, cluster: Cluster, injector: Injector, schedules: Sequence[Sequence[Fault]]) -> tuple[str, str]:
    """The broken invariant of a run and a message, or two empty strings."""
    try:
        _run(world, cluster, injector, schedules)
    except Violation as violation:
        message = str(violation)
        world.note("violation", message)
        return violation.invariant, message
    return "", ""


def _run(world: World, cluster: Cluster, injector: Injector, schedules: Sequence[Sequence[Fault]]) -> None:
    times = cluster.times
    checks = Checks(cluster, injector.faults)
    chosen = world.random("start")
    for node in cluster.nodes:
        world.at(chosen.uniform(0.0, times.start), node.start)
    checks.begin()
    for schedule in schedules:
        _run_schedule(cluster, injector, checks, schedule)
    _run_until(cluster, world.now + times.poll + _CALL_SECONDS, checks.check_settled)
    injector.end()
    for node in cluster.nodes:
        world.at(world.now + chosen.uniform(0.0, times.start), node.stop)
    _run_until(cluster, world.now + _LEAVE_SECONDS, checks.check_gone)
    if world.violation is not None:
        raise world.violation


def _run_schedule(cluster: Cluster, injector: Injector, checks: Checks, faults: Sequence[Fault]) -> None:
    """Run from now on until these faults are over and every server knows the truth."""
    world = cluster.world
    scheduled = [replace(fault, at=world.now + fault.at) for fault in faults]
    for fault in scheduled:
        injector.schedule(fault)
    last = max((fault.until for fault in scheduled), default=world.now)
    world.run(last)
    while injector.ending and world.now < last + _LEAVE_SECONDS:
        world.run(world.now + cluster.times.look)
    _run_until(cluster, world.now + checks.settle_seconds(), checks.check_tables)


def _run_until(cluster: Cluster, latest: float, check: Callable[[], None]) -> None:
    """Run until a check passes twice in a row. Raises Violation if it still fails at the latest time."""
    world, passed = cluster.world, 0
    while passed < _PASSES_IN_A_ROW:
        world.run(world.now + cluster.times.look)
        check()
        found, world.violation = world.violation, None
        passed = passed + 1 if found is None else 0
        if found is not None and world.now >= latest:
            raise found


def _memory_directory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


@contextmanager
def _quiet() -> Iterator[None]:
    """Turn off logging and the garbage collector, which would run finalizers at moments that depend on no seed."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    gc.disable()
    try:
        yield
    finally:
        if next(_RUNS) % _RUNS_PER_COLLECTION == 0:
            collect_worlds()
        gc.enable()
        logging.disable(before)


def collect_worlds() -> None:
    """Collect the worlds of former runs without messages about their tasks."""
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        gc.collect()
    finally:
        sys.unraisablehook = hook


def _close(coroutine: Any) -> None:
    """Close a coroutine that may await something on its way out."""
    for _ in range(20):
        try:
            coroutine.close()
        except RuntimeError:
            continue
        except BaseException:  # noqa: BLE001 - errors of an ended process
            return
        return


def _clean_up(world: World) -> None:
    """End the tasks of killed processes without side effects."""
    world.is_over = True
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        for machine in world.machines.values():
            loops = [*machine.dead_loops, *([machine.loop] if machine.loop is not None else [])]
            for loop in loops:
                for task in loop.tasks:
                    task._log_destroy_pending = False  # type: ignore[attr-defined]
                    _close(task.get_coro())
                loop.close()
            machine.dead_loops.clear()
        for machine in world.machines.values():
            world.is_over = False
            if machine.disk is not None:
                machine.disk.close_all()
        world.forget()
    finally:
        sys.unraisablehook = hook
