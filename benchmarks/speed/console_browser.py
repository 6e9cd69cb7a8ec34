"""The console in a real browser: first paint of its pages, and a patch of a heat map of 1,000 brokers."""

import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final

from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.support.ui import WebDriverWait

from benchmarks.harness.figures import BenchError, Column, Figure, at_most
from benchmarks.harness.rounds import Bench
from benchmarks.harness.servers import WITHOUT_LOG, Server, daemon, temporary_directory, web_console
from benchmarks.harness.wire import Broker, Wire, many_brokers, register
from tests.support.browser import browser, show

# The number of NameServers behind the console.
SERVERS: Final = 3
# The longest wait for the console or the browser.
PATIENCE_SECONDS: Final = 60.0
PAGES: Final = ("/", "/brokers", "/topics", "/topology")
# Each page is opened from this one.
_FORMER_PAGE: Final = "/kv"
_BROKERS: Final = 1_000
# Time in which only ages change on the page.
_IDLE_SECONDS: Final = 2.0
# Milliseconds from the beginning of a navigation to the first paint with content; null before it.
_PAINTED: Final = "return performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
_CELLS: Final = "return document.querySelectorAll('.heat .cell').length === arguments[0]"
# Counts the heartbeats that the cells of the heat map show, and the patches that bring them.
_COUNT_HEARTBEATS: Final = """
    window.heartbeats = window.patches = 0;
    window.counting?.disconnect();
    window.counting = new MutationObserver(changes => {
        window.heartbeats += changes.length;
        window.patches++;
    });
    window.counting.observe(document.querySelector(".heat"), { attributeFilter: ["data-last-seen"], subtree: true });
"""


def with_brokers(bench: Bench, stack: ExitStack, brokers: Sequence[Broker]) -> tuple[list[Server], list[Wire]]:
    """The NameServers behind the console, which know these brokers, and a connection to each; the stack ends them."""
    servers = [stack.enter_context(daemon(bench, *WITHOUT_LOG)) for _ in range(SERVERS)]
    wires = [stack.enter_context(Wire(server)) for server in servers]
    for wire in wires:
        register(wire, brokers)
    return servers, wires


def is_available() -> bool:
    """True if Chromium and its driver are installed."""
    return None not in (shutil.which("chromium"), shutil.which("chromedriver"))


@contextmanager
def opened(bench: Bench) -> Iterator[webdriver.Chrome]:
    """A browser without a cache, on both cores: its six processes work at the same time.

    Raises:
        BenchError: the browser does not start, or fails in the block.
    """
    try:
        with temporary_directory("browser") as directory, bench.on_both_cores(), browser(directory) as chrome:
            chrome.execute_cdp_cmd("Network.enable", {})
            chrome.execute_cdp_cmd("Network.setCacheDisabled", {"cacheDisabled": True})
            chrome.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
            yield chrome
    except WebDriverException as error:
        raise BenchError(f"the browser failed: {error.msg}") from error


def first_paints(bench: Bench, console: Server) -> dict[str, list[float]]:
    """Page -> milliseconds from leaving another page of the console until the first paint, in each round.

    All pages are loaded in one browser, since a new process of it also loads fonts and tables of characters.
    """
    with opened(bench) as chrome:
        _painted_after(chrome, console, PAGES[0])
        return {path: [_painted_after(chrome, console, path) for _ in range(bench.effort.rounds)] for path in PAGES}


def heat_map(bench: Bench) -> list[Figure]:
    """A patch of the heat map after heartbeats of 1,000 brokers, on 3 servers."""
    column = Column("console.heat", "1,000 brokers, a heartbeat of each")
    every = many_brokers(_BROKERS, "topic-%d", 2)
    with ExitStack() as stack:
        bench.progress(f"console: {_BROKERS:,} brokers on {SERVERS} servers in the heat map")
        servers, wires = with_brokers(bench, stack, every)
        console = stack.enter_context(web_console(bench, servers))
        chrome = stack.enter_context(opened(bench))
        show(chrome, f"http://127.0.0.1:{console.port}/", size=(1440, 900))
        WebDriverWait(chrome, PATIENCE_SECONDS).until(lambda it: it.execute_script(_CELLS, _BROKERS * SERVERS))
        heartbeats = b"".join(broker.heartbeat() for broker in every)
        patches = [_patch(chrome, console, wires, heartbeats) for _ in range(bench.effort.rounds)]
        browser_ms, console_ms = zip(*patches, strict=True)
        what = "a patch of all brokers: processor time of the"
        column.add("browser", f"{what} browser's main thread", "milliseconds", *browser_ms, target=at_most(100))
        column.add("patch", f"{what} console", "milliseconds", *console_ms, target=at_most(100))
        column.add("memory", "resident", "megabytes", console.status_bytes() / 1e6, target=at_most(150))
    return column.figures


def _painted_after(chrome: webdriver.Chrome, console: Server, path: str) -> float:
    chrome.get(f"http://127.0.0.1:{console.port}{_FORMER_PAGE}")
    show(chrome, f"http://127.0.0.1:{console.port}{path}", size=(1440, 900))
    return float(WebDriverWait(chrome, PATIENCE_SECONDS, 0.05).until(lambda it: it.execute_script(_PAINTED)))


@dataclass(frozen=True, slots=True)
class _Used:
    """Processor time, in milliseconds, and the time on the clock in which it was used."""

    # of the browser's main thread
    browser_ms: float
    console_ms: float
    seconds: float

    @classmethod
    def until_now(cls, chrome: webdriver.Chrome, console: Server) -> "_Used":
        """All that was used so far."""
        return cls(1000 * _task_seconds(chrome), 1000 * console.cpu_seconds(), time.monotonic())

    def since(self, before: "_Used") -> "_Used":
        """What was used since then."""
        return _Used(
            self.browser_ms - before.browser_ms, self.console_ms - before.console_ms, self.seconds - before.seconds
        )


def _patch(chrome: webdriver.Chrome, console: Server, wires: list[Wire], heartbeats: bytes) -> tuple[float, float]:
    """Milliseconds of processor time of browser and console for a patch, beyond those of the same time without one.

    Each server's report of its heartbeats is a patch of its own if the reports do not arrive together.
    """
    began = _Used.until_now(chrome, console)
    time.sleep(_IDLE_SECONDS)
    idle = _Used.until_now(chrome, console).since(began)
    chrome.execute_script(_COUNT_HEARTBEATS)
    began = _Used.until_now(chrome, console)
    for wire in wires:
        wire.send(heartbeats)
        wire.skip(_BROKERS)
    WebDriverWait(chrome, PATIENCE_SECONDS, 0.2).until(
        lambda it: it.execute_script("return window.heartbeats >= arguments[0]", _BROKERS * SERVERS)
    )
    busy = _Used.until_now(chrome, console).since(began)
    patches = chrome.execute_script("return window.patches")
    idle_share = busy.seconds / idle.seconds
    return (
        (busy.browser_ms - idle_share * idle.browser_ms) / patches,
        (busy.console_ms - idle_share * idle.console_ms) / patches,
    )


def _task_seconds(chrome: webdriver.Chrome) -> float:
    metrics: dict[str, Any] = chrome.execute_cdp_cmd("Performance.getMetrics", {})
    return next(float(one["value"]) for one in metrics["metrics"] if one["name"] == "TaskDuration")
