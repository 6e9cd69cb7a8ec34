"""The page of a report, as text and opened in a real browser."""

import html
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from namesrv_spark_jobs.report.charts import Setting, lettered
from namesrv_spark_jobs.report.comparison import comparison
from namesrv_spark_jobs.report.page import comparison_page, page
from namesrv_spark_jobs.report.shown import printable
from tests.support.browser import DESKTOP, PHONE, browser, console, requested, show, take_picture
from tests.support.fake_clock import GUARD_SECONDS
from tests.support.heartbeat_lines import MIDNIGHT_MS
from tests.support.staleness_sample import (
    MINUTE_MS,
    empty_charts,
    empty_summary,
    sample_charts,
    sample_summary,
)

# One worker runs all tests, since a browser takes seconds to start.
pytestmark = pytest.mark.xdist_group("browser")
# Hostile parts of a name in a log: a script, the end of a script, the end of an attribute, a change of the direction of
# writing, and escape sequences of terminals.
HOSTILE = (
    "<script>document.title='taken'</script>",
    "</script></style></title></svg><img src=x onerror=document.title='taken'>",
    "\"'`><img src=x onerror=document.title='taken'>{{ 7 * 7 }}",
    "\u202egnorts\u2066\u200f",
    "\x1b[31mred\x9b0m\x00\x7f",
)
FIGURES = ("staleness-picture", "timeline-picture", "what-if-picture", "intervals-picture")
CODE = re.compile(r"<script[^>]*>.*?</script>", re.DOTALL)
# The pairs of texts in charts that overlap.
OVERPRINTS = """
    const seen = [...document.querySelectorAll("figure svg text:not([opacity='0'])")]
        .map(x => [x.textContent, x.getBoundingClientRect()])
        .filter(([, box]) => box.width > 0);
    const found = [];
    for (const [i, [words, box]] of seen.entries())
        for (const [others, other] of seen.slice(0, i))
            if (box.left < other.right - 1 && other.left < box.right - 1
                && box.top < other.bottom - 2 && other.top < box.bottom - 2) found.push([words, others]);
    return found;
"""
# Background and text colour of each scheme.
COLOURS = {"light": ["rgb(245, 246, 244)", "rgb(89, 99, 107)"], "dark": ["rgb(18, 21, 23)", "rgb(155, 165, 172)"]}


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    """One browser for all pages."""
    with browser(tmp_path_factory.mktemp("profile")) as chrome:
        yield chrome


@pytest.fixture(scope="module")
def sample() -> str:
    """The page of a bad morning."""
    return page(sample_summary(), sample_charts())


def _page(folder: Path, text: str) -> Path:
    written = folder / "report.html"
    written.write_text(text, encoding="utf-8")
    return written


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_page_shows_its_pictures(
    opened: webdriver.Chrome, tmp_path: Path, sample: str, size: tuple[int, int], scheme: str
) -> None:
    """Charts are shown on screen and phone, in light and dark; there are no errors in the log and no requests.

    Only wide tables scroll sideways, in their own frames; text has enough contrast.
    """
    shown = _page(tmp_path, sample)

    _show_drawn(opened, shown, size=size, scheme=scheme)

    measure = """
        const all = [...document.querySelectorAll(arguments[0])].filter(x => x.getBoundingClientRect().width > 0);
        const box = all[0].getBoundingClientRect();
        return [all.length, box.width, box.height, box.width / all[0].viewBox.baseVal.width];
    """
    for name in FIGURES:
        count, width, height, scale = opened.execute_script(measure, f"#{name} :is(.live, .drawing) svg")
        assert count == 1, name
        assert width > 0.7 * min(size[0], 1016), name
        assert height > 200, name
        assert scale > 0.95, name
    assert opened.execute_script(OVERPRINTS) == []
    assert size[0] >= opened.execute_script("return document.documentElement.scrollWidth")
    colours = """
        const [page, text] = ["body", ".live svg text"].map(x => getComputedStyle(document.querySelector(x)));
        return [page.backgroundColor, text.fill];
    """
    assert COLOURS[scheme] == opened.execute_script(colours)
    assert console(opened) == []
    assert [shown.as_uri()] == requested(opened, shown)
    take_picture(opened, tmp_path / f"{size[0]}-{scheme}.png")
    assert (tmp_path / f"{size[0]}-{scheme}.png").stat().st_size > 50_000


