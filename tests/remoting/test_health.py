"""Health of a broker group."""

from collections.abc import Mapping

import pytest

from namesrv_remoting.health import GroupHealth, group_health


@pytest.mark.parametrize(
    ("silences", "health"),
    [
        ({0: 0.0}, GroupHealth.HEALTHY),
        ({0: 0.5, 1: 0.0}, GroupHealth.HEALTHY),
        ({0: 0.51, 1: 0.5}, GroupHealth.SILENT_MASTER),
        # Every broker of the group is silent: the cause may be the network or the server.
        ({0: 0.9, 1: 0.9, 2: 0.9}, GroupHealth.HEALTHY),
        ({0: 0.9}, GroupHealth.HEALTHY),
        ({0: None, 1: None}, GroupHealth.HEALTHY),
        ({1: 0.0, 2: 0.0}, GroupHealth.WITHOUT_MASTER),
        ({}, GroupHealth.WITHOUT_MASTER),
    ],
)
def test_health_of_a_group(silences: Mapping[int, float | None], health: GroupHealth) -> None:
    """A master is silent after half of its expiry if a slave is not; unknown ages count as recent."""
    assert group_health(silences) == health
