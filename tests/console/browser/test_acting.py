"""Signing in and making changes in a real browser, under the pages' content security policy."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException, TimeoutException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

from tests.console.browser.test_pages import TOO_WIDE, violations
from tests.console.browser.test_pictures import DESK, PHONE, pictures
from tests.console.test_cli import COMMAND
from tests.support.browser import console, show, take_picture
from tests.support.console_access import PASSWORD, write_users
from tests.support.daemon import Daemon
from tests.support.fake_clock import GUARD_SECONDS
from tests.support.peer import Broker, Peer
from tests.support.printing_process import PatternProcess

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """A console with users and actions, of two servers and a broker."""
    users = write_users(tmp_path / "users")
    flags = [f"--users={users}", f"--audit-log-dir={tmp_path / 'trail'}", "--actions"]
    with ExitStack() as stack:
        for name in ("ns1", "ns2"):
            server = stack.enter_context(Daemon(tmp_path / name, f"--nameserver-name={name}").listening())
            flags.append(f"--server={server.where}")
            Broker(cluster="shop").register(stack.enter_context(Peer(server.address)))
        process = stack.enter_context(PatternProcess([*COMMAND, *flags]))
        yield process.wait_for("^namesrv-console: http").removeprefix("namesrv-console: ")


# One script, since the console may replace an element between two calls of the driver.
_HAS_TEXT: Final = """return [...document.querySelectorAll(arguments[0])]
    .some((element) => element.checkVisibility() && element.innerText.includes(arguments[1]))"""


class Screen:
    """A browser, by what a user sees and presses."""

    def __init__(self, opened: webdriver.Chrome) -> None:
        self._opened = opened
        self._wait = WebDriverWait(opened, GUARD_SECONDS, 0.05, [StaleElementReferenceException])

    def see(self, css: str, text: str) -> None:
        """Wait for a text in one of these elements."""
        try:
            self._wait.until(lambda page: page.execute_script(_HAS_TEXT, css, text))
        except TimeoutException:
            shown = self._opened.find_element(By.TAG_NAME, "body").text
            pytest.fail(f"no {text!r} in {css} of the page:\n{shown}")

    def wait_for_title(self, title: str) -> None:
        """Wait for a title of the tab, which the page's script sets together with the icon."""
        self._wait.until(lambda page: page.title == title)

    def press(self, css: str) -> None:
        """Click an element once it is there."""
        self._with_element(css, WebElement.click)

    def type(self, css: str, *keys: str) -> None:
        """Type into an element once it is there."""
        self._with_element(css, lambda element: element.send_keys(*keys))

    def _with_element(self, css: str, act: Callable[[WebElement], None]) -> None:
        """Act on an element; one that the console has replaced meanwhile is looked up again."""

        def is_done(page: webdriver.Chrome) -> bool:
            act(page.find_element(By.CSS_SELECTOR, css))
            return True

        self._wait.until(is_done)

    def sign_in(self, name: str) -> None:
        """Fill in the login page."""
        self.type("#name", name)
        self.type("#password", f"{PASSWORD} of {name}")
        self.press("form.fields button")


@pytest.mark.parametrize(("size", "scheme"), [(DESK, "light"), (PHONE, "dark")])
def test_operator_signs_in_acts_and_leaves(
    opened: webdriver.Chrome, tmp_path: Path, url: str, size: tuple[int, int], scheme: str
) -> None:
    """A link to a broker leads over the login page; its write permission is removed; axe finds no violation."""
    screen = Screen(opened)
    see, press = screen.see, screen.press

    def looks_good(name: str | None = None) -> None:
        """Check the page for accessibility, and take a picture if it has a name."""
        assert opened.execute_script(TOO_WIDE) == []
        assert violations(opened) == []
        if name is not None and size == DESK:
            take_picture(opened, pictures(tmp_path / "pictures") / f"console-{name}.png", clip=(*size, 0.7))

    show(opened, f"{url}broker?cluster=shop&name=broker-a", size=size, scheme=scheme)
    see("h1", "Sign in")
    looks_good("login")
    screen.sign_in("olga")
    see("h1", "broker-a")
    see(".user", "olga (operator)")

    press("a[href^='/actions/wipe-write-perm']")
    see("table", "RW-")
    looks_good("action")
    screen.type("#confirm", "broker-a")
    press("button.danger")
    see("p.good", "Carried out on 2 of 2 servers.")
    see("#command", " wipe-write-perm broker-a")
    looks_good()
    press("[data-copies]")
    see("[data-copies]", "Copied")

    # The keyboard alone acknowledges the problem that the action has caused.
    show(opened, url, size=size, scheme=scheme)
    see("#verdict", "1 group without write permission")
    # Between its polls of the two servers, the console knows the problem of one server, and that the servers disagree.
    see("#problems", "of 2 topics on ns1, ns2")
    screen.type("#problems a.act[href*='kind=write_removed']", Keys.ENTER)
    see("h1", "Acknowledge a problem")
    looks_good()
    screen.type("#why:focus", "maintenance until noon", Keys.ENTER)
    see("#problems .acknowledged", "acknowledged by olga (maintenance until noon) until")
    see("#verdict.acknowledged", "Acknowledged 1 group without write permission")
    screen.wait_for_title("Acknowledged 1 group without write permission · Overview · namesrv console")
    assert "icon-acknowledged.svg" in opened.execute_script("return document.getElementById('icon').href")
    looks_good()

    press("a[href='/actions']")
    see("h2", "Delete topic")
    looks_good()
    press(".user button")
    see("h1", "Sign in")

    screen.sign_in("vera")
    see(".user", "vera (viewer)")
    press("a.brand")
    see("#problems .acknowledged", "acknowledged by olga")
    assert not opened.execute_script("return document.querySelector('#problems a.act').checkVisibility()")
    assert console(opened) == []