def _show_drawn(opened: webdriver.Chrome, page: Path, *, figures: int = 4, **view: Any) -> None:
    """Show a page, and wait for its charts."""
    show(opened, page, **view)
    _await(opened, "return document.querySelectorAll('figure.drawn').length === arguments[0]", figures)


def _await(opened: webdriver.Chrome, script: str, *arguments: Any) -> Any:
    """The result of a script, as soon as it is not empty."""
    return WebDriverWait(opened, GUARD_SECONDS).until(lambda chrome: chrome.execute_script(script, *arguments))


@pytest.mark.slow
@pytest.mark.parametrize("medium", ["screen", "print"])
def test_page_reads_without_scripts_and_on_paper(
    opened: webdriver.Chrome, tmp_path: Path, sample: str, medium: str
) -> None:
    """Without scripts and on paper, drawings replace live charts, and controls are hidden."""
    is_print = medium == "print"
    opened.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not is_print})
    try:
        show(opened, _page(tmp_path, sample))
        if is_print:
            _await(opened, "return document.querySelectorAll('figure.drawn').length === 4")
        opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": medium})
        shown = """
            const found = [...document.querySelectorAll(arguments[0])];
            return found.filter(x => x.getBoundingClientRect().height > 20).length;
        """
        assert (
            opened.execute_script(shown, "figure .drawing svg") - opened.execute_script(shown, "details .drawing svg")
            == 4
        )
        assert opened.execute_script(shown, ".live, .controls, .scripted") == 0
        assert opened.execute_script(OVERPRINTS) == []
        assert console(opened) == []
    finally:
        opened.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
        opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


@pytest.mark.slow
def test_address_keeps_what_is_shown(opened: webdriver.Chrome, tmp_path: Path, sample: str) -> None:
    """Drawing a frame zooms; tables sort and filter; the page's address restores this state."""
    shown = _page(tmp_path, sample)
    zoom = "return JSON.parse(document.getElementById('timeline-picture').dataset.shown ?? 'null')"
    first = "return [...document.querySelectorAll('#worst tbody tr')].map(x => x.cells[2].textContent)[0]"
    _show_drawn(opened, shown)
    live = opened.find_element(By.CSS_SELECTOR, "#timeline-picture .live")
    opened.execute_script("arguments[0].scrollIntoView({block: 'center'})", live)

    ActionChains(opened, duration=0).move_to_element(live).click_and_hold().move_by_offset(200, 0).release().perform()
    start, end = _await(opened, zoom)
    heads = opened.find_elements(By.CSS_SELECTOR, "#worst th button")
    opened.execute_script("arguments[0].scrollIntoView({block: 'center'})", heads[2])
    heads[2].click()
    heads[2].click()
    opened.find_element(By.CSS_SELECTOR, "#input input[type=search]").send_keys("bad lines")

    assert 0 < end - start < 240 * MINUTE_MS
    assert opened.execute_script(first) == "2026-03-01 00:35:00"
    address = _await(opened, "return location.hash.includes('bad+lines') && location.href")
    opened.get("about:blank")
    opened.get(address)
    assert _await(opened, zoom) == [start, end]
    assert opened.execute_script(first) == "2026-03-01 00:35:00"
    assert opened.find_element(By.CSS_SELECTOR, "#input .controls .count").text == "1 of 13"
    # The address of a chapter does not change.
    opened.get(f"{shown.as_uri()}#worst")
    _await(opened, "return document.querySelectorAll('figure.drawn').length === 4")
    assert opened.execute_script("return location.hash") == "#worst"
    assert console(opened) == []


