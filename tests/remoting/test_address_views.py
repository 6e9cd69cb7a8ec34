"""Address views: which view a peer sees, what the addresses of brokers become in it, and errors of the file."""

import pytest

from namesrv_remoting.address_views import AddressView, BrokerIdentity, Viewer, parse_address_views
from namesrv_remoting.bodies.advertised import NOTHING_ADVERTISED, AdvertisedAddresses
from namesrv_remoting.bodies.route import BrokerData, ClusterInfo, QueueData, TopicRouteData
from namesrv_remoting.typed_toml import FileError

FILE = """
[[views]]
name = "partner"
accounts = ["partner-*"]
others = "hide"

[[views]]
name = "outside"
networks = ["203.0.113.0/24", "2001:db8::/32"]
others = "hide"

[[views.brokers]]
broker_names = ["broker-b"]
broker_id = 0
shown = "b.mq.example.com:31911"

[[views.brokers]]
registered = ["10.0.0.0/8"]
shown = "{broker_name}-{broker_id}.mq.example.com:{port+20000}"

[[views]]
name = "factory"
certificates = ["*.factory.example.com"]

[[views.brokers]]
registered = ["10.0.0.1:10911"]
shown = "192.0.2.1:{port}"

[[views]]
name = "balanced"
listeners = ["balancer-*"]

[[views.brokers]]
shown = "{broker_name}.balanced.example.com:{port}"
"""
A = BrokerData("c1", "broker-a", {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"})
B = BrokerData("c1", "broker-b", {0: "192.168.0.1:10911"})
ELSEWHERE = BrokerData("c2", "broker-c", {0: "192.168.0.2:10911"})


def nothing(broker: BrokerIdentity, address: str) -> AdvertisedAddresses:
    """No broker advertises addresses."""
    return NOTHING_ADVERTISED


def view(name: str) -> AddressView:
    """A view of the file."""
    return next(view for view in parse_address_views(FILE).views if view.name == name)


ADVERTISED = {"outside": "203.0.113.7:30911", "elsewhere": "203.0.113.8:1"}


@pytest.mark.parametrize(
    ("name", "broker", "registered", "shown"),
    [
        ("outside", BrokerIdentity("c1", "broker-a", 1), "10.0.0.2:10911", "broker-a-1.mq.example.com:30911"),
        ("outside", BrokerIdentity("c1", "broker-b", 0), "10.0.0.3:10911", "b.mq.example.com:31911"),
        ("outside", BrokerIdentity("c1", "broker-a", 0), "192.168.0.1:10911", None),
        # results that are no host and port
        ("outside", BrokerIdentity("c1", "broker-a", 0), "10.0.0.1:60000", None),
        ("outside", BrokerIdentity("c1", "broker a", 0), "10.0.0.1:10911", None),
        ("factory", BrokerIdentity("c1", "broker-a", 0), "10.0.0.1:10911", "192.0.2.1:10911"),
        ("factory", BrokerIdentity("c1", "broker-a", 0), "10.0.0.1:10912", "10.0.0.1:10912"),
        # the address that a broker advertises for a view comes after its rules, and before `others`
        ("outside", BrokerIdentity("c1", "advertising", 1), "10.0.0.2:10911", "advertising-1.mq.example.com:30911"),
        ("outside", BrokerIdentity("c1", "advertising", 1), "192.168.0.1:10911", "203.0.113.7:30911"),
        ("partner", BrokerIdentity("c1", "advertising", 1), "192.168.0.1:10911", None),
        ("factory", BrokerIdentity("c1", "advertising", 1), "192.168.0.1:10911", "192.168.0.1:10911"),
    ],
)
def test_address_in_a_view(name: str, broker: BrokerIdentity, registered: str, shown: str | None) -> None:
    """The first rule that matches counts; addresses without a rule are shown or hidden, as `others` says."""
    advertised = ADVERTISED if broker.broker_name == "advertising" else {}

    assert view(name).address(broker, registered, advertised) == shown


@pytest.mark.parametrize(
    ("viewer", "name"),
    [
        (Viewer("198.51.100.1", account="partner-1"), "partner"),
        (Viewer("203.0.113.9"), "outside"),
        (Viewer("2001:db8::9", certificate_names=("a.factory.example.com",)), "outside"),
        (Viewer("198.51.100.1", certificate_names=("other", "a.factory.example.com")), "factory"),
        (Viewer("198.51.100.1", listener="balancer-1"), "balanced"),
        (Viewer("198.51.100.1", account="other", certificate_names=("factory.example.com",)), None),
    ],
)
def test_view_of_a_peer(viewer: Viewer, name: str | None) -> None:
    """The first view counts that names the account, network, certificate or listener of the peer."""
    seen = parse_address_views(FILE).view_of(viewer)

    assert (None if seen is None else seen.name) == name


def test_route_in_a_view() -> None:
    """Hidden brokers are left out with their queues and filter servers, and the others have their new addresses."""
    queues = [QueueData(name, 4, 4, 6, 0) for name in ("broker-a", "broker-c")]
    servers = {"10.0.0.1:10911": ("10.0.0.1:1",), "192.168.0.2:10911": ("192.168.0.2:1",)}

    shown = view("outside").route(TopicRouteData([A, ELSEWHERE], queues, servers, "order"), nothing)

    addrs = {0: "broker-a-0.mq.example.com:30911", 1: "broker-a-1.mq.example.com:30911"}
    group = BrokerData("c1", "broker-a", addrs)
    assert shown == TopicRouteData([group], queues[:1], {addrs[0]: ("10.0.0.1:1",)}, "order")
    assert view("outside").route(TopicRouteData([ELSEWHERE], queues[1:]), nothing) is None


def test_clusters_in_a_view() -> None:
    """Groups and clusters without a visible broker are left out."""
    info = ClusterInfo({"broker-b": B, "broker-c": ELSEWHERE}, {"c1": ["broker-b"], "c2": ["broker-c"]})

    shown = BrokerData("c1", "broker-b", {0: "b.mq.example.com:31911"})
    assert view("outside").clusters(info, nothing) == ClusterInfo({"broker-b": shown}, {"c1": ["broker-b"]})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("views = 1", "views: expected array, got int"),
        ("x = 1", "unknown field x"),
        ("[[views]]", "views[0]: object missing required field name"),
        ('[[views]]\nname = "a"\nothers = "hide"\n' * 2, "view a: the name is used twice"),
        ('[[views]]\nname = "a"\nothers = "x"', "views[0].others: invalid enum value 'x'"),
        (
            '[[views]]\nname = "a"\nothers = "hide"\nnetworks = ["10.0.0.1/8"]',
            "view a: not a network: 10.0.0.1/8 has host bits set (for example 10.1.0.0/16, fd00::/8, 10.1.2.3)",
        ),
        (
            '[[views]]\nname = "a"\nbrokers = [{shown = "h:1", registered = ["x/y"]}]',
            "view a: brokers[0].registered: not a network or address: ",
        ),
        *(
            (
                f'[[views]]\nname = "a"\nbrokers = [{{shown = "{shown}"}}]',
                f"view a: brokers[0].shown: '{shown}' is not a host and port (for example ",
            )
            for shown in ("h", "h:0", "h:65536", "{host}", "{name}:1", "h:{port+60000}", "a b:1")
        ),
        ('[[views]]\nname = "a"\nbrokers = [{shown = "h:{host+1}"}]', "view a: brokers[0].shown: 'h:{host+1}' is not"),
    ],
)
def test_errors_name_the_place(text: str, problem: str) -> None:
    """A file that cannot be used is refused with the place and the value."""
    with pytest.raises(FileError) as raised:
        parse_address_views(text)

    assert str(raised.value).startswith(problem)
