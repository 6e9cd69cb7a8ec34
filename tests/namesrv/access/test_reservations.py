"""Reservations of broker names and addresses for the account that held them last: decisions and requests."""

from pathlib import Path

import pytest

from namesrv.access import reservations
from namesrv.access.reservations import Occupant, Place, Reservations, outranks
from namesrv.routeinfo.tables.records import BrokerAddrInfo, BrokerLiveInfo
from namesrv_remoting.access import Permission, parse_access_file
from tests.namesrv.access.test_attacks import NO_PERMISSION
from tests.support.fake_clock import until
from tests.support.in_process import InProcess, guarded_namesrv
from tests.support.namesrv_peer import Broker, NamesrvPeer, registration
from tests.support.signing import Key
from tests.support.spelling import Response

SECRET = "secret-of-the-tenants"
BILLING_1 = Broker("billing-1", 0, "10.0.0.1:10911", "prod")
ORDERS_1 = Broker("orders-1", 0, "10.0.0.2:10911", "prod")
BILLING, ORDERS, TESTERS = (Key(name, SECRET, "rocketmq") for name in ("billing", "orders", "testers"))


def accounts(**rules: str) -> str:
    """An access file: account -> the bounds of its rule for brokers."""
    return "".join(
        f'[accounts.{name}]\nsecrets = ["{SECRET}"]\n'
        f'may = [{{ access = "broker-control", {narrowed} }}, "route-read", "admin-read"]\n'
        for name, narrowed in rules.items()
    )


TENANTS = accounts(billing='brokers = ["billing-*"]', orders='brokers = ["orders-*"]', testers='clusters = ["test"]')


async def register(peer: NamesrvPeer, key: Key, broker: Broker, **ext: str) -> Response:
    """The response to the registration of a broker under an account."""
    peer.send(key.request_frame(103, {**broker.ext, **ext}, registration("T", "U")))
    return await peer.receive()


def occupants(server: InProcess) -> dict[str, str]:
    """Broker address -> the account that registered the broker."""
    table = server.namesrv.manager.tables.broker_live_table
    return {key.broker_addr: live.account for key, live in table.items()}


async def leave(server: InProcess, peer: NamesrvPeer) -> None:
    """Close a broker's connection, and return when the broker is removed."""
    await server.hang_up(peer)
    await until(lambda: not server.namesrv.manager.tables.broker_live_table)


# -- over the wire ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("takeover", ["allow", "refuse"])
@pytest.mark.parametrize(
    ("key", "taker", "lacks"),
    [
        (ORDERS, ORDERS_1._replace(addr=BILLING_1.addr), "cluster prod, broker billing-1, address 10.0.0.1:10911"),
        (TESTERS, BILLING_1._replace(cluster="test"), "cluster prod, broker billing-1, address 10.0.0.1:10911"),
        (
            TESTERS,
            BILLING_1._replace(cluster="test", addr="10.6.6.6:10911"),
            "cluster prod, broker billing-1, address 10.6.6.6:10911",
        ),
    ],
    ids=["address", "name elsewhere", "name and address elsewhere"],
)
async def test_reservation_keeps_the_name_and_address_of_a_broker(
    tmp_path: Path, takeover: str, key: Key, taker: Broker, lacks: str
) -> None:
    """Another tenant can take neither the address of a broker that reconnects nor its name in another cluster."""
    async with guarded_namesrv(tmp_path, TENANTS, takeover=takeover) as server:
        owner = await server.connect()
        assert (await register(owner, BILLING, BILLING_1)).code == 0
        await leave(server, owner)
        server.clock.stall(reservations.RESERVED_SECONDS - 10)

        refused = await register(await server.connect(), key, taker)

        remark = f"account {key.access_key} lacks broker-control for {lacks} (REGISTER_BROKER)"
        assert (refused.code, refused.remark) == (NO_PERMISSION, remark)
        assert (await register(await server.connect(), BILLING, BILLING_1)).code == 0
        assert occupants(server) == {BILLING_1.addr: "billing"}


async def test_unchanged_registration_moves_a_broker_to_its_account(tmp_path: Path) -> None:
    """The account that registered a broker last is the one that a reload of the access file judges."""
    async with guarded_namesrv(
        tmp_path, accounts(billing='clusters = ["prod"]', orders='clusters = ["prod"]')
    ) as server:
        peer = await server.connect()
        for key in (BILLING, ORDERS):
            assert (await register(peer, key, BILLING_1)).code == 0
            assert occupants(server) == {BILLING_1.addr: key.access_key}