@pytest.mark.slow
def test_finding_shows_its_interval(opened: webdriver.Chrome, tmp_path: Path) -> None:
    """A click on `show me` zooms the time line to the finding's interval and marks it, also in a folded row."""
    summary, charts = sample_summary(), sample_charts()
    row = charts["timeline"]["brokers"][20]
    period = row["periods"][0]
    summary["worst"][1] |= {
        "broker_name": "broker-20",
        "nameserver": row["nameserver"],
        "last_ok_ms": period["last_ok_ms"],
        "removed_ms": period["to_ms"],
    }
    _show_drawn(opened, _page(tmp_path, page(summary, charts)))

    opened.find_element(By.CSS_SELECTOR, ".finding.warning a.show").click()

    shown = _await(opened, "return JSON.parse(document.getElementById('timeline-more').dataset.shown ?? 'null')")
    assert shown == [period["last_ok_ms"] - 236_000, period["to_ms"] + 236_000]
    marked = "return document.querySelectorAll('#timeline-more .live path[stroke=\"var(--ink)\"]').length"
    assert _await(opened, marked) == 1
    assert "mark=" in _await(opened, "return location.hash.length > 1 && location.hash")


@pytest.mark.slow
@pytest.mark.parametrize("evil", HOSTILE)
def test_names_are_only_text(opened: webdriver.Chrome, tmp_path: Path, evil: str) -> None:
    """Names of topics, brokers, servers, clients and files are shown verbatim, and are not interpreted."""
    broker = f"c1/{evil}/0"
    summary, charts = sample_summary(topic=evil, broker=broker), sample_charts(broker=broker)
    summary["input"]["nameservers"] = [evil]
    summary["input"]["per_file"][0]["file"] = evil
    summary["findings"][0]["text"] = evil
    summary["settings"][0] |= {"nameserver": evil, "boot_id": evil, "version": evil}
    summary["client"]["by_client"] = {evil: summary["client"]["all"]}
    summary["worst"][0] |= {"reason": evil, "nameserver": evil, "broker_addr": evil}
    charts["timeline"]["brokers"][0]["nameserver"] = evil
    charts["timeline"]["down"] = {evil: [[MIDNIGHT_MS, MIDNIGHT_MS + 60_000]]}
    text = page(summary, charts)

    show(opened, _page(tmp_path, text))

    _await(opened, "return document.querySelectorAll('figure.drawn').length >= 4")
    elements = "return [...document.querySelectorAll('*')].map(x => [x.localName, ...x.getAttributeNames()]).flat()"
    found = opened.execute_script(elements)
    assert found.count("script") == 3
    assert "img" not in found
    assert not [name for name in found if name.startswith("on")]
    assert {one for one in CODE.sub("", text) if not one.isprintable()} == {"\n"}
    assert opened.title == "How long stale routes lasted"
    assert console(opened) == []
    for place in ("#groups", "#worst", "#timeline", "#input", ".findings", ".lead"):
        shown = opened.execute_script("return document.querySelector(arguments[0]).textContent", place)
        assert printable(evil) in shown, place


@pytest.mark.slow
def test_injected_script_would_not_run(opened: webdriver.Chrome, tmp_path: Path, sample: str) -> None:
    """The page's content security policy refuses injected scripts and `eval`, even if escaping fails."""
    injected = "<script>document.title = 'taken'</script><img src='http://127.0.0.1:9/x'></body>"

    show(opened, _page(tmp_path, sample.removesuffix("</body></html>") + injected))

    assert opened.title == "How long stale routes lasted"
    complaints = console(opened)
    assert len(complaints) == 2
    assert all("Content Security Policy" in complaint for complaint in complaints)


def test_page_of_a_quiet_hour_has_words_in_place_of_pictures() -> None:
    """The page of a report without evictions, clients and heartbeats has texts in place of charts."""
    text = page(empty_summary(), empty_charts())

    assert text.count('class="empty"') == 6
    assert "<svg" not in text
    assert text.count("<script") == 2


