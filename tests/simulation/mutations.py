"""Bugs that are planted into our code one at a time, and which the simulation has to find.

A mutation replaces one text of one module while it is imported in a process of its own; no file changes.
`python -m tests.simulation.mutations --write docs/simulation.md` tries all mutations.
"""

import argparse
import importlib.machinery
import importlib.util
import json
import multiprocessing
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final

# Imported here once instead of in each process, unlike our own modules.
import msgspec  # noqa: F401
import pydantic  # noqa: F401

from tests.simulation.hashes import fix_hashes

MAX_SEEDS: Final = 1_000
_BEGIN, _END = "<!-- planted bugs -->", "<!-- end of planted bugs -->"


@dataclass(frozen=True, slots=True)
class Mutation:
    """A bug: its description, its module, and the source text that it replaces."""

    name: str
    module: str
    old: str
    new: str


MUTATIONS: Final = (
    Mutation(
        "a broker is silent after a quarter of its expiry",
        "namesrv.routeinfo.tables.records",
        "return self.last_update + self.expiry_seconds",
        "return self.last_update + self.expiry_seconds / 4",
    ),
    Mutation(
        "a broker may be silent for 5 s longer",
        "namesrv.routeinfo.eviction",
        "(ends := live.expires_at()) < now:",
        "(ends := live.expires_at()) + 5 < now:",
    ),
    Mutation(
        "liveness runs on the wall clock",
        "namesrv.server.build",
        "LivenessClock(clock.monotonic,",
        "LivenessClock(clock.wall,",
    ),
    Mutation(
        "an unregistration is not fenced",
        "namesrv.routeinfo.manager",
        "            if is_stale:\n                section.effects.append(Fenced",
        "            if False:\n                section.effects.append(Fenced",
    ),
    Mutation(
        "a key that could not be written is acknowledged",
        "namesrv.kv",
        'raise KVWriteError(error.errno, f"key-value configuration not written: {error.strerror}") from error',
        "size = 0",
    ),
    Mutation(
        "two changes of keys are written concurrently",
        "namesrv.kv",
        "        async with self._writing:\n            table = self._tables.get(namespace, {})\n",
        "        if True:\n            table = self._tables.get(namespace, {})\n",
    ),
    Mutation(
        "an agent closes its old connection first",
        "namesrv_broker_agent.link.connections",
        "        self._former, self._client = former, client\n",
        "        self._former, self._client = former, client\n        await self.close_earlier()\n",
    ),
    Mutation(
        "every second counts as lateness",
        "namesrv.routeinfo.tables.liveness",
        "return max(0.0, lateness_seconds - busy_seconds)",
        "return 0.3",
    ),
    Mutation(
        "scans stop after the tenth",
        "namesrv.server.housekeeping",
        "        if now + self._process_stops.tick_seconds / 2 >= self._next_scan:",
        "        if now + self._process_stops.tick_seconds / 2 >= self._next_scan and namesrv.manager.scans < 10:",
    ),
    Mutation(
        "a boot id is reused",
        "namesrv.server.build",
        "boot_id = secrets.token_hex(8)",
        "boot_id = settings.nameserver_name.encode().hex()",
    ),
    Mutation(
        "a changed key is acknowledged before it is synced",
        "namesrv_runtime.durable_file",
        "            rest = rest[os.write(file, rest) :]\n        os.fsync(file)",
        "            rest = rest[os.write(file, rest) :]",
    ),
    Mutation(
        "a new name is not synced",
        "namesrv_runtime.durable_file",
        "        yield directory\n        try:\n            os.fsync(directory)",
        "        yield directory\n        try:\n            pass",
    ),
    Mutation(
        "a file is written in place",
        "namesrv_runtime.durable_file",
        "    with _synced_directory(path.parent) as directory:\n        temporary",
        "    if path.exists():\n        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)\n"
        "        _write_and_close(file, data, like)\n        return\n"
        "    with _synced_directory(path.parent) as directory:\n        temporary",
    ),
    Mutation(
        "a watch misses the change right after its revision",
        "namesrv.routeinfo.tables.revisions",
        "return [topic for topic in topics if last(topic) > since]",
        "return [topic for topic in topics if last(topic) > since + 1]",
    ),
    Mutation(
        "a watch repeats the last change",
        "namesrv.routeinfo.tables.revisions",
        "return [topic for topic in topics if last(topic) > since]",
        "return [topic for topic in topics if last(topic) >= since]",
    ),
    Mutation(
        "cached responses are kept when routes change",
        "namesrv.routeinfo.tables.rows",
        "return NextRows(lambda row, _: None if row is None else TopicRow(row.queues))",
        "return NextRows(lambda row, _: row)",
    ),
    Mutation(
        "a client accepts the routes of a server that is not ready",
        "namesrv_client.routes.cache",
        "    if response.is_complete or (boot_id == response.boot_id and is_unbroken):\n        return True",
        "    return True",
    ),
    Mutation(
        "a client skips changes of topics that a response did not cover",
        "namesrv_client.routes.sync_point",
        "self.revision = response.revision if covers_all else min(self.revision, response.revision)",
        "self.revision = response.revision",
    ),
    Mutation(
        "a client sends its revision to another boot",
        "namesrv_client.routes.sync_point",
        "(known if boot_id == self.boot_id and topic in self.topics else others).append(topic)",
        "(known if topic in self.topics else others).append(topic)",
    ),
    Mutation(
        "a client drops a route when a server does not know the topic",
        "namesrv_client.routes.cache",
        "            self.to_request_again.discard(topic)\n            if data is not None:",
        "            self.to_request_again.discard(topic)\n            if data is None:\n"
        "                self.forget(topic)\n                continue\n            if data is not None:",
    ),
    Mutation(
        "a client leaves connections open",
        "namesrv_client.client",
        "        await self._session.close()",
        "        pass",
    ),
    Mutation(
        "a slow reader is kept",
        "namesrv.net.protocol",
        "        if self.deadlines.write_deadline < now:\n",
        "        if self.deadlines.write_deadline < 0:\n",
    ),
    Mutation(
        "an agent leaves its old connection open",
        "namesrv_broker_agent.link.connections",
        "            await _shut_down(client)\n",
        "            pass\n",
    ),
    Mutation(
        "an agent stops trying after failures",
        "namesrv_broker_agent.link.link",
        "            await self._clock.sleep(self._retries.pause_seconds())\n",
        "            if self.monotonic_state.counts.failures > 3:\n                return\n"
        "            await self._clock.sleep(self._retries.pause_seconds())\n",
    ),
)


