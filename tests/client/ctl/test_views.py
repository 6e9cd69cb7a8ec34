"""The `views` commands: check an address views file, and show the addresses that a peer gets."""

from pathlib import Path

import pytest

from tests.support.ctl import ctl, one_server, run
from tests.support.namesrv_peer import MASTER, SLAVE, native_registration

FILE = """
[[views]]
name = "outside"
networks = ["203.0.113.0/24"]
others = "hide"
[[views.brokers]]
broker_id = 0
shown = "{broker_name}.mq.example.com:{port+20000}"
"""


@pytest.fixture(name="file")
def written(tmp_path: Path) -> str:
    """A file with one view."""
    path = tmp_path / "views.toml"
    path.write_text(FILE, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_check_lists_views(file: str, mark: str) -> None:
    """A valid file is shown view by view, also one that begins with a byte order mark."""
    Path(file).write_text(mark + FILE, encoding="utf-8")
    done = run("views", "check", file)

    assert (done.code, done.err) == (0, "")
    assert done.cells == [
        ["VIEW", "NETWORKS", "BROKERS", "OTHERS"],
        ["outside", "203.0.113.0/24", "{broker_name}.mq.example.com:{port+20000}", "hide"],
    ]


def test_check_reports_problems(tmp_path: Path) -> None:
    """A file that a server would refuse is an error with the place in it."""
    path = tmp_path / "views.toml"
    path.write_text('[[views]]\nname = "a"\nbrokers = [{shown = "h"}]', encoding="utf-8")

    done = run("views", "check", str(path))

    assert done.code == 1
    assert f"{path}: view a: brokers[0].shown: 'h' is not a host and port" in done.err


def test_file_without_views_is_named(tmp_path: Path) -> None:
    """A server accepts a file without views, which is probably a mistake."""
    path = tmp_path / "views.toml"
    path.touch()

    assert run("views", "check", str(path)) == (0, "", f"namesrvctl: {path}: no views\n")


async def test_explain_shows_the_addresses_of_a_peer(tmp_path: Path, file: str) -> None:
    """A peer of the view gets its addresses, and a peer without a view the registered ones."""
    async with one_server(tmp_path / "server") as (server, address):
        peer = await server.connect()
        await peer.register(MASTER)
        await peer.register(SLAVE)

        outside = await ctl("-s", address, "views", "explain", file, "--from", "203.0.113.9")
        inside = await ctl("-s", address, "views", "explain", file, "--from", "10.0.0.9", "-o", "json")

    assert outside.cells == [
        ["CLUSTER", "BROKER", "ID", "REGISTERED", "VIEW", "SHOWN"],
        ["cluster-1", "broker-a", "0", "10.0.0.1:10911", "outside", "broker-a.mq.example.com:30911"],
        ["cluster-1", "broker-a", "1", "10.0.0.2:10911", "outside", "hidden"],
    ]
    (found,) = inside.json["servers"]
    assert [broker["shown"] for broker in found["brokers"]] == ["10.0.0.1:10911", "10.0.0.2:10911"]


async def test_explain_shows_advertised_addresses(tmp_path: Path, file: str) -> None:
    """The address that a slave advertises for the view is shown, and a view that the file lacks is named."""
    advertised = {"broker_addr": {"outside": "203.0.113.7:30911", "partner": "h:1"}}
    async with one_server(tmp_path / "server") as (server, address):
        peer = await server.connect()
        await peer.register(SLAVE, native_registration(advertised=advertised), spelling="native")

        outside = await ctl("-s", address, "views", "explain", file, "--from", "203.0.113.9")
        listed = await ctl("-s", address, "brokers")

    assert outside.cells[1:] == [["cluster-1", "broker-a", "1", "10.0.0.2:10911", "outside", "203.0.113.7:30911"]]
    assert outside.err == (
        "namesrvctl: no view partner in the file: addresses that broker-a advertised for it are not used\n"
    )
    assert listed.cells[1][3:5] == ["10.0.0.2:10911", "outside=203.0.113.7:30911 partner=h:1"]


async def test_a_topic_is_explained_through_a_view(tmp_path: Path) -> None:
    """Brokers with the addresses of a view are alive, as is a slave that stands in the route as acting master."""
    views = '[[views]]\nname = "all"\nbrokers = [{shown = "{host}:{port+20000}"}]'
    async with one_server(tmp_path, views=views, support_acting_master=True) as (server, address):
        peer = await server.connect()
        await peer.register(MASTER, enableActingMaster="true")
        await peer.register(SLAVE, enableActingMaster="true")
        both = await ctl("-s", address, "explain", "T")
        await peer.call(104, MASTER.ext)
        acting = await ctl("-s", address, "explain", "T")

    assert [row[1:4] for row in both.cells[1:]] == [
        ["0", "10.0.0.1:30911", "fine"],
        ["1", "10.0.0.2:30911", "fine"],
    ]
    assert [row[1:4] for row in acting.cells[1:]] == [["0", "10.0.0.2:30911", "fine"]]
