"""The console's script in a real browser: updates, keys, and many windows."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.wait import WebDriverWait

from tests.console.test_cli import COMMAND
from tests.support.browser import console, show
from tests.support.console_process import ConsoleProcess, shown
from tests.support.daemon import Daemon
from tests.support.fake_clock import GUARD_SECONDS
from tests.support.peer import Broker, Peer
from tests.support.printing_process import PatternProcess

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Peer, str]]:
    """A peer of a real server with one broker, and the URL of a console of this server."""
    with (
        Daemon(tmp_path / "data") as server,
        Peer(server.listening().address) as peer,
        PatternProcess([*COMMAND, "--server", server.where]) as running,
    ):
        Broker().register(peer)
        yield peer, running.wait_for("^namesrv-console: http").removeprefix("namesrv-console: ")


@pytest.fixture
def windows(opened: webdriver.Chrome) -> Iterator[webdriver.Chrome]:
    """The browser, whose further windows are closed at the end."""
    first = opened.current_window_handle
    yield opened
    for window in opened.window_handles:
        if window != first:
            opened.switch_to.window(window)
            opened.close()
    opened.switch_to.window(first)


def test_bars_shrink_updates_arrive_and_keys_work(opened: webdriver.Chrome, served: tuple[Peer, str]) -> None:
    """The page works without inline scripts and styles, and sends no request to another host."""
    peer, url = served
    show(opened, f"{url}brokers")
    # A page that is being left has elements for a moment that the next one has replaced.
    wait = WebDriverWait(opened, GUARD_SECONDS, 0.05, [StaleElementReferenceException])

    began = shown(opened, f"return {WIDTH}")
    shown(opened, f"return 0 < {WIDTH} && {WIDTH} < arguments[0]", began)
    assert "seen" in opened.execute_script("return document.querySelector('[data-last-seen]').ariaLabel")

    Broker(name="broker-b", addr="10.0.0.2:10911").register(peer)
    # within half a second: tests/console/test_live.py
    wait.until(lambda page: "broker-b" in page.page_source)

    body = opened.find_element(By.TAG_NAME, "body")
    body.send_keys("p")
    wait.until(lambda page: page.find_element(By.ID, "pause").get_attribute("aria-pressed") == "true")
    # The tab of a page that may be out of date does not look healthy.
    tab = opened.execute_script(TAB)
    assert (tab.startswith("as of "), tab.endswith(" · Brokers · namesrv console icon-unknown.svg")) == (True, True)
    stopped = opened.execute_script(f"return {WIDTH}")
    Broker(name="broker-c", addr="10.0.0.3:10911").register(peer)
    body.send_keys("/")
    field = opened.switch_to.active_element
    field.send_keys("broker-b")
    wait.until(lambda page: page.find_elements(By.CSS_SELECTOR, "#found a"))
    assert opened.execute_script(f"return {WIDTH}") == stopped
    assert "broker-c" not in opened.find_element(By.ID, "tree").text
    field.send_keys(Keys.ENTER)
    wait.until(lambda page: "broker-b" in page.find_element(By.TAG_NAME, "h1").text)

    # Enter before the hits of the last letter have arrived does not open one of the hits before.
    field = opened.find_element(By.ID, "search")
    field.send_keys("broker-a")
    wait.until(lambda page: page.find_elements(By.CSS_SELECTOR, "#found a"))
    field.send_keys("-none", Keys.ENTER)
    wait.until(lambda page: page.find_element(By.TAG_NAME, "h1").text == "Search")

    assert console(opened) == []
    asked = opened.execute_script("return performance.getEntriesByType('resource').map(entry => entry.name)")
    assert [address for address in asked if not address.startswith(url)] == []


# The width of the first age bar, which every update replaces: two calls of the driver could meet two of them.
WIDTH = "parseFloat(document.querySelector('[data-last-seen] .left')?.getAttribute('width') ?? 0)"
# Title and icon of the tab.
TAB = 'return [document.title, document.getElementById("icon").href.replace(/.*\\/|\\?.*/g, "")].join(" ")'
HIDE = """
    Object.defineProperty(document, "hidden", { value: !!arguments[0], configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
"""
LOST = "No connection to the console; this page is out of date · Overview"


def test_title_and_icon_of_a_tab_are_never_healthy_without_the_console(
    opened: webdriver.Chrome, tmp_path: Path
) -> None:
    """A hidden tab polls, since its title and icon are all that its user sees of it."""
    with (
        Daemon(tmp_path / "data").listening() as server,
        Peer(server.address) as peer,
        ConsoleProcess(server.where) as running,
    ):
        # Without any broker the verdict is unknown.
        Broker(name="broker-a", addr="10.0.0.1:10911").register(peer)
        show(opened, running.url())
        wait = WebDriverWait(opened, GUARD_SECONDS, poll_frequency=0.1)
        wait.until(lambda page: page.execute_script(TAB).endswith(" icon-good.svg"))
        opened.execute_script(HIDE, "hidden")
        server.kill()
        wait.until(lambda page: page.execute_script(TAB).endswith(" icon-critical.svg"))
        assert "1 server unreachable" in opened.title

        running.kill()
        wait.until(lambda page: page.title.startswith(LOST))
        opened.execute_script(HIDE, "")
        assert opened.execute_script(TAB).endswith(" icon-unknown.svg")
        assert opened.find_element(By.ID, "trouble").is_displayed()
    console(opened)


def test_more_windows_than_a_browser_has_connections(windows: webdriver.Chrome, served: tuple[Peer, str]) -> None:
    """A browser has six connections to a host: with more windows every page still loads and receives updates."""
    peer, url = served
    show(windows, f"{url}brokers")
    for _ in range(8):
        windows.switch_to.new_window("window")
        windows.get(f"{url}brokers")
        assert not windows.execute_script("return document.hidden")
    Broker(name="broker-b", addr="10.0.0.2:10911").register(peer)

    for window in windows.window_handles:
        windows.switch_to.window(window)
        WebDriverWait(windows, GUARD_SECONDS).until(lambda page: "broker-b" in page.page_source)
