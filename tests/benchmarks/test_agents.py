"""What the agents' process prints becomes figures."""

from typing import Any

import pytest

from benchmarks.agents import figures
from benchmarks.figures import BenchError

SAID: dict[str, Any] = {
    "cores": [0.05, 0.3, 0.04],
    "reached_ms": [[2.0, 3.0, 90.0], [1.0, 1.0, 1.0], [30.0, 40.0, 50.0]],
    "registering_seconds": 3.84,
    "surplus_registrations": 0,
}


def test_rounds_become_figures_with_their_targets() -> None:
    """A quarter of a core, and 20 ms at the median of a round; the longest has no target."""
    cores, reached, longest = figures(SAID)

    assert (0.05, "met", "all registered 3.8 s after the first began") == (cores.value, cores.verdict, cores.behind)
    assert ((3.0, 1.0, 40.0), 3.0, "met") == (reached.values, reached.value, reached.verdict)
    assert ((90.0, 1.0, 50.0), "") == (longest.values, longest.verdict)


def test_brokers_that_had_to_register_again_are_no_measurement() -> None:
    """Connections that break cost more than heartbeats do."""
    with pytest.raises(BenchError, match=r"^agents: 3 registrations too many, connections broke$"):
        figures({**SAID, "surplus_registrations": 3})
