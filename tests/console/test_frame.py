"""The frame of all pages: languages, colours, and catalogues with the same keys."""

import base64
import hashlib
import re
import string
from pathlib import Path

import pytest

from namesrv_client.ctl.audit_trail import TEXTS
from namesrv_console.app import PAGES
from namesrv_console.catalogue import LANGUAGES, catalogue, chosen_language
from tests.support.console import console
from tests.support.fake_clock import FakeClock


def test_every_language_has_the_same_words() -> None:
    """The same keys in the same order, and the same places for values in each text."""

    def shape(language: str) -> list[tuple[str, set[str | None]]]:
        texts = catalogue(language).texts
        return [
            (key, {name for _, name, _, _ in string.Formatter().parse(text)} - {None}) for key, text in texts.items()
        ]

    english, *others = map(shape, LANGUAGES)
    for other in others:
        assert english == other


def test_the_audit_page_has_the_texts_of_namesrvctl() -> None:
    """Sentences about audit lines have the same keys, and in English the same words, as in `namesrvctl audit`."""
    texts = {key.removeprefix("act."): text for key, text in catalogue("en").texts.items() if key.startswith("act.")}

    assert texts == TEXTS


_PLURALS = "acts|brokers|connections|differences|groups|queues|rows|servers|topics"


def test_one_is_singular() -> None:
    """No English text has a number of one and a noun in the plural; texts for many are for larger numbers."""
    filled = {
        key: catalogue("en").text(key, **{name: 1 for _, name, _, _ in string.Formatter().parse(text) if name})
        for key, text in catalogue("en").texts.items()
        if not key.endswith("_many")
    }

    assert [text for text in filled.values() if re.search(rf"\b1 ([a-z]+ )?({_PLURALS})\b", text)] == []
    assert filled["verdict.all_good"] == "1 broker, 1 topic, 1 server"
    assert catalogue("en").text("verdict.all_good", brokers=1_000, topics=0, servers=3) == (
        "1,000 brokers, 0 topics, 3 servers"
    )


@pytest.mark.parametrize(
    ("wanted", "accepted", "chosen"),
    [
        (None, "", "en"),
        (None, "zh-CN,zh;q=0.9,en;q=0.8", "zh"),
        (None, "fr, en-GB;q=0.4, zh;q=0.6", "zh"),
        ("en", "zh", "en"),
        ("xx", "de;q=x, zh", "zh"),
    ],
)
def test_the_language_is_the_chosen_one_or_the_browsers(wanted: str | None, accepted: str, chosen: str) -> None:
    """The user's choice counts; else the first known language that the browser accepts; else English."""
    assert chosen_language(wanted, accepted) == chosen


async def test_preferences_are_kept_and_lead_back(tmp_path: Path) -> None:
    """Language and colours are kept in cookies; the redirect leads back to a page of the console only."""
    async with console(FakeClock(), "127.0.0.1:1") as shown:
        back = await shown.http.get("/preferences", params={"language": "zh", "theme": "dark", "back": "/brokers?x=1"})
        away = await shown.http.get("/preferences", params={"language": "xx", "back": "//elsewhere.example/"})
        page = await shown.text("/brokers")

    assert [answer.headers["location"] for answer in (back, away)] == ["/brokers?x=1", "/"]
    assert 'lang="zh" data-theme="dark"' in page
    assert "<h1>Broker</h1>" in page


async def test_files_are_kept_by_browsers_and_pages_are_not() -> None:
    """A page names the version of its files, which browsers keep; pages themselves are never cached."""
    async with console(FakeClock(), "127.0.0.1:1") as shown:
        page = await shown.http.get("/")
        names = re.findall(r'(?:src|href)="(/static/[^"]*)"', page.text)
        files = [await shown.http.get(name) for name in names]

    assert page.headers["cache-control"] == "no-store"
    assert len(files) == 2
    for name, file in zip(names, files, strict=True):
        assert re.search(r"\?v=[0-9a-f]{12}$", name)
        assert (file.status_code, file.headers["cache-control"]) == (200, "public, max-age=31536000, immutable")


async def test_page_contains_the_style_sheet_that_its_policy_allows() -> None:
    """The first paint waits for no second request; the policy allows the style sheet by its digest, and no other."""
    async with console(FakeClock(), "127.0.0.1:1") as shown:
        page = await shown.http.get("/")

    (style,) = re.findall(r"<style>(.*?)</style>", page.text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in page.headers["content-security-policy"].split("; ")


async def test_menu_has_six_groups_and_a_key_for_each_page() -> None:
    """The menu lists groups, and the pages of the open group; each page of the menu has a key of its own."""
    async with console(FakeClock(), "127.0.0.1:1") as shown:
        html = await shown.text("/settings")
        topic = await shown.text("/topic?name=T")

    menu, pages = re.findall(r'<nav class="menu".*?</nav>', html, re.DOTALL)
    assert re.findall(r">(\w[\w ]*)</a>", menu) == ["Overview", "Brokers", "Topics", "NameServers", "Past", "Changes"]
    assert re.findall(r">(\w[\w ]*)</a>", pages) == ["Rates", "Diff", "Clients", "Settings", "KV"]
    assert 'aria-current="true">NameServers</a>' in menu
    assert 'aria-current="page">Settings</a>' in pages
    assert 'aria-current="true">Topics' in topic
    keys = [page.key for page in PAGES if page.key is not None]
    assert len({*keys}) == len(keys)
    assert re.findall(r'data-key="(.)"', html) == keys


NOT_FOUND, NOT_SHOWN = ("Page not found", "页面不存在"), ("This page cannot be shown", "无法显示此页面")


@pytest.mark.parametrize(
    ("path", "status", "titles", "why"),
    [
        ("/nowhere", 404, NOT_FOUND, "no such page"),
        (f"/topic?name={'x' * 1001}", 400, NOT_SHOWN, "name: longer than 1,000 characters"),
        ("/strip.svg", 404, NOT_SHOWN, "no logs"),
        ("/what-if/report.html", 404, NOT_SHOWN, "no logs"),
    ],
)
async def test_page_that_cannot_be_shown_has_the_frame(
    path: str, status: int, titles: tuple[str, str], why: str
) -> None:
    """A browser gets the reason below the menu, a program as a line."""
    html = {"accept": "text/html"}
    async with console(FakeClock(), "127.0.0.1:1") as shown:
        english = await shown.http.get(path, headers=html)
        chinese = await shown.http.get(path, headers=html | {"accept-language": "zh"})
        plain = await shown.http.get(path, headers={"accept": "image/svg+xml"})

    assert [one.status_code for one in (english, chinese, plain)] == [status] * 3
    for page, title in zip((english, chinese), titles, strict=True):
        assert f"<h1>{title}</h1>" in page.text
    assert '<nav class="menu" aria-label="Pages">' in english.text
    assert f"<bdi>{'/nowhere' if path == '/nowhere' else why}</bdi>" in english.text
    assert plain.text == f"{why}\n"


async def test_visitor_who_is_not_signed_in_gets_no_frame() -> None:
    """A public path may be that of such a visitor, and the frame shows the servers."""
    async with console(FakeClock(), "127.0.0.1:1") as shown:
        answer = await shown.http.get("/static/nothing.js", headers={"accept": "text/html"})

    assert (answer.status_code, answer.text) == (404, "no such page\n")
