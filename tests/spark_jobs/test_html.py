"""The page of a report, as text and opened in a real browser."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver

from namesrv_spark_jobs.report.page import page
from namesrv_spark_jobs.report.shown import printable
from tests.support.browser import DESKTOP, PHONE, browser, console, requested, show, take_picture
from tests.support.heartbeat_lines import MIDNIGHT_MS
from tests.support.staleness_sample import NOTHING, empty_charts, empty_summary, sample_charts, sample_summary

# one worker gets all of them: a browser costs seconds
pytestmark = pytest.mark.xdist_group("browser")
# what a name in a log may be made of: a script, the end of one, the end of an attribute, a change of the direction of
# writing, and sequences that a terminal obeys
HOSTILE = (
    "<script>document.title='taken'</script>",
    "</script></style></title></svg><img src=x onerror=document.title='taken'>",
    "\"'`><img src=x onerror=document.title='taken'>{{ 7 * 7 }}",
    "\u202egnorts\u2066\u200f",
    "\x1b[31mred\x9b0m\x00\x7f",
)
SAMPLE = page(sample_summary(), sample_charts())
# ground and letters of each scheme
COLOURS = {"light": ["rgb(245, 246, 244)", "rgb(89, 99, 107)"], "dark": ["rgb(18, 21, 23)", "rgb(155, 165, 172)"]}


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    """One browser for all pages."""
    with browser(tmp_path_factory.mktemp("profile")) as chrome:
        yield chrome


def _page(folder: Path, text: str) -> Path:
    written = folder / "report.html"
    written.write_text(text, encoding="utf-8")
    return written


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_page_shows_its_pictures(opened: webdriver.Chrome, tmp_path: Path, size: tuple[int, int], scheme: str) -> None:
    """On a screen and on a phone, by day and by night; nothing is complained about, nothing asked for.

    Nothing has to be pushed sideways but wide tables, in their own frames; letters can be read.
    """
    shown = _page(tmp_path, SAMPLE)

    show(opened, shown, size=size, scheme=scheme)

    measure = """
        const all = [...document.querySelectorAll(arguments[0])].filter(x => x.getBoundingClientRect().width > 0);
        const box = all[0].getBoundingClientRect();
        return [box.width, box.height, box.width / all[0].viewBox.baseVal.width];
    """
    for name in ("staleness-picture", "timeline-picture", "what-if-picture", "gaps-picture"):
        width, height, scale = opened.execute_script(measure, f"#{name} svg")
        assert width > 0.7 * min(size[0], 1016), name
        assert height > 200, name
        assert scale > 0.8, name
    assert size[0] >= opened.execute_script("return document.documentElement.scrollWidth")
    colours = """
        const [page, text] = ["body", "svg text"].map(x => getComputedStyle(document.querySelector(x)));
        return [page.backgroundColor, text.fill];
    """
    assert COLOURS[scheme] == opened.execute_script(colours)
    assert [] == console(opened)
    assert [shown.as_uri()] == requested(opened, shown)
    take_picture(opened, tmp_path / f"{size[0]}-{scheme}.png")
    assert (tmp_path / f"{size[0]}-{scheme}.png").stat().st_size > 50_000


@pytest.mark.slow
@pytest.mark.parametrize("evil", HOSTILE)
def test_names_are_only_text(opened: webdriver.Chrome, tmp_path: Path, evil: str) -> None:
    """Names of topics, brokers, servers, clients and files are shown as they are, and do nothing."""
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

    show(opened, _page(tmp_path, text))

    elements = "return [...document.querySelectorAll('*')].map(x => [x.localName, ...x.getAttributeNames()]).flat()"
    found = set(opened.execute_script(elements))
    assert not {"script", "img"} & found
    assert not [name for name in found if name.startswith("on")]
    assert {"\n"} == {one for one in text if not one.isprintable()}
    assert "How long stale routes lasted" == opened.title
    assert [] == console(opened)
    for place in ("#groups", "#worst", "#timeline", "#input", ".findings", ".lead"):
        shown = opened.execute_script("return document.querySelector(arguments[0]).textContent", place)
        assert printable(evil) in shown, place


@pytest.mark.slow
def test_script_would_not_run_if_there_was_one(opened: webdriver.Chrome, tmp_path: Path) -> None:
    """The page's own policy refuses it, should escaping ever fail."""
    injected = "<script>document.title = 'taken'</script><img src='http://127.0.0.1:9/x'></body>"

    show(opened, _page(tmp_path, SAMPLE.replace("</body>", injected)))

    assert "How long stale routes lasted" == opened.title
    complaints = console(opened)
    assert 2 == len(complaints)
    assert all("Content Security Policy" in complaint for complaint in complaints)


def test_page_of_a_quiet_hour_has_words_in_place_of_pictures() -> None:
    """No eviction, no client, no beat: no error either."""
    text = page(empty_summary(), empty_charts())

    assert 6 == text.count('class="empty"')
    assert "<svg" not in text
    finding = (
        '<span class="severity">Good</span><span class="says">No broker went away, and none was removed by mistake.'
    )
    assert finding in text


