"""Shares of one peer address or account in a nearly full table."""

from dataclasses import replace

import pytest
from msgspec import structs

from namesrv.routeinfo.rules import LimitExceededError, TableLimits
from namesrv.routeinfo.shares import Holdings, Owner, Sizes, check_shares, share_of
from namesrv.routeinfo.tables.records import Registration
from namesrv.routeinfo.tables.route_tables import Changes, RouteTables
from tests.support.route_builders import ROOMY, registration, rules, tables_of
from tests.support.steps import finished


@pytest.mark.parametrize(
    ("limit", "held_by_others", "share"),
    [(10_000, 0, 8_750), (10_000, 2_000, 7_000), (16, 0, 14), (16, 8, 7), (2, 0, 2), (2, 2, 0), (2, 3, 0)],
)
def test_share_is_seven_eighths_of_what_others_leave(limit: int, held_by_others: int, share: int) -> None:
    """A small table may be filled by one owner; a lowered limit may leave no share."""
    assert share_of(limit, held_by_others) == share


def fleet(account: str, brokers: int, topics: int, *, cluster: str = "c1", first: int = 0) -> list[Registration]:
    """Registrations of the brokers of one account, each with topics of its own."""
    return [
        replace(
            registration(f"{account}-{b}", 0, f"{account}-{b}:1", *(f"{account}-{b}-{t}" for t in range(topics))),
            account=account,
            is_native=True,
            cluster_name=cluster if cluster == "c1" else f"{cluster}-{b}",
        )
        for b in range(first, first + brokers)
    ]


def refusal(tables: RouteTables, wanted: Registration, limits: TableLimits) -> tuple[str | None, str] | None:
    """Remark and reason of a refusal; None if the registration keeps within its account's share."""
    try:
        finished(check_shares(tables, wanted, rules(limits=limits), Holdings(tables)))
    except LimitExceededError as error:
        return error.remark, error.reason
    return None


@pytest.mark.parametrize(
    ("limit", "held", "wanted", "refused"),
    [
        ({"max_brokers": 16}, fleet("a", 13, 1), fleet("a", 1, 1, first=13)[0], None),
        (
            {"max_brokers": 16},
            fleet("a", 14, 1),
            fleet("a", 1, 1, first=14)[0],
            ("15 brokers of account a, limit 14", "brokers_per_account"),
        ),
        # the rest of the table is for other accounts
        ({"max_brokers": 16}, fleet("a", 14, 1), fleet("b", 1, 1)[0], None),
        # a large fleet of one account reduces the share of another
        (
            {"max_brokers": 16},
            [*fleet("a", 8, 1), *fleet("b", 7, 1)],
            fleet("b", 1, 1, first=7)[0],
            ("8 brokers of account b, limit 7", "brokers_per_account"),
        ),
        # brokers beyond a lowered share may register again
        ({"max_brokers": 16}, fleet("a", 16, 1), fleet("a", 1, 1)[0], None),
        (
            {"max_clusters": 16},
            fleet("a", 14, 1, cluster="own"),
            fleet("a", 1, 1, cluster="own", first=14)[0],
            ("15 clusters of account a, limit 14", "clusters_per_account"),
        ),
        # a name stays in all clusters in which it was registered
        (
            {"max_clusters": 16},
            [replace(fleet("a", 1, 1)[0], cluster_name=f"c{number}") for number in range(14)],
            replace(fleet("a", 1, 1)[0], cluster_name="c14"),
            ("15 clusters of account a, limit 14", "clusters_per_account"),
        ),
        (
            {"max_topics": 16},
            fleet("a", 7, 2),
            fleet("a", 1, 2, first=7)[0],
            ("16 topics of account a, limit 14", "topics_per_account"),
        ),
        (
            {"max_routes": 16},
            fleet("a", 7, 2),
            fleet("a", 1, 1, first=7)[0],
            ("15 routes of account a, limit 14", "routes_per_account"),
        ),
    ],
    ids=["fits", "brokers", "others", "less room", "again", "clusters", "moves", "topics", "routes"],
)
def test_nearly_full_table_has_room_for_others(
    limit: dict[str, int], held: list[Registration], wanted: Registration, refused: tuple[str, str] | None
) -> None:
    """One account gets seven eighths of what others leave in each table."""
    assert refusal(tables_of(*held), wanted, replace(ROOMY, **limit)) == refused


def test_topics_of_a_large_fleet_are_estimated() -> None:
    """The topics of a fleet with thirty thousand routes are estimated from every third route, within a twentieth."""
    same_topics = [replace(one, body=fleet("a", 1, 10_000)[0].body) for one in fleet("a", 2, 1)]
    tables = tables_of(*same_topics, *fleet("a", 1, 10_000, first=2))
    owner = Owner("account", "a", lambda _, live: live.account == "a")

    held = finished(Holdings(tables).of(owner))

    assert held._replace(topics=0) == Sizes(1, 3, 0, 30_000)
    assert held.topics == pytest.approx(20_000, rel=0.05)


def test_rows_are_counted_again_when_a_broker_came_went_or_moved() -> None:
    """A refused peer that tries again is not counted again; a broker that moves counts for its new owner."""
    tables = tables_of(*fleet("a", 2, 1))
    address = Owner("address", "", lambda _, live: not live.network)
    account = Owner("account", "a", lambda _, live: live.account == "a")
    held = Holdings(tables)
    moving, staying = tables.broker_live_table.items()

    def brokers() -> tuple[int, int]:
        return finished(held.of(address)).brokers, finished(held.of(account)).brokers

    assert (brokers(), repr(held)) == ((2, 2), "<Holdings [2 owners]>")
    tables.set_live(moving[0], structs.replace(moving[1], network="10.0.0.2"))
    assert brokers() == (1, 2)
    tables.set_live(moving[0], structs.replace(moving[1], network="10.0.0.2", account="b"))
    assert brokers() == (1, 1)
    tables.apply(finished(tables.prepare(Changes(dropped=[staying[0]]))))
    assert brokers() == (0, 0)