@dataclass(frozen=True, slots=True)
class Found:
    """A planted bug with the seed that found it and the invariant that it broke, if any."""

    mutation: Mutation
    seed: int | None
    invariant: str


class _Loader(importlib.machinery.SourceFileLoader):
    """Loads a module with one text of its source replaced."""

    def __init__(self, mutation: Mutation, path: str) -> None:
        super().__init__(mutation.module, path)
        self._mutation = mutation

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        source = Path(path).read_text(encoding="utf-8")
        assert source.count(self._mutation.old) == 1, f"{self._mutation.old!r} is not once in {path}"
        code: CodeType = compile(source.replace(self._mutation.old, self._mutation.new), path, "exec")
        return code


class _Finder:
    """Finds the mutated module instead of the real one."""

    def __init__(self, mutation: Mutation) -> None:
        self._mutation = mutation

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        if name != self._mutation.module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        assert spec is not None
        assert spec.origin is not None
        return importlib.util.spec_from_loader(name, _Loader(self._mutation, spec.origin))


def _hunt(plan: str, task: tuple[int, list[int]]) -> Found:
    """Plant a bug into this process, which has not imported our code yet, and try some seeds."""
    number, seeds = task
    mutation = MUTATIONS[number]
    sys.meta_path.insert(0, _Finder(mutation))
    from tests.simulation.simulation import PLANS  # noqa: PLC0415 - only now: it imports what is mutated

    for seed in seeds:
        outcome = PLANS[plan](seed)
        if outcome.invariant:
            return Found(mutation, seed, outcome.invariant)
    return Found(mutation, None, "")


def hunted(tasks: Sequence[tuple[int, list[int]]], plan: str) -> Iterator[Found]:
    """Results of hunts (number of a mutation, its seeds in order), each in a process of its own."""
    with multiprocessing.get_context("fork").Pool(os.cpu_count(), maxtasksperchild=1) as pool:
        yield from pool.imap(partial(_hunt, plan), tasks, chunksize=1)


def table(found: Iterable[Found]) -> str:
    """The results as a Markdown table."""
    return "\n".join(["| planted bug | found by seed | invariant |", "|---|---|---|", *map(_row, found)])


def _row(found: Found) -> str:
    return f"| {found.mutation.name} | {'not found' if found.seed is None else found.seed} | {found.invariant} |"


def main() -> int:
    """Look for all planted bugs, and return 1 if one was not found."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutations", description=__doc__)
    parser.add_argument("--only", default="", metavar="TEXT", help="only bugs whose names contain this")
    parser.add_argument("--count", type=int, default=MAX_SEEDS, help="number of seeds for each bug")
    parser.add_argument("--plan", default="any", help="kind of faults: any (default) or removals")
    parser.add_argument("--write", type=Path, metavar="FILE", help="update the table of this page")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="try the seed in this page first")
    options = parser.parse_args()
    fix_hashes()
    chosen = [number for number, mutation in enumerate(MUTATIONS) if options.only in mutation.name]
    known = {} if options.replay is None else read_seeds(options.replay)
    # After a change of our code another seed may find the bug, since the recorded seed has another run.
    tasks = [(number, [*known.get(MUTATIONS[number].name, []), *range(options.count)]) for number in chosen]
    every: list[Found] = []
    for found in hunted(tasks, options.plan):
        every.append(found)
        sys.stdout.write(f"{_row(found)}\n")
        sys.stdout.flush()
    missed = sum(found.seed is None for found in every)
    # The last line, for programs.
    sys.stdout.write(f"{json.dumps({'planted': len(every), 'found': len(every) - missed})}\n")
    if options.write is not None:
        page = options.write.read_text(encoding="utf-8")
        before, _, rest = page.partition(_BEGIN)
        text = f"{before}{_BEGIN}\n\n{table(every)}\n\n{_END}{rest.partition(_END)[2]}"
        options.write.write_text(text, encoding="utf-8")
    return min(missed, 1)


def read_seeds(page: Path) -> dict[str, list[int]]:
    """Planted bug -> the seed that found it."""
    rows = re.findall(r"^\| (.+?) \| (\d+) \| \w+ \|$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {name: [int(seed)] for name, seed in rows}


if __name__ == "__main__":
    sys.exit(main())
