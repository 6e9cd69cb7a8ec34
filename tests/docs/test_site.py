"""The documentation as a site: every page is in it, no link is broken, nothing comes from elsewhere, search finds."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from tests.support.browser import browser
from tests.support.fake_clock import GUARD_SECONDS
from tests.support.pages import ROOT, pages


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` builds it; a warning ends that."""
    directory = tmp_path_factory.mktemp("site")
    command = ["sh", "tools/site.sh", "build", "--site-dir", str(directory)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return directory


class Loads(HTMLParser):
    """What a browser loads for a page; where its links lead is another matter."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Everything but a link that somebody has to click."""
        names = ("src", "srcset", "data", "poster") + (() if tag == "a" else ("href",))
        self.found |= {value for name, value in attrs if name in names and value}


@pytest.mark.slow
@pytest.mark.xdist_group("site")
def test_site_loads_nothing_from_elsewhere(site: Path) -> None:
    """So that it can be read without a network."""
    built = sorted(site.rglob("*.html"))
    assert len(built) > len(pages())
    elsewhere = {url for page in built for url in Loads(page).found if "//" in url}
    assert set() == elsewhere
    assert [sheet.name for sheet in site.rglob("*.css") if "url(http" in sheet.read_text()] == []


@contextmanager
def served(directory: Path) -> Iterator[str]:
    """A directory over HTTP."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(directory))) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class Quiet(SimpleHTTPRequestHandler):
    """Without a line for each request."""

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@pytest.mark.slow
@pytest.mark.xdist_group("site")
def test_search_finds_in_both_languages(site: Path, tmp_path: Path) -> None:
    """An English word, and Chinese ones in the middle of a sentence, which only jieba tells apart."""
    with served(site) as address, browser(tmp_path) as opened:
        for words, page in (("wipeWritePerm", "docs/migrating.html"), ("写权限", "docs/zh/migrating.html")):
            opened.get(f"{address}/index.html?q={words}")
            found = WebDriverWait(opened, GUARD_SECONDS).until(
                lambda driver: driver.find_elements(By.CSS_SELECTOR, ".md-search-result__link")
            )
            targets = [link.get_attribute("href") or "" for link in found]
            assert any(page in target for target in targets), (words, targets)
