"""The web console over the demo's NameServers, and the page that stays when the story is over."""

import asyncio
import os
import signal
import sys
import webbrowser
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from demo.processes import Child
from demo.screen import Screen
from demo.servers import NameServer
from demo.witness import Witness

_PREFIX = "namesrv-console: "


@asynccontextmanager
async def console(servers: Iterable[NameServer], screen: Screen, witness: Witness) -> AsyncIterator[str]:
    """A console of these servers until the block ends; its URL, which is opened where there is a screen for it."""
    urls: list[str] = []

    def heard(line: str) -> None:
        # what it says of servers that cannot be reached, the story tells
        if line.startswith(f"{_PREFIX}http"):
            urls.append(line.removeprefix(_PREFIX))
            witness.tell()

    flags = [f"--server={server.address}" for server in servers] + [
        f"--logs={server.log_directory}" for server in servers
    ]
    async with Child("console", "-m", "namesrv_console", "--listen=127.0.0.1:0", *flags, heard=heard):
        await witness.until("the console listens", lambda: urls)
        screen.line("console", f"shows all of it: {urls[0]}")
        if sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
            # never in the terminal, where the story is
            await asyncio.to_thread(webbrowser.open, urls[0])
        yield urls[0]


async def keep(url: str, seconds: float, screen: Screen) -> None:
    """Return after that time, or with Ctrl-C, which is the ordinary end here."""
    screen.note(f"\nEverything runs on for {seconds / 60:g} min; look around: {url}\nCtrl-C ends it.")
    ended = asyncio.Event()
    before = signal.getsignal(signal.SIGINT)
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, ended.set)
    try:
        async with asyncio.timeout(seconds):
            await ended.wait()
    except TimeoutError:
        pass
    finally:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, before)
