"""Is the page one that a person would rather look at than read? Opened in a real browser."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from selenium import webdriver

from namesrv_spark_jobs.report.page import page
from tests.support.browser import DESKTOP, PHONE, browser, console, requested, show, take_picture
from tests.support.staleness_sample import NOTHING, empty_charts, empty_summary, sample_charts, sample_summary

# one worker gets all of them: a browser costs seconds
pytestmark = pytest.mark.xdist_group("browser")
EVIL = "<script>alert(1)</script>"
# breaks out of an attribute, if anything does
EVIL_QUOTE = "\"'><img src=x onerror=alert(1)>"
PICTURES = ("staleness-picture", "timeline-picture", "what-if-picture", "gaps-picture")


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    """One browser for all pages."""
    with browser(tmp_path_factory.mktemp("profile")) as chrome:
        yield chrome


def _page(folder: Path, text: str) -> Path:
    written = folder / "report.html"
    written.write_text(text, encoding="utf-8")
    return written


def _size(chrome: webdriver.Chrome, selector: str) -> tuple[float, float]:
    """Width and height of what of it is shown."""
    script = """
        const all = [...document.querySelectorAll(arguments[0])].map(x => x.getBoundingClientRect());
        const shown = all.filter(x => x.width > 0);
        return shown.length ? [shown[0].width, shown[0].height] : [0, 0];
    """
    width, height = chrome.execute_script(script, selector)
    return width, height


class _Outline(HTMLParser):
    """Elements of a page: names, ids, and the texts of its headings."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}
        given = dict(attrs)
        self.ids += [given["id"] or ""] if "id" in given else []
        self.links += [given["href"] or ""] if "href" in given else []


def _outline(text: str) -> _Outline:
    outline = _Outline()
    outline.feed(text)
    return outline


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_page_shows_its_pictures(opened: webdriver.Chrome, tmp_path: Path, size: tuple[int, int], scheme: str) -> None:
    """On a screen and on a phone, by day and by night; nothing is complained about, nothing asked for."""
    shown = _page(tmp_path, page(sample_summary(), sample_charts()))

    show(opened, shown, size=size, scheme=scheme)

    for name in PICTURES:
        width, height = _size(opened, f"#{name} svg")
        assert width > 0.7 * min(size[0], 1016), name
        assert height > 200, name
    assert [] == console(opened)
    assert [shown.as_uri()] == requested(opened, shown)
    take_picture(opened, tmp_path / f"{size[0]}-{scheme}.png")
    assert (tmp_path / f"{size[0]}-{scheme}.png").stat().st_size > 50_000


@pytest.mark.slow
def test_page_fits_a_phone(opened: webdriver.Chrome, tmp_path: Path) -> None:
    """Nothing has to be pushed sideways but wide tables, in their own frames; letters can be read."""
    show(opened, _page(tmp_path, page(sample_summary(), sample_charts())), size=PHONE)

    assert PHONE[0] >= opened.execute_script("return document.documentElement.scrollWidth")
    scale = """
        const drawing = document.querySelector("#timeline-picture svg.narrow");
        return drawing.getBoundingClientRect().width / drawing.viewBox.baseVal.width;
    """
    assert opened.execute_script(scale) > 0.8


@pytest.mark.slow
def test_colours_follow_the_preference(opened: webdriver.Chrome, tmp_path: Path) -> None:
    """A dark page has a dark ground, and light letters in its pictures."""
    shown = _page(tmp_path, page(sample_summary(), sample_charts()))
    grounds, letters = [], []
    for scheme in ("light", "dark"):
        show(opened, shown, scheme=scheme)
        grounds.append(opened.execute_script("return getComputedStyle(document.body).backgroundColor"))
        letters.append(opened.execute_script("return getComputedStyle(document.querySelector('svg text')).fill"))

    assert ["rgb(245, 246, 244)", "rgb(18, 21, 23)"] == grounds
    assert ["rgb(89, 99, 107)", "rgb(155, 165, 172)"] == letters


@pytest.mark.slow
@pytest.mark.parametrize("evil", [EVIL, EVIL_QUOTE])
def test_names_are_only_text(opened: webdriver.Chrome, tmp_path: Path, evil: str) -> None:
    """A topic, broker, server or file with markup for a name is shown with that name, and does nothing."""
    summary, charts = sample_summary(topic=evil, broker=f"c1/{evil}/0"), sample_charts(broker=f"c1/{evil}/0")
    summary["input"]["nameservers"] = [evil]
    summary["input"]["per_file"][0]["file"] = evil
    summary["findings"][0]["text"] = evil
    summary["settings"][0]["boot_id"] = evil
    charts["worst"][0]["reason"] = evil
    text = page(summary, charts)

    show(opened, _page(tmp_path, text))

    assert not {"script", "img"} & _outline(text).names
    assert not {name for name in _outline(text).attributes if name.startswith("on")}
    # an alert that was open would be an error here
    assert "How long stale routes lasted" == opened.title
    assert [] == console(opened)
    groups = opened.execute_script("return document.querySelector('#groups').textContent")
    assert evil in groups
    assert evil in opened.execute_script("return document.querySelector('.findings').textContent")


