"""Signing in and acting in a real browser, under the policy that pages have."""

from pathlib import Path

import pytest
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from tests.console.test_cli import COMMAND
from tests.support.browser import browser, console
from tests.support.console_access import PASSWORD, write_users
from tests.support.daemon import Daemon
from tests.support.peer import Broker, Peer
from tests.support.talking_process import PatternProcess


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 420])
def test_operator_signs_in_acts_and_leaves(tmp_path: Path, width: int) -> None:
    """A link to a broker leads to the page to sign in and on; its write permission goes; nothing sticks out."""
    flags = [f"--users={write_users(tmp_path / 'users')}", f"--audit-log-dir={tmp_path / 'trail'}", "--actions"]
    with (
        Daemon(tmp_path / "data").listening() as server,
        Peer(server.address) as peer,
        PatternProcess([*COMMAND, "--server", server.where, *flags]) as process,
        browser(tmp_path / "profile") as page,
    ):
        broker = Broker()
        broker.register(peer)
        url = process.wait_for("^namesrv-console: http").removeprefix("namesrv-console: ")
        wait = WebDriverWait(page, 30, poll_frequency=0.05, ignored_exceptions=[StaleElementReferenceException])

        def see(css: str, text: str = "") -> None:
            wait.until(lambda it: any(text in found.text for found in it.find_elements(By.CSS_SELECTOR, css)))
            assert not page.execute_script("return document.documentElement.scrollWidth > innerWidth")

        def press(css: str) -> None:
            wait.until(lambda it: it.find_elements(By.CSS_SELECTOR, css))[0].click()

        screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
        page.get(f"{url}broker?cluster={broker.cluster}&name={broker.name}")
        see("h1", "Sign in")
        page.find_element(By.ID, "name").send_keys("olga")
        page.find_element(By.ID, "password").send_keys(f"{PASSWORD} of olga")
        press("form.fields button")
        see("h1", broker.name)
        see(".user", "olga (operator)")

        press("a[href^='/actions/wipe-write-perm']")
        see("table", "RW-")
        page.find_element(By.ID, "confirm").send_keys(broker.name)
        press("button.danger")
        see("p.good", "Done on 1 of 1 servers.")
        see("#command", f"namesrvctl -s {server.where} wipe-write-perm {broker.name}")
        press("[data-copies]")
        see("[data-copies]", "Copied")

        press(".user button")
        see("h1", "Sign in")
        assert [] == console(page)
