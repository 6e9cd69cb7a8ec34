"""Runs `namesrv-console` as a process, and looks at its pages in a browser."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from selenium import webdriver
from selenium.webdriver.support.ui import WebDriverWait

from tests.support.fake_clock import GUARD_SECONDS
from tests.support.talking_process import PatternProcess

# every server has told all that it knows, and the stream of the page is open
READY: Final = """
    const chips = [...document.querySelectorAll(".chip")];
    return chips.length && chips.every(chip => chip.matches(".ready")) && document.querySelector("#wall").dateTime;
"""


class ConsoleProcess(PatternProcess):
    """The console on a free port, asking these servers, as a context manager."""

    def __init__(self, *servers: str, logs: Sequence[Path] = ()) -> None:
        asked = [word for server in servers for word in ("--server", server)]
        past = [word for log in logs for word in ("--logs", str(log))]
        super().__init__([sys.executable, "-m", "namesrv_console", "--listen", "127.0.0.1:0", *asked, *past])

    def url(self) -> str:
        """Where it is, with a slash at the end; once it listens."""
        return self.wait_for(r"^namesrv-console: http://\S+/$").removeprefix("namesrv-console: ")


def shown(opened: webdriver.Chrome, script: str, *values: object) -> Any:
    """What a script finds on the page, as soon as it finds something."""
    return WebDriverWait(opened, GUARD_SECONDS, 0.1).until(lambda _: opened.execute_script(script, *values))
