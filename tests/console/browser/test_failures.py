"""A failure of each level with real processes: verdict, title, icon and colour of an open overview.

tests/console/test_promptness.py stages every failure.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from selenium import webdriver

from tests.support.agents import CLUSTER, NAME, side_car
from tests.support.browser import console, show
from tests.support.console_process import ConsoleProcess, shown
from tests.support.daemon import Daemon

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

MASTER, SLAVE = 0, 1
QUICK: Final = ("--broker-expiry-seconds=10", "--scan-interval-seconds=0.5", "--wait-for-service-seconds=0")
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
        self.agents: dict[int, subprocess.Popen[bytes]] = {}
        for broker_id in (MASTER, SLAVE):
            self.start(broker_id)
        self.url = self.console(*self.servers)

    def server(self, name: str, *flags: str) -> Daemon:
        """A running server."""
        return self._stack.enter_context(
            Daemon(self.home / name, f"--nameserver-name={name}", *QUICK, *flags)
        ).listening()

    def console(self, *servers: Daemon) -> str:
        """The URL of a console of these servers."""
        return self._stack.enter_context(ConsoleProcess(*(server.where for server in servers))).url()

    def start(self, broker_id: int) -> None:
        """Start an instance of the group."""
        config = self.home / f"agent-{broker_id}.toml"
        self.agents[broker_id] = self._stack.enter_context(side_car(config, *self.servers, broker_id=broker_id))


Staged = Callable[[Stage], AbstractContextManager[str]]


@contextmanager
def killed_slave(stage: Stage) -> Iterator[str]:
    """The slave is killed, and started again."""
    stage.agents[SLAVE].kill()
    yield stage.url
    stage.start(SLAVE)


@contextmanager
def killed_server(stage: Stage) -> Iterator[str]:
    """The second server is killed, and started again at its address."""
    lost = stage.servers[1]
    port = lost.address[1]
    lost.send_signal(signal.SIGKILL)
    yield stage.url
    stage.servers[1] = stage.server("ns2", f"--listen-port={port}")


@contextmanager
def frozen_server(stage: Stage) -> Iterator[str]:
    """The second server is stopped, and continues."""
    stage.servers[1].send_signal(signal.SIGSTOP)
    try:
        yield stage.url
    finally:
        stage.servers[1].send_signal(signal.SIGCONT)


@contextmanager
def refusing(stage: Stage) -> Iterator[str]:
    """The console has no account on the server."""
    access = stage.home / "access.toml"
    access.write_text(ACCESS)
    yield stage.console(stage.server("ns5", f"--access={access}"))


class Failure(NamedTuple):
    """A staged failure, and the look of the overview."""

    staged: Staged
    level: str
    # Verdict in the title, colour token, a text in the list of problems.
    verdict: str
    token: str
    words: str
    # Selector of elements that would contradict the verdict.
    contradiction: str


LAST_IS_GOOD: Final = ".chip.ready:last-child, #servers tr.ready:last-child, #agreement .good"
ONLY_IS_GOOD: Final = ".chip.ready, #servers tr.ready, #agreement .good"
FAILURES: Final = {
    "killed server": Failure(
        killed_server, "critical", "Critical 1 server unreachable", "bad",
        "Critical ns2: no NameServer can be reached there", LAST_IS_GOOD,
    ),
    "killed slave": Failure(
        killed_slave, "warning", "Warning 1 broker gone", "late", f"Warning {CLUSTER}/{NAME}/1: the broker has left",
        ".heat [data-role='1'] .cell:not(.missing, .awaited)",
    ),
    "refusing": Failure(
        refusing, "unknown", "Unknown access denied by 1 server", "grey", "the state of this server is unknown",
        ONLY_IS_GOOD,
    ),
    # last, since a server that was stopped does not evict brokers at once
    "frozen server": Failure(
        frozen_server, "critical", "Critical 1 server without a response", "bad",
        "Critical ns2: the server does not respond", LAST_IS_GOOD,
    ),
}  # fmt: skip


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


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """The stage of all failures, which each test restores."""
    with ExitStack() as stack:
        yield Stage(tmp_path_factory.mktemp("stage"), stack)


# True when all is well on both servers.
WELL: Final = "return document.querySelector('#verdict.good') && document.querySelectorAll('.heat .cell').length === 4"


@pytest.mark.parametrize("name", FAILURES)
def test_failure_is_seen_at_a_glance(opened: webdriver.Chrome, stage: Stage, name: str) -> None:
    """Verdict, title, icon and colour of an open page name the failure, and nothing on it contradicts them.

    The time until then is printed beside that of opening the page, which is the machine's share; test_promptness.py
    asserts the bound of 3 s on a fake clock.
    """
    failure = FAILURES[name]
    show(opened, stage.url)
    shown(opened, WELL)
    began = time.monotonic()
    show(opened, stage.url)
    shown(opened, WELL)
    opening = time.monotonic() - began

    with failure.staged(stage) as url:
        began = time.monotonic()
        if url != stage.url:
            show(opened, url)
        title = f"{failure.verdict} · Overview · namesrv console"
        shown(opened, "return document.title === arguments[0]", title)
        took = time.monotonic() - began
        sys.stdout.write(f"{name}: {took:.2f} s, the page alone {opening:.2f} s\n")

        assert opened.execute_script(VERDICT, failure.token) == [title, f"icon-{failure.level}.svg", True]
        problems = opened.execute_script("return document.getElementById('problems').innerText")
        assert failure.words in " ".join(problems.split())
        contradicting = "return [...document.querySelectorAll(arguments[0])].map((one) => one.outerHTML)"
        assert opened.execute_script(contradicting, failure.contradiction) == []
    assert console(opened) == []
