"""A real headless Chromium that opens pages."""

import base64
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from selenium import webdriver

from tests.support.fake_clock import GUARD_SECONDS

DESKTOP: Final = (1280, 900)
PHONE: Final = (390, 844)
MISSING: Final = "NO BROWSER: chromium and chromedriver are not here; tests/spark_jobs/setup_browser.sh installs them"
_FLAGS: Final = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
    *("--disable-extensions", "--hide-scrollbars", "--force-device-scale-factor=1"),
)


@contextmanager
def browser(profile: Path) -> Iterator[webdriver.Chrome]:
    """A browser with a new profile that logs requests and console messages."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip(MISSING)
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*_FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    opened = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    try:
        opened.set_page_load_timeout(GUARD_SECONDS)
        yield opened
    finally:
        opened.quit()


def show(opened: webdriver.Chrome, page: Path | str, *, size: tuple[int, int] = DESKTOP, scheme: str = "light") -> None:
    """Open a page (a file or an address) at this screen size and color scheme."""
    width, height = size
    screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": size == PHONE}
    opened.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    preference = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", preference)
    opened.get(page if isinstance(page, str) else page.as_uri())


def take_picture(opened: webdriver.Chrome, target: Path, *, clip: tuple[int, int, float] | None = None) -> None:
    """Save a picture of the whole page, or of its top with this width and height, scaled."""
    how: dict[str, Any] = {"captureBeyondViewport": True, "format": "png"}
    if clip is not None:
        how["clip"] = {"x": 0, "y": 0, "width": clip[0], "height": clip[1], "scale": clip[2]}
    taken = opened.execute_cdp_cmd("Page.captureScreenshot", how)
    target.write_bytes(base64.b64decode(taken["data"]))


def console(opened: webdriver.Chrome) -> list[str]:
    """Console messages since the last call."""
    return [entry["message"] for entry in _log(opened, "browser")]


def requested(opened: webdriver.Chrome, page: Path) -> list[str]:
    """Addresses requested since the last call by this page (itself included), not by the browser's own pages."""
    entries = _log(opened, "performance")
    messages: list[dict[str, Any]] = [json.loads(entry["message"])["message"] for entry in entries]
    sent = [one["params"] for one in messages if one["method"] == "Network.requestWillBeSent"]
    return [one["request"]["url"] for one in sent if one["documentURL"] == page.as_uri()]


def _log(opened: webdriver.Chrome, name: str) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = opened.get_log(name)  # type: ignore[no-untyped-call]  # selenium types it not
    return entries
