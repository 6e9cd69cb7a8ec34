"""The console's pages in a real browser, with real NameServers, brokers and clients: layout and accessibility."""

from collections.abc import Iterator
from contextlib import ExitStack
from importlib.resources import files
from typing import Any, Final

import pytest
from selenium import webdriver

from namesrv_client import ClientSettings, SyncRouteClient
from tests.support.browser import console, show
from tests.support.console_process import READY, ConsoleProcess, addresses, night, shown
from tests.support.daemon import Daemon
from tests.support.peer import Broker, Peer

# One worker runs all of these tests, since a browser's start takes seconds.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

DESK, TABLET, PHONE = (1440, 900), (768, 1024), (420, 900)
# A script, the end of an attribute, an escape sequence, a change of direction, the longest allowed topic name.
HOSTILE: Final = (
    "<script>document.title='taken'</script>",
    "\"'><img src=x onerror=document.title='taken'>{{ 7 * 7 }}",
    "\x1b[31mred\x9b0m",
    "\u202egnorts\u2066\u200f",
    "t" * 127,
)
TAKEN_APART: Final = ("\\x1b[31mred", "\\u202egnorts")
ADDRESSES: Final = addresses("cluster=cluster-a&name=broker-a")
AXE: Final = """
    const done = arguments[arguments.length - 1];
    axe.run(document, { resultTypes: ["violations"] }).then(
        (found) => done(found.violations.map((one) => [one.impact, one.id, one.nodes.map((node) => node.html)])),
        (error) => done([["critical", String(error), []]]));
"""
# Elements that are wider than the page and cannot be scrolled into view.
TOO_WIDE: Final = """
    const width = document.documentElement.clientWidth;
    return [...document.querySelectorAll("body *")]
        .filter((one) => one.getBoundingClientRect().right > width + 1)
        .filter((one) => !one.closest(".scroll, .menu, .skip, .unseen"))
        .map((one) => one.outerHTML.slice(0, 120));
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A console of two NameServers that disagree about one broker, with a client and hostile names."""
    home = tmp_path_factory.mktemp("servers")
    with ExitStack() as stack:
        enter = stack.enter_context
        # The brokers send no heartbeats, and stay for all tests of this module.
        expiry = "--broker-expiry-seconds=86400"
        one, two = (
            enter(Daemon(home / name, f"--nameserver-name={name}", expiry).listening()) for name in ("ns1", "ns2")
        )
        both = [
            Broker(topics=("orders", "bills")),
            Broker(broker_id=1, addr="10.0.0.2:10911", topics=("orders", "bills")),
            Broker(name="broker-b", addr="10.0.0.3:10911", topics=("orders", "refunds", "%RETRY%app")),
            Broker(name=HOSTILE[0], addr="10.0.0.4:10911", cluster=HOSTILE[1], topics=(*HOSTILE, "orders")),
        ]
        for daemon in (one, two):
            for broker in both:
                broker.register(enter(Peer(daemon.address)))
        Broker(name="broker-c", addr="10.0.0.5:10911").register(enter(Peer(one.address)))
        servers = (one.where, two.where)
        client = enter(SyncRouteClient(ClientSettings(name_servers=";".join(servers), protocol="native")))
        client.route("orders")
        yield enter(ConsoleProcess(*servers, logs=[night(home / "logs")], audit=(one.data_dir, two.data_dir))).url()