@pytest.mark.slow
def test_script_would_not_run_if_there_was_one(opened: webdriver.Chrome, tmp_path: Path) -> None:
    """The page's own policy refuses it, should escaping ever fail."""
    text = page(sample_summary(), sample_charts())
    injected = text.replace(
        "</body>", "<script>document.title = 'taken'</script><img src='http://127.0.0.1:9/x'></body>"
    )

    show(opened, _page(tmp_path, injected))

    assert "How long stale routes lasted" == opened.title
    complaints = console(opened)
    assert 2 == len(complaints)
    assert all("Content Security Policy" in complaint for complaint in complaints)


@pytest.mark.slow
def test_page_of_a_quiet_hour_has_words_in_place_of_pictures(opened: webdriver.Chrome, tmp_path: Path) -> None:
    """No eviction, no client, no beat: no error either."""
    show(opened, _page(tmp_path, page(empty_summary(), empty_charts())))

    assert [] == console(opened)
    assert 6 == opened.execute_script("return document.querySelectorAll('.empty').length")
    first = opened.execute_script("return document.querySelector('.finding').textContent")
    assert "GoodNo broker went away, and none was removed by mistake." == first


def test_settings_that_would_only_have_hit_the_living_are_told_apart() -> None:
    """Nobody's route was stale then, but nobody is told either that all was well."""
    charts = sample_charts()
    rows = [{**row, "false": row["evictions"], "registry": NOTHING, "client": NOTHING} for row in charts["what_if"]]

    text = page(sample_summary(), {**charts, "what_if": rows})

    assert "Every broker that these settings would have removed was alive" in text
    assert "under any of these settings" not in text
    assert "Every setting tried" in text


def test_page_loads_and_runs_nothing() -> None:
    """One file, without a script, a style attribute or an address of anything outside of it."""
    text = page(sample_summary(), sample_charts())
    outline = _outline(text)

    assert not {"script", "link", "img", "iframe", "object", "form", "base"} & outline.names
    assert "style" not in outline.attributes
    assert all(link.startswith("#") for link in outline.links)
    assert ["http://www.w3.org/2000/svg"] == sorted(set(re.findall(r"https?://[^\s\"'<]+", text)))
    assert "default-src 'none'" in text.replace("&#39;", "'")


def test_links_and_labels_lead_somewhere() -> None:
    """Each id is there once, and whatever is referred to is there."""
    text = page(sample_summary(), sample_charts())
    outline = _outline(text)

    assert len(set(outline.ids)) == len(outline.ids)
    assert {link[1:] for link in outline.links} <= set(outline.ids)
    for labels in re.findall(r'aria-labelledby="([^"]+)"', text):
        assert set(labels.split()) <= set(outline.ids)


def test_pictures_have_words_for_those_who_cannot_see_them() -> None:
    """Each drawing is an image with a title and a description; legends are left out."""
    text = page(sample_summary(), sample_charts())
    drawings = re.findall(r"<svg [^>]*>", text)

    assert all('role="img"' in drawing or 'aria-hidden="true"' in drawing for drawing in drawings)
    assert 10 == sum('role="img"' in drawing for drawing in drawings)
    described = re.findall(r'<desc id="[^"]+">([^<]+)</desc>', text)
    assert 10 == len(described)
    told = "At NameServers: p50 110 s, p99 128 s. At clients: p50 127 s, p99 157 s. The settings bound it to 160 s."
    assert told in described


def test_chapters_stand_in_order() -> None:
    """Findings come first, definitions last."""
    headings = re.findall(r"<h[12][^>]*>([^<]+)</h[12]>", page(sample_summary(), sample_charts()))

    assert [
        "How long stale routes lasted",
        "Staleness",
        "Lives of brokers",
        "Other settings",
        "Worst intervals",
        "Regularity of heartbeats",
        "By group",
        "Input",
        "Definitions",
    ] == headings


def test_same_numbers_make_the_same_page() -> None:
    """No time of day, no random name."""
    assert page(sample_summary(), sample_charts()) == page(sample_summary(), sample_charts())
