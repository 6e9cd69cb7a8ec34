"""What a person sees in a browser while brokers and NameServers fail."""

import signal
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest
from selenium import webdriver

from tests.support.agents import NAME, side_car
from tests.support.browser import console, show
from tests.support.console_process import READY, ConsoleProcess, shown
from tests.support.daemon import Daemon
from tests.support.peer import Broker, Peer

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

# writes down what is left of the first age bar, and its colour, whenever they change
FOLLOW: Final = """
    window.bars = [];
    setInterval(() => {
        const left = document.querySelector(".age .left");
        if (!left) return;
        const seen = [Number(left.getAttribute("width")), getComputedStyle(left).fill];
        if (String(window.bars.at(-1)) !== String(seen)) window.bars.push(seen);
    }, 50);
"""
# of a bar: what an answer that came late makes of an age, half a second of six
_JITTER: Final = 8
TEXT: Final = "return document.querySelector(arguments[0])?.innerText.includes(arguments[1])"
NO_TEXT: Final = "return !document.querySelector(arguments[0])?.innerText.includes(arguments[1])"
CHIP: Final = """
    return [...document.querySelectorAll(`.chip.${arguments[1]}`)].some(one => one.innerText.includes(arguments[0]));
"""


def test_a_frozen_broker_drains_turns_and_is_gone(opened: webdriver.Chrome, tmp_path: Path) -> None:
    """While it is heard its bar is full; then it only gets shorter, green, amber, red, until the eviction."""
    quick = ("--broker-expiry-seconds=6", "--scan-interval-seconds=0.5")
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
        assert "silent" == daemon.wait_for("broker_evicted", broker_name=NAME)["reason"]
        shown(opened, "return !document.querySelector('.age')")

        bars = opened.execute_script("return window.bars")
        # the last heartbeat before it froze may be on its way
        falling = bars[bars.index(max(bars, key=lambda bar: bar[0])) :]
        assert len(falling) > 10
        assert all(later < earlier + _JITTER for (earlier, _), (later, _) in pairwise(falling))
        assert 3 == len(dict.fromkeys(colour for _, colour in falling))
        assert [] == console(opened)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_lost_server_is_told_and_delays_nobody(
    opened: webdriver.Chrome, tmp_path: Path, number: signal.Signals
) -> None:
    """Whether it was killed or hangs: its chip turns, its cells are grey, and what the other one says goes on."""
    with (
        Daemon(tmp_path / "1").listening() as one,
        Daemon(tmp_path / "2").listening() as two,
        Peer(one.address) as first,
        Peer(two.address) as second,
        ConsoleProcess(one.where, two.where) as running,
    ):
        for peer in (first, second):
            Broker().register(peer)
        show(opened, f"{running.url()}brokers")
        shown(opened, READY)

        two.send_signal(number)
        shown(opened, CHIP, two.where, "unreachable")
        shown(opened, "return document.querySelectorAll('.age.frozen').length === 1")
        Broker(name="broker-b", addr="10.0.0.2:10911").register(first)
        shown(opened, TEXT, "main", "broker-b")
        assert opened.execute_script(CHIP, one.where, "ready")

        if number == signal.SIGSTOP:
            two.send_signal(signal.SIGCONT)
            shown(opened, CHIP, two.where, "ready")


def test_servers_that_disagree_are_told_until_they_agree(opened: webdriver.Chrome, tmp_path: Path) -> None:
    """On the overview and the diff, without anybody touching the page; a broker that registers ends it."""
    with (
        Daemon(tmp_path / "1").listening() as one,
        Daemon(tmp_path / "2").listening() as two,
        Peer(one.address) as first,
        Peer(two.address) as second,
        ConsoleProcess(one.where, two.where) as running,
    ):
        url = running.url()
        show(opened, url)
        shown(opened, READY)
        shown(opened, TEXT, "#agreement", "All 2 servers agree.")

        Broker().register(first)
        shown(opened, TEXT, "#agreement", f"missing on {two.where}")
        show(opened, f"{url}diff")
        shown(opened, TEXT, "#differences", "cluster-a/broker-a/0")

        Broker().register(second)
        shown(opened, NO_TEXT, "#differences", "cluster-a/broker-a/0")
        assert [] == console(opened)
