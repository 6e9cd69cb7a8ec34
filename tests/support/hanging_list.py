"""A list of NameServers in a named pipe, whose reader waits for the content."""

import asyncio
import contextlib
import os
from pathlib import Path
from typing import TextIO

from tests.support.fake_clock import GUARD_SECONDS, until


async def opened_by_reader(pipe: Path) -> TextIO:
    """Return once the pipe has a reader, which waits for its content and its end."""

    def opened() -> bool:
        # opening a pipe for writing fails without a reader
        with contextlib.suppress(OSError):
            found.append(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
        return bool(found)

    found: list[int] = []
    async with asyncio.timeout(GUARD_SECONDS):
        await until(opened)
    return os.fdopen(found[0], "w")
