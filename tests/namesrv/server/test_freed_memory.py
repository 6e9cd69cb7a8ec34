"""Returning freed memory to the system."""

import asyncio
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.harness.servers import status_bytes
from namesrv.server.freed_memory import given_back
from tests.support.fake_clock import GUARD_SECONDS, until

MIB = 1024 * 1024


def resident() -> int:
    """Resident bytes of this process."""
    return status_bytes(Path("/proc/self/status").read_text(encoding="ascii"))


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library keeps less")
async def test_memory_between_used_blocks_is_returned() -> None:
    """Of 32 MiB all but a few scattered blocks are freed."""
    blocks = [b"%d" % number * 8192 for number in range(1000, 2024)]
    used = [*blocks[::16]]
    blocks.clear()
    kept = resident()

    with given_back(every_seconds=0.001):
        async with asyncio.timeout(GUARD_SECONDS):
            await until(lambda: resident() < kept - 20 * MIB)

    assert len(used) == 64


_THREADS = """if True:
    import os, sys, threading, time
    from pathlib import Path
    from namesrv.server import freed_memory

    def resident():
        return os.sysconf("SC_PAGE_SIZE") * int(Path("/proc/self/statm").read_text().split()[1])

    def work():
        blocks = [b"%d" % number * 16384 for number in range(1000, 1128)]

    freed_memory.use_one_heap()
    # glibc keeps up to twice the size of the largest freed block at the end of a heap.
    b"x" * (16 * 1024 * 1024)
    before = resident()
    with freed_memory.given_back(every_seconds=0.001):
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for _ in range(int(sys.argv[1])):
            if resident() < before + 4 * 1024 * 1024:
                sys.exit(0)
            time.sleep(0.01)
    sys.exit(f"{(resident() - before) >> 20} MiB left")
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library keeps less")
def test_memory_that_threads_freed_is_returned() -> None:
    """Four threads allocate 8 MiB each, free all, and end."""
    done = subprocess.run(
        [sys.executable, "-c", _THREADS, str(round(100 * GUARD_SECONDS))], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")
