"""The page of a report, opened in a real browser."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from selenium import webdriver

from namesrv_spark_jobs.report.charts import Staleness, draw_staleness
from namesrv_spark_jobs.report.page import page
from namesrv_spark_jobs.report.shown import printable
from namesrv_spark_jobs.report.svg import WIDE
from tests.support.browser import DESKTOP, PHONE, browser, console, requested, show, take_picture
from tests.support.heartbeat_lines import MIDNIGHT_MS
from tests.support.staleness_sample import NOTHING, empty_charts, empty_summary, sample_charts, sample_summary

# one worker gets all of them: a browser costs seconds
pytestmark = pytest.mark.xdist_group("browser")
# what a name in a log may be made of: a script, the end of one, the end of an attribute, a change of the direction of
# writing, and sequences that a terminal obeys
HOSTILE = {
    "script": "<script>document.title='taken'</script>",
    "end": "</script></style></title></svg><img src=x onerror=document.title='taken'>",
    "quotes": "\"'`><img src=x onerror=document.title='taken'>{{ 7 * 7 }}",
    "direction": "\u202egnorts\u2066\u200f",
    "terminal": "\x1b[31mred\x9b0m\x00\x7f",
}
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
def test_names_are_only_text(opened: webdriver.Chrome, tmp_path: Path) -> None:
    """Names of topics, brokers, servers, clients and files are shown as they are, and do nothing."""
    for evil in HOSTILE.values():
        broker = f"c1/{evil}/0"
        summary, charts = sample_summary(topic=evil, broker=broker), sample_charts(broker=broker)
        summary["input"]["nameservers"] = [evil]
        summary["input"]["per_file"][0]["file"] = evil
        summary["findings"][0]["text"] = evil
        summary["settings"][0] |= {"nameserver": evil, "boot_id": evil, "version": evil}
        summary["client"]["by_client"] = {evil: summary["client"]["all"]}
        charts["worst"][0] |= {"reason": evil, "nameserver": evil, "broker_addr": evil}
        charts["timeline"]["brokers"][0]["nameserver"] = evil
        charts["timeline"]["down"] = {evil: [[MIDNIGHT_MS, MIDNIGHT_MS + 60_000]]}
        text = page(summary, charts)
        outline = _outline(text)

        show(opened, _page(tmp_path, text))

        assert not {"script", "img"} & outline.names
        assert not {name for name in outline.attributes if name.startswith("on")}
        assert text.isprintable() or {"\n"} == {one for one in text if not one.isprintable()}
        assert "How long stale routes lasted" == opened.title
        assert [] == console(opened)
        for place in ("#groups", "#worst", "#timeline", "#input", ".findings", ".lead"):
            shown = opened.execute_script("return document.querySelector(arguments[0]).textContent", place)
            assert printable(evil) in shown, place


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


def test_goodbyes_are_not_stale_and_downtime_is_explained() -> None:
    """Only silence and closed connections are red; where a server was not running, the time line says so."""
    charts = sample_charts()
    (row, *_) = charts["timeline"]["brokers"]
    goodbye = {**row["lives"][0], "reason": "unregistered", "stale_ms": 0}
    charts["timeline"]["brokers"] = [{**row, "lives": [goodbye]}]

    text = page(sample_summary(), charts)

    picture = re.search(r'<svg class="wide"[^>]*aria-labelledby="timeline-picture-wide-title.*?</svg>', text)
    assert picture is not None
    assert 'class="stale"' not in picture[0]
    assert "alive from 2026-03-01 00:00:00 to 2026-03-01 01:01:58 (unregistered)" in picture[0]
    assert "ns-1 was not running, or its log is missing, for 10 min" in picture[0]
    assert "the NameServer was not running, or its log is missing</span>" in text


@pytest.mark.parametrize(("p99", "bound"), [(6_300, 8_000), (7_900, 8_000), (8_000, 8_000)])
def test_labels_stand_beside_each_other(p99: int, bound: int) -> None:
    """No label is printed over another, however close their values are; one that has no room is left out."""
    curve = [(5_000 + step * 15, step / 200) for step in range(201)]
    marks = {kind: {"p50": 6_000, "p99": p99} for kind in ("registry", "client")}

    drawn = draw_staleness(Staleness(curve, curve, bound, marks), WIDE).render("x", kind="wide")

    label = r'x="([\d.]+)" y="([\d.]+)" text-anchor="(\w+)">((?:p\d|bound)[^<]*)<'
    labels = [
        (float(x) - (len(words) * 6 if anchor == "end" else 0), float(y), len(words) * 6)
        for x, y, anchor, words in re.findall(label, drawn)
    ]
    assert len(labels) >= 3
    for index, (x, y, width) in enumerate(labels):
        for left, top, length in labels[:index]:
            assert abs(y - top) >= 12 or x >= left + length or left >= x + width