@pytest.mark.parametrize("billing", [{}, {"billing": 'brokers = ["bills-*"]'}], ids=["no account", "other brokers"])
async def test_reservation_ends_after_an_hour_or_with_the_account(tmp_path: Path, billing: dict[str, str]) -> None:
    """A reservation ends an hour after the broker left, or at once when its account may not register the broker."""
    async with guarded_namesrv(tmp_path, TENANTS) as server:
        taken = ORDERS_1._replace(addr=BILLING_1.addr)
        owner, other = await server.connect(), await server.connect()
        await register(owner, BILLING, BILLING_1)
        await leave(server, owner)
        assert (await register(other, ORDERS, taken)).code == NO_PERMISSION

        server.guard.follow(parse_access_file(accounts(orders='brokers = ["orders-*"]', **billing)), enforces=True)
        assert (await register(other, ORDERS, taken)).code == 0

        server.guard.follow(parse_access_file(TENANTS), enforces=True)
        await leave(server, other)
        server.clock.stall(reservations.RESERVED_SECONDS + 1)
        assert (await register(await server.connect(), BILLING, BILLING_1)).code == 0


@pytest.mark.parametrize(
    ("rules", "squatter"),
    [
        ({"billing": 'broker_addresses = ["10.0.0.1"]', "orders": 'brokers = ["*"]'}, ORDERS_1),
        ({"billing": 'broker_addresses = ["10.0.0.0/24"]', "orders": 'brokers = ["orders-*"]'}, ORDERS_1),
        ({"billing": 'brokers = ["billing-1"]', "orders": 'brokers = ["*-1"]'}, BILLING_1),
        ({"billing": 'brokers = ["billing-1"]', "orders": 'clusters = ["test"]'}, BILLING_1._replace(cluster="test")),
    ],
    ids=["address", "network", "name", "name elsewhere"],
)
async def test_most_specific_rule_displaces_a_squatter(tmp_path: Path, rules: dict[str, str], squatter: Broker) -> None:
    """An account whose rules name a broker's name or address displaces a tenant with wider rules that came first.

    The squatter's state version, even the highest, makes no difference.
    """
    async with guarded_namesrv(tmp_path, accounts(**rules), takeover="refuse") as server:
        owner, other = await server.connect(), await server.connect()
        at = squatter._replace(addr=BILLING_1.addr) if squatter.name != BILLING_1.name else squatter
        other.send(ORDERS.request_frame(103, at.ext, registration("T", "U", state_version=2**62)))
        assert (await other.receive()).code == 0

        moved = BILLING_1 if squatter is not BILLING_1 else BILLING_1._replace(addr="10.0.0.9:10911")
        response = await register(owner, BILLING, moved)

        assert (response.code, response.remark) == (0, None)
        assert occupants(server) == {moved.addr: "billing"}
        assert (await register(other, ORDERS, at)).code == NO_PERMISSION


async def test_observed_rules_displace_no_broker(tmp_path: Path) -> None:
    """While the access file is only observed, a slave stays that another account has registered by a wider rule."""
    rules = accounts(billing='brokers = ["billing-1"]', orders='brokers = ["*-1"]')
    async with guarded_namesrv(tmp_path, rules, access_mode="observe") as server:
        peer = await server.connect()
        slave = BILLING_1._replace(id=1, addr="10.0.0.9:10911")
        assert [(await register(peer, *each)).code for each in ((ORDERS, slave), (BILLING, BILLING_1))] == [0, 0]

        assert occupants(server) == {slave.addr: "orders", BILLING_1.addr: "billing"}


@pytest.mark.parametrize(
    ("narrowed", "created"),
    [
        ('brokers = ["orders-*"]', ["a"]),
        ('clusters = ["a", "b"]', ["a", "b"]),
        ('clusters = ["*"]', ["a"]),
        ("create_clusters = false", []),
        ('brokers = ["orders-*"], create_clusters = true', ["a", "b", "c"]),
        ('brokers = ["orders-*"], create_clusters = false', []),
    ],
)
async def test_creating_a_cluster_needs_permission(tmp_path: Path, narrowed: str, created: list[str]) -> None:
    """A narrowed account creates the clusters that its rule lists, or one; `create_clusters` overrides both."""
    async with guarded_namesrv(tmp_path, accounts(orders=narrowed, billing='clusters = ["d"]')) as server:
        other, peer = await server.connect(), await server.connect()
        await register(other, BILLING, BILLING_1._replace(cluster="d"))

        responses = [
            await register(peer, ORDERS, Broker(f"orders-{name}", 0, f"10.0.0.{number}:1", name))
            for number, name in enumerate("abcd", start=2)
        ]

        existing = [] if 'clusters = ["a"' in narrowed else ["d"]
        found = [name for name, response in zip("abcd", responses, strict=True) if response.code == 0]
        assert found == [*created, *existing]
        assert server.namesrv.manager.tables.cluster_addr_table.keys() == {*created, "d"}


