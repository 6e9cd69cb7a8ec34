"""Memory is what the file holds, whatever happens in whatever order."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from namesrv.kv import file as kv_file
from namesrv.kv.store import KVConfig, KVWriteError
from tests.namesrv.kv.slow_disk import begin, bring_back, slow_disk, take_away
from tests.support.fake_clock import settle


@dataclass(frozen=True)
class Step:
    """One step of a schedule; which number of a change, key or value it is about."""

    what: str
    key: int
    value: int


# key, value or None to delete, and who waits for it
Change = tuple[str, str | None, asyncio.Task[Any]]

steps = st.lists(
    st.builds(
        Step,
        what=st.sampled_from(["put", "put", "delete", "cancel", "disk", "disk", "break", "mend"]),
        key=st.integers(0, 3),
        value=st.integers(0, 2),
    ),
    max_size=30,
)


@given(steps)
def test_memory_is_the_file_on_any_schedule(tmp_path_factory: pytest.TempPathFactory, schedule: list[Step]) -> None:
    """Changes, cancellations, writes and a disk that comes and goes, in any order.

    Memory is what the file holds after every write, a change that returned is in it until the next one of its key, and
    one that was refused is not.
    """
    path = tmp_path_factory.mktemp("kv") / "data" / "kvConfig.json"
    path.parent.mkdir()

    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        runner.run(follow(path, schedule))


async def follow(path: Path, schedule: list[Step]) -> None:
    """Take the steps, and check after every write and in the end."""
    kv = KVConfig.load(path)
    changes: list[Change] = []
    async with slow_disk() as disk:
        for step in schedule:
            await change(step, kv, changes)
            if step.what == "disk" and disk.waiting:
                await disk.write()
                check(kv, path)
            break_or_mend(step, path.parent)
        while disk.waiting:
            await disk.write()
    if not path.parent.exists():
        bring_back(path.parent)
    check(kv, path)
    for key in "0123":
        assert kv.get("NS", key) in possible_values(key, changes)


async def change(step: Step, kv: KVConfig, changes: list[Change]) -> None:
    """Begin a change, or cancel one of the last."""
    key, value = str(step.key), str(step.value)
    if step.what == "put":
        changes.append((key, value, (await begin(kv.put("NS", key, value)))[0]))
    elif step.what == "delete":
        changes.append((key, None, (await begin(kv.delete("NS", key)))[0]))
    elif step.what == "cancel" and step.key < len(changes):
        changes[-1 - step.key][-1].cancel()
        await settle()


def break_or_mend(step: Step, directory: Path) -> None:
    """The disk goes or comes back."""
    if step.what == "break" and directory.exists():
        take_away(directory)
    elif step.what == "mend" and not directory.exists():
        bring_back(directory)


def check(kv: KVConfig, path: Path) -> None:
    """Memory is what the file holds, and so is its size."""
    if path.parent.exists():
        assert kv.all() == kv_file.read(path)
        assert KVConfig.load(path)._file_bytes == kv._file_bytes


def possible_values(key: str, changes: list[Change]) -> set[str | None]:
    """What a key may hold: the last change that returned, or a cancelled one after it, which may have been too late."""
    possible: set[str | None] = {None}
    for changed, value, task in changes:
        assert task.done()
        if changed == key:
            if task.cancelled():
                possible.add(value)
            elif task.exception() is None:
                possible = {value}
            else:
                assert isinstance(task.exception(), KVWriteError)
    return possible
