"""The script of the pages about the past, in a real browser."""

from collections.abc import Callable, Iterator, Sequence
from urllib.parse import parse_qs, urlsplit

import pytest
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.wait import WebDriverWait

from tests.console.test_cli import COMMAND
from tests.support.browser import console, show
from tests.support.fake_clock import GUARD_SECONDS
from tests.support.printing_process import PatternProcess
from tests.support.spark_logs import write_log

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a console with the logs of two servers that no longer run."""
    logs = str(write_log(tmp_path_factory.mktemp("past") / "logs"))
    with PatternProcess([*COMMAND, "--server", "127.0.0.1:1", "--logs", logs]) as running:
        yield running.wait_for("^namesrv-console: http").removeprefix("namesrv-console: ")


@pytest.fixture
def touched(opened: webdriver.Chrome) -> Iterator[webdriver.Chrome]:
    """The browser with a touch screen."""
    opened.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": True, "maxTouchPoints": 1})
    yield opened
    opened.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": False})


def test_dragging_zooms_and_a_link_shows_the_same(opened: webdriver.Chrome, url: str) -> None:
    """Dragging from a quarter to a half of ten minutes zooms there; the new address shows the same span."""
    wait = WebDriverWait(opened, GUARD_SECONDS, poll_frequency=0.05)
    show(opened, f"{url}timeline?from=2026-03-01&to=2026-03-01T00:10")
    # The page loads the content itself, as soon as the logs are read.
    row = wait.until(lambda page: page.find_elements(By.CSS_SELECTOR, ".timeline-row"))[0]
    assert len(opened.find_elements(By.CSS_SELECTOR, ".timeline-row")) == 3
    assert opened.find_elements(By.CSS_SELECTOR, "[data-again]") == []

    width = row.rect["width"]
    drag = ActionChains(opened).move_to_element_with_offset(row, -width / 4, 0).click_and_hold()
    drag.move_by_offset(width / 4, 0).perform()
    assert opened.find_elements(By.CLASS_NAME, "shade")
    ActionChains(opened).release().perform()
    wait.until(lambda page: "from=2026-03-01&" not in page.current_url and page.find_elements(By.ID, "permalink"))

    timeline = opened.find_element(By.CLASS_NAME, "timeline")
    began, ended = (int(timeline.get_dom_attribute(f"data-{name}") or 0) - 1_772_323_200_000 for name in ("from", "to"))
    # Within two pixels of a thousand.
    assert abs(began - 150_000) < 1_500
    assert abs(ended - 300_000) < 1_500
    seen = [one.get_dom_attribute("aria-label") for one in opened.find_elements(By.CLASS_NAME, "timeline-row")]
    assert seen[0] == "c1/broker-a/0, ns-1: evicted 2026-03-01T00:03:05; "

    # The keyboard halves the span, and then doubles it again.
    for key, length in (("+", 75_000), ("-", 150_000)):
        opened.find_element(By.CLASS_NAME, "timeline").send_keys(key)
        wait.until(_shows_length(length))

    link = opened.find_element(By.ID, "permalink").get_attribute("href")
    assert link == opened.current_url
    opened.get("about:blank")
    opened.get(str(link))
    wait.until(lambda page: page.find_elements(By.CSS_SELECTOR, ".timeline-row"))
    assert [one.get_dom_attribute("aria-label") for one in opened.find_elements(By.CLASS_NAME, "timeline-row")] == seen
    assert console(opened) == []


def test_finger_that_moves_sideways_zooms(touched: webdriver.Chrome, url: str) -> None:
    """A finger that moves sideways over a row zooms as a mouse does."""
    left, top, width = touchable_row(touched, url)

    touch(touched, [(left + width / 4 * (1 + step / 10), top) for step in range(11)])

    WebDriverWait(touched, GUARD_SECONDS, poll_frequency=0.05).until(_shows_length(150_000))
    assert console(touched) == []


def test_finger_that_moves_up_scrolls(touched: webdriver.Chrome, url: str) -> None:
    """A finger that moves up over a row scrolls the page, and does not zoom."""
    left, top, width = touchable_row(touched, url)
    # A page that does not fill the screen would have nothing to scroll.
    touched.execute_script("document.body.style.paddingBottom = '2000px'")
    wait_for_frame(touched)
    address = touched.current_url

    touch(touched, [(left + width / 4, top - step * 20) for step in range(8)])

    wait = WebDriverWait(touched, GUARD_SECONDS, poll_frequency=0.05)
    wait.until(lambda page: page.execute_script("return scrollY") > 0)
    wait.until(lambda page: page.find_elements(By.CLASS_NAME, "shade") == [])
    assert touched.current_url == address
    assert console(touched) == []


def touchable_row(opened: webdriver.Chrome, url: str) -> tuple[float, float, float]:
    """Open the time line; return the left edge, middle and width of its first row, in pixels."""
    show(opened, f"{url}timeline?from=2026-03-01&to=2026-03-01T00:10")
    wait = WebDriverWait(opened, GUARD_SECONDS, poll_frequency=0.05)
    wait.until(lambda page: page.find_elements(By.CSS_SELECTOR, ".timeline-row"))
    wait_for_frame(opened)
    left, top, width = opened.execute_script(
        "const box = document.querySelector('.timeline-row').getBoundingClientRect();"
        "return [box.left, box.top + box.height / 2, box.width]"
    )
    return left, top, width


def wait_for_frame(opened: webdriver.Chrome) -> None:
    """Wait until the page was drawn as it is now: only what was drawn can be touched and scrolled."""
    opened.execute_async_script("const end = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(end))")


def touch(opened: webdriver.Chrome, points: Sequence[tuple[float, float]]) -> None:
    """Put a finger on the first point, move it over the others, and lift it at the last one."""
    for number, (x, y) in enumerate(points):
        kind = "touchMove" if number else "touchStart"
        opened.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [{"x": x, "y": y}]})
    opened.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})


def test_releasing_a_slider_updates_the_page(opened: webdriver.Chrome, url: str) -> None:
    """The page is updated without a reload, and the address has the setting."""
    wait = WebDriverWait(opened, GUARD_SECONDS, poll_frequency=0.05)
    show(opened, f"{url}what-if?to=2026-03-01T00:30")
    wait.until(lambda page: page.find_elements(By.ID, "permalink"))
    opened.execute_script("document.body.dataset.same = 'page'")

    slider = opened.find_element(By.ID, "expiry")
    slider.send_keys(Keys.HOME)
    wait.until(lambda page: "expiry=10&" in page.current_url)

    assert opened.find_element(By.CSS_SELECTOR, "output[for=expiry]").text == "10"
    assert parse_qs(urlsplit(opened.current_url).query)["expiry"] == ["10"]
    # Nearly every heartbeat at an interval of thirty seconds comes too late.
    cells = opened.find_elements(By.CSS_SELECTOR, "#past tbody tr:nth-child(2) td")
    assert [cell.text for cell in cells[3:5]] == ["14", "12"]
    assert opened.execute_script("return document.body.dataset.same") == "page"
    assert console(opened) == []

    # Without a connection to the console the request is repeated.
    opened.set_network_conditions(offline=True, latency=0, throughput=0)
    opened.find_element(By.ID, "expiry").send_keys(Keys.END)
    wait.until(lambda _: "what-if" in " ".join(console(opened)))
    opened.delete_network_conditions()
    wait.until(lambda page: "expiry=300&" in page.current_url)
    console(opened)


def _shows_length(wanted: int) -> Callable[[webdriver.Chrome], bool]:
    """A condition: the page shows a span of this length, within two pixels of a thousand."""

    def is_shown(page: webdriver.Chrome) -> bool:
        found = page.execute_script(
            "const shown = document.querySelector('.timeline')?.dataset; return shown ? shown.to - shown.from : 0"
        )
        return abs(int(found) - wanted) < 3_000

    return is_shown