def test_settings_that_would_only_have_hit_the_living_are_told_apart() -> None:
    """Nobody's route was stale then, but nobody is told either that all was well."""
    charts = sample_charts()
    rows = [{**row, "false": row["evictions"], "registry": NOTHING, "client": NOTHING} for row in charts["what_if"]]

    text = page(sample_summary(), {**charts, "what_if": rows})

    assert "Every broker that these settings would have removed was alive" in text
    assert "under any of these settings" not in text
    assert "Every setting tried" in text


def test_page_is_complete() -> None:
    """One file, without a script, a style attribute or an address of anything outside of it; the same each time."""
    names, attributes = set(re.findall(r"<(\w+)", SAMPLE)), set(re.findall(r' ([a-z-]+)="', SAMPLE))
    ids, links = re.findall(r' id="([^"]*)"', SAMPLE), re.findall(r' href="([^"]*)"', SAMPLE)

    assert not {"script", "link", "img", "iframe", "object", "form", "base"} & names
    assert "style" not in attributes
    assert ["http://www.w3.org/2000/svg"] == sorted(set(re.findall(r"https?://[^\s\"'<]+", SAMPLE)))
    assert "default-src 'none'" in SAMPLE.replace("&#39;", "'")
    chapters = ("Staleness", "Lives of brokers", "Other settings", "Worst intervals", "Regularity of heartbeats")
    headings = re.findall(r"<h[12][^>]*>([^<]+)</h[12]>", SAMPLE)
    assert ["How long stale routes lasted", *chapters, "By group", "Input", "Definitions"] == headings
    # each id is there once, and whatever is referred to is there
    assert len(set(ids)) == len(ids)
    assert set(links) <= {f"#{name}" for name in ids}
    assert {name for labels in re.findall(r'aria-labelledby="([^"]+)"', SAMPLE) for name in labels.split()} <= set(ids)
    assert page(sample_summary(), sample_charts()) == SAMPLE
    # each drawing is an image with a title and a description; legends are left out
    drawings = re.findall(r"<svg [^>]*>", SAMPLE)
    described = re.findall(r'<desc id="[^"]+">([^<]+)</desc>', SAMPLE)

    assert all('role="img"' in drawing or 'aria-hidden="true"' in drawing for drawing in drawings)
    assert 10 == sum('role="img"' in drawing for drawing in drawings) == len(described)
    told = "At NameServers: p50 110 s, p99 128 s. At clients: p50 127 s, p99 157 s. The settings bound it to 160 s."
    assert told in described


def _picture(text: str, name: str) -> str:
    found = re.search(rf'<svg class="wide"[^>]*aria-labelledby="{name}-wide-title.*?</svg>', text)
    assert found is not None
    return found[0]


def test_goodbyes_are_not_stale_and_downtime_is_explained() -> None:
    """Only silence and closed connections are red; where a server was not running, the time line says so."""
    charts = sample_charts()
    (row, *_) = charts["timeline"]["brokers"]
    goodbye = {**row["lives"][0], "reason": "unregistered", "stale_ms": 0}
    charts["timeline"]["brokers"] = [{**row, "lives": [goodbye]}]

    text = page(sample_summary(), charts)

    picture = _picture(text, "timeline-picture")
    assert 'class="stale"' not in picture
    assert "alive from 2026-03-01 00:00:00 to 2026-03-01 01:01:58 (unregistered)" in picture
    assert "ns-1 was not running, or its log is missing, for 10 min" in picture
    assert "the NameServer was not running, or its log is missing</span>" in text


@pytest.mark.parametrize(("p99", "bound"), [(6_300, 8_000), (7_900, 8_000), (8_000, 8_000)])
def test_labels_stand_beside_each_other(p99: int, bound: int) -> None:
    """No label is printed over another, however close their values are; one that has no room is left out."""
    curve = [[5_000 + step * 15, step / 200] for step in range(201)]
    summary = sample_summary()
    for measure in ("registry", "client"):
        summary[measure]["all"] |= {"p50": 6_000, "p99": p99}

    text = page(summary, {**sample_charts(), "registry_cdf": curve, "client_cdf": curve, "bound_ms": bound})

    label = r'x="([\d.]+)" y="([\d.]+)" text-anchor="(\w+)">((?:p\d|bound)[^<]*)<'
    labels = [
        (float(x) - (len(words) * 6 if anchor == "end" else 0), float(y), len(words) * 6)
        for x, y, anchor, words in re.findall(label, _picture(text, "staleness-picture"))
    ]
    assert len(labels) >= 3
    for index, (x, y, width) in enumerate(labels):
        for left, top, length in labels[:index]:
            assert abs(y - top) >= 12 or x >= left + length or left >= x + width
