"""Returning freed memory to the system."""

import asyncio
import platform
from pathlib import Path

import pytest

from benchmarks.harness.servers import status_bytes
from namesrv_runtime.freed_memory import given_back
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