def test_page_is_complete(sample: str) -> None:
    """The page is one file without style attributes and external addresses, and the same in each run."""
    text = CODE.sub("", sample)
    names, attributes = set(re.findall(r"<(\w+)", text)), set(re.findall(r' ([a-z-]+)="', text))
    ids, links = re.findall(r' id="([^"]*)"', text), re.findall(r' href="([^"]*)"', text)

    assert not {"script", "link", "img", "iframe", "object", "form", "base"} & names
    assert not {"style", "src"} & attributes
    assert re.findall(r"https?://[^\s\"'<]+", text) == []
    policy = re.findall(r'Content-Security-Policy" content="([^"]*)"', text.replace("&#39;", "'"))[0]
    digest = "'sha256-[A-Za-z0-9+/=]+'"
    expected = (
        f"default-src 'none'; script-src {digest} {digest}; style-src {digest}; base-uri 'none'; form-action 'none'"
    )
    assert re.fullmatch(expected, policy)
    # Each id is unique, and every reference has its target.
    assert len(set(ids)) == len(ids)
    assert set(links) <= {f"#{name}" for name in ids}
    assert set(re.findall(r"url\(#([^)]+)\)", text)) <= set(ids)
    assert {name for labels in re.findall(r'aria-labelledby="([^"]+)"', text) for name in labels.split()} <= set(ids)
    assert page(sample_summary(), sample_charts()) == sample
    # Each drawing is an image with a description; legends have none.
    described = re.findall(r'role="img" aria-label="([^"]+)"', text)
    assert len(described) == 5


def _bars(text: str) -> list[dict[str, Any]]:
    """The bars of the timeline chart."""
    found = re.search(r'<script type="application/json" id="charts">(.*?)</script>', text)
    assert found is not None
    bars: list[dict[str, Any]] = json.loads(found[1])["timeline-picture"]["data"]["values"]
    return bars


def test_unregistrations_are_not_stale_and_downtime_is_explained() -> None:
    """Only silences and closed connections are red; the time line marks times without a running server."""
    charts = sample_charts()
    (row, *_) = charts["timeline"]["brokers"]
    goodbye = {**row["periods"][0], "reason": "unregistered", "stale_ms": 0}
    ended = {**row["periods"][1], "last_ok_ms": row["periods"][1]["to_ms"] - MINUTE_MS}
    charts["timeline"]["brokers"] = [{**row, "periods": [goodbye, ended]}]

    text = page(sample_summary(), charts)

    assert [bar["kind"] for bar in _bars(text)] == ["down", "alive", "alive"]
    assert [bar["says"] for bar in _bars(text)] == [
        "ns-1 was not running, or its log is missing, for 10 min",
        "alive from 2026-03-01 00:00:00 to 2026-03-01 01:01:58 (unregistered)",
        # A broker that was silent when the log ended may have been dead.
        "registered from 2026-03-01 01:30:00 to the end of the server's log, last seen 2026-03-01 03:59:00",
    ]
    assert "the NameServer was not running, or its log is missing</span>" in text


def test_findings_link_to_their_intervals_rows_and_tables() -> None:
    """A finding links to an interval or row of the time line, or to the table if the time line lacks the broker."""
    summary, charts = sample_summary(), sample_charts()
    summary["worst"][0] |= {"broker_name": "elsewhere"}
    near = {"broker": "c1/broker-2/0", "nameserver": "ns-1", "boot_id": "b", "silent_ms": 90_000, "expiry_ms": 120_000}
    summary["near_misses"]["worst"] = {**near, "from_ms": MIDNIGHT_MS}
    summary["findings"] = [
        {"severity": "info", "code": code, "text": ""}
        for code in ("over_bound", "false_evictions", "near_misses", "divergence", "duplicates")
    ]
    summary["worst"][1] |= {"last_ok_ms": MIDNIGHT_MS, "removed_ms": MIDNIGHT_MS + 1000}

    text = page(summary, charts)

    findings = re.findall(r'<li class="finding info">.*?</li>', text)
    links = [dict(re.findall(r' (href|data-[a-z]+)="([^"]*)"', finding)) for finding in findings]
    begin, end = str(MIDNIGHT_MS), str(MIDNIGHT_MS + 90_000)
    interval = {"data-from": begin, "data-to": str(MIDNIGHT_MS + 1000)}
    assert links[-5:] == [
        {"href": "#worst-1"},
        {"href": "#worst-2", "data-where": "c1/broker-a/0 on ns-1", **interval},
        {"href": "#timeline", "data-where": "c1/broker-2/0 on ns-1", "data-from": begin, "data-to": end},
        {"href": "#timeline", "data-where": "c1/broker-a/0 on ns-1", "data-from": "0", "data-to": "0"},
        {},
    ]


