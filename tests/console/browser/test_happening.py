"""The age bar of a broker that hangs, in a real browser."""

import signal
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest
from selenium import webdriver

from tests.support.agents import NAME, side_car
from tests.support.browser import console, show
from tests.support.console_process import ConsoleProcess, shown
from tests.support.daemon import Daemon

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

# Records the width and the colour of the first age bar whenever they change.
FOLLOW: Final = """
    window.bars = [];
    setInterval(() => {
        const left = document.querySelector(".age .left");
        if (!left) return;
        const seen = [parseFloat(left.getAttribute("width")), getComputedStyle(left).fill];
        if (String(window.bars.at(-1)) !== String(seen)) window.bars.push(seen);
    }, 50);
"""
# Tolerance of a bar's width: a response on a busy machine changes the age by three seconds of twelve.
_JITTER: Final = 25


def test_bar_of_a_hanging_broker_shrinks_until_its_eviction(opened: webdriver.Chrome, tmp_path: Path) -> None:
    """While heartbeats arrive the bar is full; then it only shrinks, green, amber, red, until the eviction."""
    quick = ("--broker-expiry-seconds=12", "--scan-interval-seconds=0.5")
    with (
        Daemon(tmp_path / "1", *quick).listening() as daemon,
        side_car(tmp_path / "agent.toml", daemon) as agent,
        ConsoleProcess(daemon.where) as running,
    ):
        daemon.wait_for("broker_registered", broker_name=NAME)
        show(opened, f"{running.url()}brokers")
        shown(opened, "return document.querySelector('.age:not(.late):not(.dying)')")

        agent.send_signal(signal.SIGSTOP)
        opened.execute_script(FOLLOW)
        shown(opened, "return document.querySelector('.age.dying')")
        assert daemon.wait_for("broker_evicted", broker_name=NAME)["reason"] == "silent"
        shown(opened, "return !document.querySelector('.age')")

        bars = opened.execute_script("return window.bars")
        # The last heartbeat before the broker hangs may still be on its way.
        falling = bars[bars.index(max(bars, key=lambda bar: bar[0])) :]
        assert len(falling) > 10
        assert all(later < earlier + _JITTER for (earlier, _), (later, _) in pairwise(falling))
        assert len(dict.fromkeys(colour for _, colour in falling)) == 3
        assert console(opened) == []


# The title that the pointer brings out of a cell, in one script: between two, an update may replace the cell.
TITLE: Final = """
    const cell = document.querySelector(".heat .cell");
    cell.dispatchEvent(new PointerEvent("pointerover", { bubbles: true }));
    return cell.title;
"""
# True if the cells of the heat map have the colour of this token, one for each of its servers.
CELLS: Final = """
    const probe = document.createElement("i");
    probe.style.background = `var(--${arguments[0]})`;
    document.body.append(probe);
    const wanted = getComputedStyle(probe).backgroundColor;
    probe.remove();
    const cells = [...document.querySelectorAll(".heat .cell")];
    return cells.length === 1 && cells.every(cell => getComputedStyle(cell).backgroundColor === wanted);
"""


def test_cell_of_a_killed_broker_changes_its_colour(opened: webdriver.Chrome, tmp_path: Path) -> None:
    """The heat map's cell is green while the broker sends heartbeats, names its age, and turns red when it is gone."""
    with (
        Daemon(tmp_path / "1", "--nameserver-name=ns1").listening() as daemon,
        side_car(tmp_path / "agent.toml", daemon) as agent,
        ConsoleProcess(daemon.where) as running,
    ):
        daemon.wait_for("broker_registered", broker_name=NAME)
        show(opened, running.url())
        shown(opened, CELLS, "good")
        assert opened.execute_script(TITLE).startswith(f"{NAME}/0, ns1: seen ")

        agent.send_signal(signal.SIGKILL)
        shown(opened, CELLS, "bad-back")
        assert opened.execute_script(TITLE) == f"{NAME}/0, ns1: missing"
        assert console(opened) == []
