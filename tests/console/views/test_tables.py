"""Settings and keys of several servers, and connections."""

from dataclasses import replace

import pytest

from namesrv.settings.apache_properties import JAVA_NAMES
from namesrv.settings.model import PATHS
from namesrv_console.state import BrokerKey, BrokerSeen, Cluster, ConnectionReport, ServerView
from namesrv_console.views.clients import ClientQuery, client_page
from namesrv_console.views.tables import OWN_SETTINGS, value_rows, with_unit
from namesrv_remoting.bodies.extensions import Connection, LiveBroker, ServerInfo


def test_a_value_that_differs_or_is_missing_drifts() -> None:
    """A value that differs, or that a server lacks, drifts; addresses and paths of files never drift."""
    values = {"s1": {"scan": "5", "listenPort": "1", "same": "x"}, "s2": {"listenPort": "2", "same": "x", "scan": "10"}}

    rows = value_rows({**values, "s3": {"scan": "5", "listenPort": "3"}}, OWN_SETTINGS)

    assert [(row.key, row.drifts) for row in rows] == [("listenPort", False), ("same", True), ("scan", True)]
    assert rows[1].values == {"s1": "x", "s2": "x", "s3": None}


def test_paths_ports_and_names_are_a_servers_own() -> None:
    """Two servers on one machine have other ports, and the names of an HTTP port are those of its host."""
    own = (*PATHS, "listen_port", "listeners", "http_listen", "http_hosts", "name_servers_listen", "nameserver_name")

    assert {JAVA_NAMES[name] for name in own} - OWN_SETTINGS == set()


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("maxMemoryBytes", "536870912", "512 MiB"),
        ("maxFrameBytes", "16777216", "16 MiB"),
        ("someBytes", "1536", "1.5 KiB"),
        ("someBytes", "100", "100 B"),
        ("scanNotActiveBrokerInterval", "10000", "10 s"),
        ("waitSecondsForService", "45.0", "45 s"),
        ("brokerExpirySeconds", "none", ""),
        ("listenPort", "9876", ""),
    ],
)
def test_settings_have_the_unit_of_their_key(key: str, value: str, shown: str) -> None:
    """Bytes are in powers of 1,024, and times in seconds."""
    assert with_unit(key, value) == shown


def test_connection_of_a_broker_or_of_the_console_is_named(connected: Cluster) -> None:
    """The broker that is registered over a connection, and the peer address of the console."""
    key = BrokerKey("c1", "broker-a", 0)
    seen = BrokerSeen(LiveBroker(*key, "10.0.0.1:10911", connection=1), 0.0, 120.0)
    cluster = Cluster(1, (replace(connected.servers[0], brokers={key: seen}), connected.servers[1]))

    page = client_page(cluster, ClientQuery(sort="peer"), {"s1": "10.0.0.2:6"})

    assert [(row.connection.id, row.brokers, row.is_own) for row in page.rows] == [(1, [key], False), (2, [], True)]


@pytest.fixture
def connected() -> Cluster:
    """Two connections to one of our servers, none known of Apache's."""
    info = ServerInfo("boot", started_ms=1_000_000, uptime_seconds=100.0)
    view = ServerView(
        "s1",
        answered_at=50.0,
        info=info,
        connection_report=ConnectionReport(
            50.0,
            (
                Connection(
                    1, "10.0.0.1:5", role="broker", protocol="json", since_ms=1_040_000, last_request_seconds=3.0
                ),
                Connection(2, "10.0.0.2:6", since_ms=1_099_000, unsent_bytes=7, account="Ann"),
            ),
        ),
    )
    return Cluster(1, (view, ServerView("s2", answered_at=50.0)))


def test_connection_ages_use_the_servers_clock(connected: Cluster) -> None:
    """A wrong console clock does not change ages; the last request is on the console's clock, so that its age ticks."""
    page = client_page(connected, ClientQuery(sort="waiting"))

    assert [
        (row.connection.peer, row.seconds, row.last_request_at, row.role, row.waiting_bytes) for row in page.rows
    ] == [
        ("10.0.0.2:6", 1.0, None, "silent", 7),
        ("10.0.0.1:5", 60.0, 47.0, "broker", 0),
    ]
    assert (page.roles, page.protocols) == ({"broker": 1, "silent": 1}, {"": 1, "json": 1})


def test_server_that_no_longer_responds_has_no_known_connections(connected: Cluster) -> None:
    """The connections that a dead server had are not among the current ones."""
    dead = connected.with_view(connected.servers[0].lost("timeout", 60.0))

    assert (client_page(connected, ClientQuery()).unknown, client_page(connected, ClientQuery()).count) == (["s2"], 2)
    assert (client_page(dead, ClientQuery()).unknown, client_page(dead, ClientQuery()).count) == (["s1", "s2"], 0)


@pytest.mark.parametrize(
    ("wanted", "peers"),
    [(ClientQuery(role="broker"), [1]), (ClientQuery(protocol="json"), [1]), (ClientQuery(text="ann"), [2])],
)
def test_connections_are_filtered(connected: Cluster, wanted: ClientQuery, peers: list[int]) -> None:
    """Connections are filtered by role, protocol, address or account."""
    assert [row.connection.id for row in client_page(connected, wanted).rows] == peers
