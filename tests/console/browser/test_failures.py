"""Failures staged with real processes: what verdict, title, icon and page of an open overview say about each, and when.

tests/console/test_promptness.py shows the same delays without the machine's own.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from selenium import webdriver

from namesrv_remoting.codes import RequestCode
from tests.support.agents import CLUSTER, NAME, side_car
from tests.support.browser import console, show
from tests.support.certificates import Authority
from tests.support.console_process import ConsoleProcess, shown
from tests.support.daemon import Daemon
from tests.support.peer import Broker, Peer

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

MASTER, SLAVE = 0, 1
# A hung broker is silent after 5 s, and evicted after 10 s.
SILENT_SECONDS: Final = 5.0
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
        """Start a broker of the group."""
        config = self.home / f"agent-{broker_id}.toml"
        self.agents[broker_id] = self._stack.enter_context(side_car(config, *self.servers, broker_id=broker_id))


Staged = Callable[[Stage], AbstractContextManager[str]]


def killed(*broker_ids: int) -> Staged:
    """Brokers of the group are killed, and started again."""

    @contextmanager
    def staged(stage: Stage) -> Iterator[str]:
        for broker_id in broker_ids:
            stage.agents[broker_id].kill()
        yield stage.url
        for broker_id in broker_ids:
            stage.start(broker_id)

    return staged


@contextmanager
def hung_master(stage: Stage) -> Iterator[str]:
    """The master is stopped, and continues."""
    stage.agents[MASTER].send_signal(signal.SIGSTOP)
    try:
        yield stage.url
    finally:
        stage.agents[MASTER].send_signal(signal.SIGCONT)


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
def removed_write_permission(stage: Stage) -> Iterator[str]:
    """An operator removes the write permission of the group on both servers, and adds it again."""
    for code in (RequestCode.WIPE_WRITE_PERM_OF_BROKER, RequestCode.ADD_WRITE_PERM_OF_BROKER):
        for server in stage.servers:
            with Peer(server.address) as peer:
                assert peer.ask(code, {"brokerName": NAME}).code == 0
        if code == RequestCode.WIPE_WRITE_PERM_OF_BROKER:
            yield stage.url


@contextmanager
def not_ready(stage: Stage) -> Iterator[str]:
    """A server that had a broker is started again, and waits for the broker."""
    with Daemon(stage.home / "ns4", "--nameserver-name=ns4").listening() as first, Peer(first.address) as peer:
        Broker().register(peer)
        # a killed server may not have written its snapshot yet
        first.stop()
    yield stage.console(stage.server("ns4", "--wait-for-service-seconds=600"))


@contextmanager
def refusing(stage: Stage) -> Iterator[str]:
    """The console has no account on the server."""
    access = stage.home / "access.toml"
    access.write_text(ACCESS)
    yield stage.console(stage.server("ns5", f"--access={access}"))


@contextmanager
def tls_mismatch(stage: Stage) -> Iterator[str]:
    """The server requires TLS, and the console sends plain text."""
    issued = Authority(stage.home).issue("ns6")
    files = f"--tls-cert-file={issued.cert_file}", f"--tls-key-file={issued.key_file}"
    yield stage.console(stage.server("ns6", "--tls-mode=enforcing", *files))


@contextmanager
def expired_certificate(stage: Stage) -> Iterator[str]:
    """The certificate of a server with optional TLS expired two days ago."""
    issued = Authority(stage.home).issue("ns7", expires=datetime.now(UTC) - timedelta(days=2))
    files = f"--tls-cert-file={issued.cert_file}", f"--tls-key-file={issued.key_file}"
    yield stage.console(stage.server("ns7", "--tls-mode=permissive", *files))


@contextmanager
def split_list(stage: Stage) -> Iterator[str]:
    """A second slave knows the first server only; the console starts later, so that it expects no registration."""
    first, second = stage.servers
    with side_car(stage.home / "agent-2.toml", first, broker_id=2):
        first.wait_for("broker_registered", broker_addr="10.0.0.3:10911")
        yield stage.console(first, second)
    first.wait_for("broker_evicted", broker_addr="10.0.0.3:10911")


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
    # Seconds from the cause until the failure can be known.
    known_after: float = 0.0


NOT_MISSING: Final = ".heat [data-role='{}'] .cell:not(.missing, .awaited)"
LAST_IS_GOOD: Final = ".chip.ready:last-child, #servers tr.ready:last-child, #agreement .good"
ONLY_IS_GOOD: Final = ".chip.ready, #servers tr.ready, #agreement .good"
FAILURES: Final = {
    "killed server": Failure(
        killed_server, "critical", "Critical 1 server unreachable", "bad",
        "Critical ns2: the server cannot be reached", LAST_IS_GOOD,
    ),
    "killed master and slave": Failure(
        killed(MASTER, SLAVE), "critical", "Critical 1 broker group gone", "bad",
        f"Critical {CLUSTER}/{NAME}: all brokers of the group have left", ".heat .cell:not(.missing, .awaited)",
    ),
    "killed master with a slave": Failure(
        killed(MASTER), "critical", "Critical 1 group without a master · 1 broker gone", "bad",
        f"Critical {CLUSTER}/{NAME}: no master is registered; producers cannot write to", NOT_MISSING.format(MASTER),
    ),
    "hung master": Failure(
        hung_master, "critical", "Critical 1 silent master", "bad",
        f"Critical {CLUSTER}/{NAME}: the master has missed two heartbeats", ".heat [data-role='0'] .cell.in_time",
        known_after=SILENT_SECONDS,
    ),
    "killed slave": Failure(
        killed(SLAVE), "warning", "Warning 1 broker gone", "late", f"Warning {CLUSTER}/{NAME}/1: the broker has left",
        NOT_MISSING.format(SLAVE),
    ),
    "removed write permission": Failure(
        removed_write_permission, "warning", "Warning 1 group without write permission", "late",
        f"Warning {CLUSTER}/{NAME}: an operator removed the write permission", "#problems .critical",
    ),
    "not ready": Failure(
        not_ready, "warning", "Warning 1 server not ready", "late", "clients get no routes from this server",
        ONLY_IS_GOOD,
    ),
    "refusing": Failure(
        refusing, "unknown", "Unknown 1 server denies access", "grey", "the state of this server is unknown",
        ONLY_IS_GOOD,
    ),
    "tls mismatch": Failure(
        tls_mismatch, "critical", "Critical no TLS connection to 1 server", "bad", "this server requires TLS",
        ONLY_IS_GOOD,
    ),
    "expired certificate": Failure(
        expired_certificate, "warning", "Warning 1 certificate runs out", "late", "expired 2.0 days ago",
        "#agreement .good",
    ),
    # late, since a server that was stopped does not evict brokers at once
    "frozen server": Failure(
        frozen_server, "critical", "Critical 1 server does not respond", "bad",
        "Critical ns2: the server does not respond", LAST_IS_GOOD,
    ),
    # last, since a server that has just started is expected to lack brokers for 35 s
    "split list": Failure(
        split_list, "warning", "Warning 1 broker missing on a server", "late",
        f"Warning {CLUSTER}/{NAME}/2: missing", "#agreement .good, .heat [data-role='2'] .cell.awaited",
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
        took = time.monotonic() - began - failure.known_after
        sys.stdout.write(f"{name}: {took:.2f} s, the page alone {opening:.2f} s\n")

        assert opened.execute_script(VERDICT, failure.token) == [title, f"icon-{failure.level}.svg", True]
        problems = opened.execute_script("return document.getElementById('problems').innerText")
        assert failure.words in " ".join(problems.split())
        contradicting = "return [...document.querySelectorAll(arguments[0])].map((one) => one.outerHTML)"
        assert opened.execute_script(contradicting, failure.contradiction) == []
    assert console(opened) == []
