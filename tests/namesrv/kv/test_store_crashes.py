"""A full disk and a kill in the middle of a write leave what was confirmed, and nothing else."""

import errno
import os
import random
import signal
from pathlib import Path

import pytest

from namesrv.kv.store import KVConfig
from tests.support.python_script import run_script


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the file is, in a data directory of its own."""
    (tmp_path / "data").mkdir()
    return tmp_path / "data" / "kvConfig.json"


FULL_DISK = """
import asyncio, resource, sys
from pathlib import Path
from namesrv.kv.store import KVConfig, KVWriteError

async def main():
    kv = KVConfig.load(Path(sys.argv[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, (4_000, resource.RLIM_INFINITY))
    await kv.put("NS", "fits", "x" * 3_000)
    try:
        await kv.put("NS", "does not", "x" * 3_000)
    except KVWriteError as error:
        print(error.strerror)
    print(*kv.namespace("NS"), *KVConfig.load(Path(sys.argv[1])).namespace("NS"))
    await kv.delete("NS", "fits")
    await kv.put("NS", "now it does", "x" * 3_000)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

asyncio.run(main())
"""

WRITES_FOREVER = """
import asyncio, sys
from pathlib import Path
from namesrv.kv.store import KVConfig

async def writer(kv, name):
    number = 0
    while True:
        number += 1
        await kv.put(name, "last", str(number))
        print(name, number, flush=True)

async def main():
    kv = KVConfig.load(Path(sys.argv[1]))
    await asyncio.gather(*(writer(kv, f"writer-{number}") for number in range(4)))

asyncio.run(main())
"""


def test_full_disk(path: Path) -> None:
    """A put that the kernel takes half of is refused; memory and file agree; a smaller configuration fits again."""
    with run_script(FULL_DISK, path) as process:
        output, _ = process.communicate()

    assert 0 == process.returncode
    assert [f"key-value configuration not written: {os.strerror(errno.EFBIG)}", "fits fits"] == output.splitlines()
    assert {"NS": {"now it does": "x" * 3_000}} == KVConfig.load(path).all()
    assert [path] == list(path.parent.iterdir())


def test_confirmed_puts_survive_a_kill(path: Path) -> None:
    """Ten servers killed while four writers put: the file is whole, and holds all that was confirmed."""
    dice = random.Random(9876)
    for _ in range(10):
        confirmed: dict[str, int] = {}
        with run_script(WRITES_FOREVER, path) as process:
            assert process.stdout is not None
            for _ in range(dice.randrange(4, 20)):
                process.stdout.readline()
            process.send_signal(signal.SIGKILL)
            for line in process.stdout:
                if not line.endswith("\n"):
                    # the kill came in the middle of what it said
                    break
                name, _, number = line.partition(" ")
                confirmed[name] = int(number)

        kv = KVConfig.load(path)
        assert not [name for name in path.parent.iterdir() if name != path]
        for name, last in confirmed.items():
            held = int(kv.get(name, "last") or 0)
            assert last <= held <= last + 1, (name, last, held)
