"""One browser for all tests of the console."""

from collections.abc import Iterator

import pytest
from selenium import webdriver

from tests.support.browser import browser, console


@pytest.fixture(scope="package")
def chrome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    """One Chrome for all tests, since its start takes seconds."""
    with browser(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture
def opened(chrome: webdriver.Chrome) -> webdriver.Chrome:
    """The browser on an empty page: a page of the last test would log errors, since its console has ended."""
    chrome.get("about:blank")
    console(chrome)
    return chrome