def test_names_that_look_like_numbers_are_drawn_verbatim() -> None:
    """Decimals and classes are removed from the tags of a drawing, to make it small, but not from its texts."""
    charts = sample_charts(broker='c1/10.2134.56 class="x"/0')

    (drawing, *_) = re.findall(
        r'<svg width="920".*?</svg>', page(sample_summary(), charts).partition('id="timeline"')[2]
    )

    assert 'c1/10.2134.56 class="x"/0 on ns-1' in html.unescape(drawing)
    assert not re.findall(r"<[^>]*(?:\.\d\d|class=)[^>]*>", drawing)


def test_letters_of_settings_do_not_overlap() -> None:
    """Of the best settings at the same place in the chart only the first has a letter."""
    best = [Setting("a", "fixed", 0, 120_000), Setting("b", "fixed", 1, 119_900), Setting("c", "fixed", 900, 40_000)]

    assert lettered(best) == {"A": best[0], "B": best[1], "C": best[2]}
    assert lettered([best[0], best[1]._replace(false_evictions=0, staleness_ms=119_999), best[2]][::2]) == {
        "A": best[0],
        "B": best[2],
    }


@pytest.mark.slow
def test_page_of_a_comparison_is_as_strict(opened: webdriver.Chrome, tmp_path: Path) -> None:
    """The charts of a comparison are drawn, its tables sort, and names are only text."""
    before, after = sample_summary(), sample_summary(broker=HOSTILE[1], topic=HOSTILE[0])
    names = {"a": HOSTILE[2], "b": HOSTILE[3]}
    made = {**comparison(before, after), "gates": []}
    shown = _page(tmp_path, comparison_page(made, names, {"b": "b/report.html"}))

    _show_drawn(opened, shown, figures=2)

    opened.find_element(By.CSS_SELECTOR, "#groups th:nth-child(2) button").click()
    rows = "return [...document.querySelectorAll('#groups tbody th')].map(x => x.textContent)"
    assert printable(HOSTILE[1]) in opened.execute_script(rows)
    assert opened.title == "Staleness compared"
    assert opened.execute_script(OVERPRINTS) == []
    assert console(opened) == []
    assert [shown.as_uri()] == requested(opened, shown)


@pytest.mark.slow
def test_vega_is_bundled_once(tmp_path: Path) -> None:
    """The bundle is kept in the user's cache for other processes.

    A read-only home is no error, nor is a user without an account and so without a home, as in a container.
    """
    script = "from namesrv_spark_jobs.report.drawing import library; print(len(library()))"
    without_account = "import os; os.getuid = lambda: 2_000_000_000"

    def size(before: str = "pass", **environ: str) -> int:
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": "spark_jobs", **environ}
        command = [sys.executable, "-c", f"{before}; {script}"]
        return int(subprocess.check_output(command, env=environment, text=True))

    whole = size(XDG_CACHE_HOME=str(tmp_path / "new"))
    (kept,) = (tmp_path / "new" / "namesrv").iterdir()
    assert len(kept.read_text(encoding="utf-8")) == whole
    kept.write_text("kept", encoding="utf-8")
    assert len("kept") == size(XDG_CACHE_HOME=str(tmp_path / "new"))
    assert size(XDG_CACHE_HOME="", HOME="/dev/null") == whole
    assert size(without_account) == whole
