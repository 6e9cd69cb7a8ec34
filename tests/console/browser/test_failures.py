"""A failure of each level, staged with real processes: title, icon and colour of an open overview.

tests/console/test_promptness.py has the time until a page names each failure, and the look of the page then.
"""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from selenium import webdriver

from tests.support.agents import side_car
from tests.support.browser import console, show
from tests.support.console_process import ConsoleProcess, shown
from tests.support.daemon import Daemon

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

MASTER, SLAVE = 0, 1
# No account is for peers on this machine.
ACCESS: Final = """
[accounts.brokers]
networks = ["10.9.8.7/32"]
may = [{ access = "broker-control" }]
"""


class Stage:
    """Two servers with the master and the slave of one group, and a console of both."""

    def __init__(self, home: Path, stack: ExitStack) -> None:
        self.home = home
        self._stack = stack
        self.servers = [self.server(f"ns{number}") for number in (1, 2)]
        self.agents = {number: self._agent(number) for number in (MASTER, SLAVE)}
        self.url = self.console(*self.servers)

    def server(self, name: str, *flags: str) -> Daemon:
        """A running server."""
        return self._stack.enter_context(Daemon(self.home / name, f"--nameserver-name={name}", *flags)).listening()

    def console(self, *servers: Daemon) -> str:
        """The URL of a console of these servers."""
        return self._stack.enter_context(ConsoleProcess(*(server.where for server in servers))).url()

    def _agent(self, broker_id: int) -> "subprocess.Popen[bytes]":
        config = self.home / f"agent-{broker_id}.toml"
        return self._stack.enter_context(side_car(config, *self.servers, broker_id=broker_id))


class Failure(NamedTuple):
    """A staged failure, and the look of the overview."""

    # Stages the failure; returns the URL of a console that shows the failure.
    stage: Callable[[Stage], str]
    level: str
    # Verdict in the title, and the colour token.
    verdict: str
    token: str


def kill_master(stage: Stage) -> str:
    """Kill the master, not the slave."""
    stage.agents[MASTER].kill()
    return stage.url


def kill_slave(stage: Stage) -> str:
    """Kill the slave; the master is up."""
    stage.agents[SLAVE].kill()
    return stage.url


def deny_access(stage: Stage) -> str:
    """Start a server without an account for the console."""
    access = stage.home / "access.toml"
    access.write_text(ACCESS)
    access.chmod(0o600)
    return stage.console(stage.server("ns3", f"--access={access}"))


FAILURES: Final = {
    "killed master": Failure(kill_master, "critical", "Critical 1 group without a master · 1 broker gone", "bad"),
    "killed slave": Failure(kill_slave, "warning", "Warning 1 broker gone", "late"),
    "access denied": Failure(deny_access, "unknown", "Unknown 1 server denies access", "grey"),
}

# Title and icon of the tab, and the colour of the verdict beside the colour token of its level.
VERDICT: Final = """
    const verdict = document.getElementById("verdict");
    const probe = document.createElement("i");
    probe.style.background = `var(--${arguments[0]}-back)`;
    document.body.append(probe);
    const wanted = getComputedStyle(probe).backgroundColor;
    probe.remove();
    return [document.title, document.getElementById("icon").href.replace(/.*\\/|\\?.*/g, ""),
        getComputedStyle(verdict).backgroundColor === wanted];
"""


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A stage on which all is well."""
    with ExitStack() as stack:
        yield Stage(tmp_path, stack)


# True when all is well on both servers.
WELL: Final = "return document.querySelector('#verdict.good') && document.querySelectorAll('.heat .cell').length === 4"


@pytest.mark.parametrize("name", FAILURES)
def test_failure_is_seen_at_a_glance(opened: webdriver.Chrome, stage: Stage, name: str) -> None:
    """Title, icon and colour of an open page have the level of the verdict."""
    failure = FAILURES[name]
    show(opened, stage.url)
    shown(opened, WELL)

    url = failure.stage(stage)

    if url != stage.url:
        show(opened, url)
    title = f"{failure.verdict} · Overview · namesrv console"
    shown(opened, "return document.title === arguments[0]", title)
    assert opened.execute_script(VERDICT, failure.token) == [title, f"icon-{failure.level}.svg", True]
    assert console(opened) == []
