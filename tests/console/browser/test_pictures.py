"""The pictures of docs/console.md: `make screenshots` writes them to docs/images."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from selenium import webdriver

from namesrv_client import ClientSettings, SyncRouteClient
from tests.support.browser import show, take_picture
from tests.support.console_process import READY, ConsoleProcess, addresses, night, shown
from tests.support.daemon import Daemon
from tests.support.peer import Broker, Peer

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

DESK, PHONE = (1440, 900), (420, 900)
_SCALE: Final = 0.7
# A page of docs with a dozen pictures must load over a slow connection.
_MAX_BYTES: Final = 130_000
TOPICS: Final = ("orders", "payments", "refunds", "invoices", "%RETRY%billing", "%DLQ%billing")
ADDRESSES: Final = addresses("cluster=shop&name=broker-a")


class Shop(NamedTuple):
    """A console of a small cluster, and its live brokers, each with its connection."""

    url: str
    brokers: list[tuple[Broker, Peer]]

    def heartbeat(self) -> None:
        """Send a heartbeat of each broker but the last, which is silent."""
        for broker, peer in self.brokers[:-2]:
            broker.heartbeat(peer)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """Two NameServers, one of which lacks a broker."""
    home = tmp_path_factory.mktemp("servers")
    with ExitStack() as stack:
        enter = stack.enter_context
        flags = ("--broker-expiry-seconds=40", "--wait-for-service-seconds=0")
        daemons = [
            enter(Daemon(home / name, f"--nameserver-name={name}", *flags).listening()) for name in ("ns1", "ns2")
        ]
        members = [
            Broker(name=name, broker_id=number, addr=f"10.1.0.{at}:10911", cluster="shop", topics=TOPICS)
            for at, (name, number) in enumerate(
                [("broker-a", 0), ("broker-a", 1), ("broker-b", 0), ("broker-c", 0)], start=1
            )
        ]
        brokers = [(broker, enter(Peer(daemon.address))) for broker in members for daemon in daemons]
        # One NameServer lacks the broker.
        missing = Broker(name="broker-d", addr="10.1.0.9:10911", cluster="shop", topics=("orders", "reports"))
        brokers.insert(0, (missing, enter(Peer(daemons[0].address))))
        for broker, peer in brokers:
            broker.register(peer)
        servers = [daemon.where for daemon in daemons]
        client = enter(SyncRouteClient(ClientSettings(name_servers=";".join(servers), protocol="native")))
        client.route("orders")
        yield Shop(
            enter(ConsoleProcess(*servers, logs=[night(home / "logs")], audit=[home / "ns1", home / "ns2"])).url(),
            brokers,
        )


def pictures(own: Path) -> Path:
    """The directory of the pictures."""
    found = Path(os.environ.get("NAMESRV_PICTURES") or own)
    found.mkdir(parents=True, exist_ok=True)
    return found


@pytest.mark.parametrize(
    ("name", "of", "size", "scheme"),
    [
        # The list comes last, when the bar of the silent broker has drained; in a run of this picture alone it is full.
        *((name, name, DESK, "light") for name in sorted(ADDRESSES, key="brokers".__eq__)),
        ("dark", "brokers", DESK, "dark"),
        ("phone", "brokers", PHONE, "light"),
    ],
)
def test_each_page_has_its_picture(
    opened: webdriver.Chrome, tmp_path: Path, shop: Shop, name: str, of: str, size: tuple[int, int], scheme: str
) -> None:
    """Each page's picture is written, and its file is not too large."""
    shop.heartbeat()
    show(opened, shop.url + ADDRESSES[of][1:], size=size, scheme=scheme)
    shown(opened, READY)
    if name == "rates":
        # A line is visible from its second point.
        shown(opened, "return document.querySelectorAll('#rates polyline[points*=\" \"]').length === 14")

    taken = pictures(tmp_path) / f"console-{name}.png"
    take_picture(opened, taken, clip=(*size, _SCALE))
    assert 5_000 < taken.stat().st_size < _MAX_BYTES