def violations(opened: webdriver.Chrome) -> list[Any]:
    """Serious violations of accessibility that axe-core finds on the page."""
    opened.execute_script(files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8"))
    found = opened.execute_async_script(AXE)
    return [one for one in found if one[0] in ("serious", "critical")]


@pytest.mark.parametrize(("size", "scheme"), [(DESK, "light"), (TABLET, "dark"), (PHONE, "light")])
@pytest.mark.parametrize("name", ADDRESSES)
def test_each_page_fits_and_is_accessible(
    opened: webdriver.Chrome, url: str, name: str, size: tuple[int, int], scheme: str
) -> None:
    """On a desktop, a tablet and a phone no page scrolls sideways, axe finds nothing serious, and no script fails."""
    show(opened, url + ADDRESSES[name][1:], size=size, scheme=scheme)
    shown(opened, READY)

    assert opened.execute_script(TOO_WIDE) == []
    assert size[0] >= opened.execute_script("return document.documentElement.scrollWidth")
    assert violations(opened) == []
    assert console(opened) == []


def test_ages_have_the_colours_of_the_health_model(opened: webdriver.Chrome, url: str) -> None:
    """The script gives an age the look that the heat map has on the server: by the share of the expiry that is left."""
    show(opened, url, size=DESK)
    shown(opened, READY)
    opened.execute_script("""
        const now = Number(document.body.dataset.now);
        for (const left of [900, 500, 100]) {
            const age = document.createElement("i");
            age.className = "probe";
            Object.assign(age.dataset, { lastSeen: now + left - 1000, evicted: now + left });
            document.body.append(age);
        }
    """)

    looks = """
        const found = [...document.querySelectorAll(".probe")].map((one) => one.classList[1]);
        return found.every(Boolean) && found;
    """
    assert shown(opened, looks) == ["in_time", "late", "dying"]


def test_date_at_the_end_of_an_axis_fits_a_phone(opened: webdriver.Chrome, url: str) -> None:
    """The last tick of a timeline that ends just after midnight has a date, and the page does not scroll sideways."""
    show(opened, url + "timeline?from=2026-02-28T22:52&to=2026-03-01T00:05", size=PHONE)
    shown(opened, READY)

    last = "return [...document.querySelectorAll('.axis text')].at(-1).textContent"
    assert shown(opened, last) == "03-01 00:00"
    assert opened.execute_script(TOO_WIDE) == []


def test_language_and_colours_are_chosen_in_a_menu(opened: webdriver.Chrome, url: str) -> None:
    """On a phone the open menu fits and is accessible; a choice leads back to the page."""
    show(opened, url + "brokers", size=PHONE)
    shown(opened, READY)
    opened.execute_script("document.querySelector('.choices summary').click()")

    assert opened.execute_script(TOO_WIDE) == []
    assert violations(opened) == []
    left = "return document.querySelector('.choices ul').getBoundingClientRect().left"
    assert opened.execute_script(left) >= 0
    opened.execute_script("document.querySelector('.choices [lang=zh]').click()")
    shown(opened, "return document.documentElement.lang === 'zh' && location.pathname === '/brokers'")
    opened.delete_all_cookies()


@pytest.mark.parametrize("path", ["", "brokers", "topics?system=1", "search?q=script"])
def test_hostile_names_are_text(opened: webdriver.Chrome, url: str, path: str) -> None:
    """Scripts do not run, escape sequences and changes of direction are escaped, and long names fit the page."""
    show(opened, url + path, size=PHONE)
    shown(opened, READY)

    text = opened.execute_script("return document.body.innerText")
    assert HOSTILE[0] in text
    if path.startswith("topics"):
        assert [name for name in (HOSTILE[1], *TAKEN_APART, HOSTILE[-1]) if name not in text] == []
    assert opened.title != "taken"
    assert opened.execute_script("return [...document.querySelectorAll('main img, main script')]") == []
    assert not any(character in text for character in "\x1b\x9b\u202e\u2066\u200f")


def test_starred_topic_comes_first(opened: webdriver.Chrome, url: str) -> None:
    """A starred topic is at the top of the list until its star is removed; the browser keeps stars for every page."""
    names = "return [...document.querySelectorAll('#topics tbody th a')].map((one) => one.innerText)"
    click = "document.querySelector(`[data-star='${arguments[0]}']`).click()"
    show(opened, url + "topics")
    shown(opened, READY)
    before = opened.execute_script(names)
    assert before[0] != "refunds"

    opened.execute_script(click, "refunds")
    show(opened, url + "topics")
    assert opened.execute_script(names) == ["refunds", *(name for name in before if name != "refunds")]
    show(opened, url + "topic?name=refunds")
    shown(opened, "return document.querySelector('.star').ariaPressed === 'true'")
    opened.execute_script(click, "refunds")
    show(opened, url + "topics")
    assert opened.execute_script(names) == before
