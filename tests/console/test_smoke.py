"""The console's script in a real browser."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.wait import WebDriverWait

from tests.console.test_cli import COMMAND
from tests.support.browser import browser, console
from tests.support.daemon import Daemon
from tests.support.fake_clock import GUARD_SECONDS
from tests.support.peer import Broker, Peer
from tests.support.printing_process import PatternProcess

pytestmark = pytest.mark.slow


@pytest.fixture
def shown(tmp_path: Path) -> Iterator[tuple[webdriver.Chrome, Peer, str]]:
    """The page of brokers, of a real server with one broker, in a browser; a peer of the server; the console's URL."""
    with ExitStack() as stack:
        server = stack.enter_context(Daemon(tmp_path / "data")).listening()
        peer = stack.enter_context(Peer(server.address))
        Broker().register(peer)
        running = stack.enter_context(PatternProcess([*COMMAND, "--server", server.where]))
        url = running.wait_for("^namesrv-console: http").removeprefix("namesrv-console: ")
        opened = stack.enter_context(browser(tmp_path / "profile"))
        opened.get(f"{url}brokers")
        yield opened, peer, url


def test_bars_shrink_updates_arrive_and_keys_work(shown: tuple[webdriver.Chrome, Peer, str]) -> None:
    """The page works without inline scripts and styles, and sends no request to another host."""
    opened, peer, url = shown
    wait = WebDriverWait(opened, GUARD_SECONDS, poll_frequency=0.05)
    wait.until(lambda page: page.find_elements(By.CSS_SELECTOR, "[data-last-seen]"))

    def width() -> float:
        left = opened.find_element(By.CSS_SELECTOR, "[data-last-seen] .left")
        return float((left.get_attribute("width") or "0%").removesuffix("%"))

    began = width()
    wait.until(lambda _: 0 < width() < began)
    assert "seen" in str(opened.find_element(By.CSS_SELECTOR, "[data-last-seen]").get_attribute("aria-label"))

    Broker(name="broker-b", addr="10.0.0.2:10911").register(peer)
    registered = time.monotonic()
    wait.until(lambda page: "broker-b" in page.page_source)
    # Half a second on an idle machine; with many tests it takes longer.
    assert time.monotonic() - registered < 5

    body = opened.find_element(By.TAG_NAME, "body")
    body.send_keys("p")
    wait.until(lambda page: page.find_element(By.ID, "pause").get_attribute("aria-pressed") == "true")
    stopped = width()
    Broker(name="broker-c", addr="10.0.0.3:10911").register(peer)
    body.send_keys("/")
    field = opened.switch_to.active_element
    field.send_keys("broker-b")
    wait.until(lambda page: page.find_elements(By.CSS_SELECTOR, "#found a"))
    assert stopped == width()
    assert "broker-c" not in opened.find_element(By.ID, "tree").text
    field.send_keys(Keys.ENTER)
    wait.until(lambda page: "broker-b" in page.find_element(By.TAG_NAME, "h1").text)

    assert console(opened) == []
    asked = opened.execute_script("return performance.getEntriesByType('resource').map(entry => entry.name)")
    assert [address for address in asked if not address.startswith(url)] == []


def test_more_windows_than_a_browser_has_connections(shown: tuple[webdriver.Chrome, Peer, str]) -> None:
    """A browser has six connections to a host: with more windows every page still loads and receives updates."""
    opened, peer, url = shown
    for _ in range(8):
        opened.switch_to.new_window("window")
        opened.get(f"{url}brokers")
        assert not opened.execute_script("return document.hidden")
    Broker(name="broker-b", addr="10.0.0.2:10911").register(peer)

    for window in opened.window_handles:
        opened.switch_to.window(window)
        WebDriverWait(opened, GUARD_SECONDS).until(lambda page: "broker-b" in page.page_source)