# -- decisions --------------------------------------------------------------------------------------------------------

AT = BrokerAddrInfo("prod", "10.0.0.1:10911")
NAME, ADDRESS = Place("name", "billing-1"), Place("address", AT.broker_addr, "prod")


@pytest.mark.parametrize(
    ("place", "own", "others", "cluster", "expected"),
    [
        (NAME, 'brokers = ["billing-1"]', 'brokers = ["billing-*"]', "prod", True),
        (NAME, 'brokers = ["billing-*"]', 'brokers = ["*"]', "prod", True),
        (NAME, 'brokers = ["billing-*"]', 'clusters = ["prod"]', "prod", True),
        (NAME, 'brokers = ["billing-*"]', 'brokers = ["b*"]', "prod", False),
        (NAME, 'brokers = ["billing-*"]', 'brokers = ["billing-1"]', "prod", False),
        # the rule names the address, which does not reserve the name
        (NAME, 'broker_addresses = ["10.0.0.1"]', 'brokers = ["billing-*"]', "prod", False),
        (ADDRESS, 'broker_addresses = ["10.0.0.1"]', 'brokers = ["billing-1"]', "prod", True),
        (ADDRESS, 'broker_addresses = ["10.0.0.1:10911"]', 'broker_addresses = ["10.0.0.0/8"]', "prod", True),
        (ADDRESS, 'broker_addresses = ["0.0.0.0/0"]', 'brokers = ["billing-1"]', "prod", False),
        (ADDRESS, 'brokers = ["billing-1"]', 'brokers = ["*"]', "prod", False),
        # the two brokers are in different clusters
        (NAME, 'brokers = ["billing-1"]', 'clusters = ["prod"]', "test", True),
        (NAME, 'brokers = ["billing-*"]', 'clusters = ["prod"]', "test", False),
        (NAME, 'brokers = ["billing-1"]', 'brokers = ["b*"]', "test", False),
    ],
)
def test_account_with_the_more_specific_rule_outranks(
    place: Place, own: str, others: str, cluster: str, *, expected: bool
) -> None:
    """Only rules about the contested name or address count, and the more specific one wins."""
    file = parse_access_file(accounts(a=own, b=others))
    wanted = Permission(103, cluster, "billing-1", None, AT.broker_addr)
    occupant = Occupant(AT, "billing-1", "b")

    assert outranks(place, wanted, file.accounts["a"], occupant, file.accounts["b"]) is expected


def live(name: str, account: str) -> BrokerLiveInfo:
    """A live entry."""
    return BrokerLiveInfo(name, 0, 0.0, 120.0, None, 1, None, 1, account=account)


def test_last_account_holds_the_reservation() -> None:
    """A name or address is reserved for the account that left it last, for an hour after it left."""
    held = Reservations()
    held.broker_left(AT, live("billing-1", "a"), now=0.0)
    held.broker_left(AT, live("orders-1", "b"), now=100.0)

    assert [held.last_occupant(place, 3_599.9) for place in (NAME, ADDRESS)] == [
        Occupant(AT, "billing-1", "a", 3_600.0),
        Occupant(AT, "orders-1", "b", 3_700.0),
    ]
    assert held.last_occupant(NAME, 3_600.0) is None
    assert [place for place, _ in held.current(3_600.0)] == [Place("name", "orders-1"), ADDRESS]
    assert held.current(3_700.0) == []


def test_reservations_of_an_account_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new reservation beyond the limit drops the oldest of the same account, and of that account only."""
    monkeypatch.setattr(reservations, "MAX_PLACES_PER_ACCOUNT", 4)
    held = Reservations()
    for number, account in enumerate(["b", "a", "a", "a", ""]):
        key = BrokerAddrInfo("prod", f"10.0.0.{number}:1")
        held.broker_left(key, live(f"b-{number}", account), now=0.0)

    assert [place.value for place, _ in held.current(1.0)] == [
        "b-0", "10.0.0.0:1", "b-2", "10.0.0.2:1", "b-3", "10.0.0.3:1",
    ]  # fmt: skip
    assert repr(held) == "<Reservations [6 places | 2 accounts]>"
