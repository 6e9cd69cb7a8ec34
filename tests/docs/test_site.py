"""The documentation site: complete, without broken links or external resources, with search."""

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
    """The site as built by `make docs`; a warning fails the build."""
    directory = tmp_path_factory.mktemp("site")
    command = ["sh", "tools/site.sh", "build", "--site-dir", str(directory)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return directory


class Loads(HTMLParser):
    """Collects the resources that a browser loads for a page, without its links."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect the addresses of every tag but links."""
        names = ("src", "srcset", "data", "poster") + (() if tag == "a" else ("href",))
        self.found |= {value for name, value in attrs if name in names and value}


@pytest.mark.slow
@pytest.mark.xdist_group("site")
def test_site_loads_no_external_resource(site: Path) -> None:
    """The site must be readable without a network."""
    built = sorted(site.rglob("*.html"))
    assert len(built) > len(pages())
    elsewhere = {url for page in built for url in Loads(page).found if "//" in url}
    assert elsewhere == set()
    assert [sheet.name for sheet in site.rglob("*.css") if "url(http" in sheet.read_text()] == []


@contextmanager
def served(directory: Path) -> Iterator[str]:
    """Serve a directory over HTTP."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(directory))) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class Quiet(SimpleHTTPRequestHandler):
    """A request handler without a log."""

    def log_message(self, *args: object) -> None:
        """Log nothing."""


@pytest.mark.slow
@pytest.mark.xdist_group("site")
def test_search_works_in_both_languages(site: Path, tmp_path: Path) -> None:
    """The index finds an English word, and Chinese words within a sentence, which only jieba separates."""
    with served(site) as address, browser(tmp_path) as opened:
        for words, page in (("wipeWritePerm", "docs/migrating.html"), ("写权限", "docs/zh/migrating.html")):
            opened.get(f"{address}/index.html?q={words}")
            found = WebDriverWait(opened, GUARD_SECONDS).until(
                lambda driver: driver.find_elements(By.CSS_SELECTOR, ".md-search-result__link")
            )
            targets = [link.get_attribute("href") or "" for link in found]
            assert any(page in target for target in targets), (words, targets)
