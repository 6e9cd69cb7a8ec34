"""Versions of the tables, and digests of registrations."""

from typing import Any

import pytest
from msgspec.structs import replace

from namesrv.routeinfo.tables.records import BrokerLiveInfo
from namesrv.routeinfo.tables.versions import TableVersions
from tests.support.route_builders import key

LIVE = BrokerLiveInfo("b1", 0, 100.0, 120.0, None, 1, None, 7, account="Ann")
M, S = key("m:1"), key("s:1")


@pytest.mark.parametrize(
    ("change", "ownership", "membership"),
    [
        ({"last_update": 130.0, "state": {"depth": 1}, "connection_id": 2, "generation": 8}, 0, 0),
        ({"network": "10.0.0.2"}, 1, 0),
        ({"account": "Bob"}, 1, 0),
        ({"broker_name": "b2"}, 0, 1),
        ({"broker_id": 1}, 0, 1),
    ],
)
def test_version_grows_with_what_depends_on_it(change: dict[str, Any], ownership: int, membership: int) -> None:
    """Rows by owner depend on address and account, a snapshot on name and id; heartbeats change neither."""
    versions = TableVersions()

    versions.live_changed(LIVE, replace(LIVE, **change))

    assert versions == TableVersions(ownership=ownership, membership=membership)
