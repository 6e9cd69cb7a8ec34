"""One browser for all tests of the console."""

from collections.abc import Iterator

import pytest
from selenium import webdriver

from tests.support.browser import browser, console


@pytest.fixture(scope="package")
def chrome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    """It costs seconds to start."""
    with browser(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture
def opened(chrome: webdriver.Chrome) -> webdriver.Chrome:
    """The browser, without a page that complains that the console of the last test is gone."""
    chrome.get("about:blank")
    console(chrome)
    return chrome
