"""`namesrv-console` as a process, and its pages in a browser."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from selenium import webdriver
from selenium.webdriver.support.ui import WebDriverWait

from namesrv_console.app import PAGES
from tests.support.fake_clock import GUARD_SECONDS
from tests.support.pages import ROOT
from tests.support.printing_process import PatternProcess

# query strings of pages that need one; history pages show the night written by `night`
_DETAILS: Final = {
    "topic": "/topic?name=orders",
    "search": "/search?q=broker",
    "timeline": "/timeline?from=2026-03-01T00:00&to=2026-03-01T08:00&wait=1",
    "travel": "/travel?topic=topic-00004&at=2026-03-01T03:30&wait=1",
    "what_if": "/what-if?expiry=60&scan=5&poll=30&wait=1",
}
# all servers have reported, the page's event stream is open, and the logs are read
READY: Final = """
    const chips = [...document.querySelectorAll(".chip")];
    return chips.length && chips.every(chip => chip.matches(".ready"))
        && document.querySelector("#wall").dateTime && !document.querySelector("[data-again]");
"""


def addresses(broker: str) -> dict[str, str]:
    """Page name to an address at which the page shows data."""
    details = {**_DETAILS, "broker": f"/broker?{broker}"}
    return {
        page.name: details.get(page.name, page.path) for page in PAGES if page.key is not None or page.name in details
    }


def night(directory: Path) -> Path:
    """Heartbeat logs of two servers for the night of 2026-03-01, in which brokers fail."""
    write = [sys.executable, "-m", "tools.heartbeat_logs", "--lines", "40000", "--out", str(directory), "--seed", "1"]
    subprocess.run(write, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return directory


class ConsoleProcess(PatternProcess):
    """The console on a free port, as a context manager."""

    def __init__(self, *servers: str, logs: Sequence[Path] = (), audit: Sequence[Path] = ()) -> None:
        given = {"server": servers, "logs": logs, "audit": audit}
        flags = [f"--{name}={value}" for name, values in given.items() for value in values]
        super().__init__([sys.executable, "-m", "namesrv_console", "--listen=127.0.0.1:0", *flags])

    def url(self) -> str:
        """The console's URL with a final slash; waits until the console listens."""
        return self.wait_for(r"^namesrv-console: http://\S+/$").removeprefix("namesrv-console: ")


def shown(opened: webdriver.Chrome, script: str, *values: object) -> Any:
    """The first truthy value that a script returns on the page."""
    return WebDriverWait(opened, GUARD_SECONDS, 0.1).until(lambda _: opened.execute_script(script, *values))
