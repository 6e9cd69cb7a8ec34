"""Attacks cost other peers a bounded share.

The short form of `make abuse`: real processes on loopback, one attack after another, on real time. No test may fail on
a slow machine: expectations of brokers and new peers follow from the server's responses, and measurements that need a
quiet machine are left to `make abuse`.
"""

import pytest

from benchmarks.abuse.attacks import ATTACKS
from benchmarks.abuse.costs import CPU_MS_PER_MIB, TIMED
from benchmarks.abuse.memory_group import NoMemoryGroupError
from benchmarks.abuse.scenario import SHORT, run
from benchmarks.abuse.suite import unpinned_bench

# one worker, because two attacks would disturb each other
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("abuse")]

# a hundred times the cost of one peer's attack: no machine is that slow, decoding without limits is that expensive
MOST_CPU_MS_PER_MIB = 100 * CPU_MS_PER_MIB
SHORT_ATTACKS = [name for name, attack in ATTACKS.items() if attack.is_short]


@pytest.mark.parametrize("name", SHORT_ATTACKS)
def test_attack_costs_others_a_bounded_share(name: str) -> None:
    """No live broker is evicted or disconnected, no dead one kept, no new peer refused; memory and work are bounded."""
    try:
        figures = run(unpinned_bench(), name, ATTACKS[name], SHORT)
    except NoMemoryGroupError as error:
        pytest.skip(str(error))

    by_key = {figure.name.rpartition(".")[2]: figure for figure in figures}
    assert [key for key, figure in by_key.items() if figure.verdict == "missed" and key not in TIMED] == [], figures
    assert by_key["cpu"].value <= MOST_CPU_MS_PER_MIB, figures
