"""No attack costs the well-behaved peers more than its share.

The short form of `make abuse`: real processes on loopback, one attack after another, on the machine's own clock, which
is what an attacker has. Nothing here may fail because the machine is slow: what a broker or a newcomer may expect
follows from the responses of the server, and what only a quiet machine can show is left to `make abuse`.
"""

import pytest

from benchmarks.abuse import report
from benchmarks.abuse.attacks import ATTACKS
from benchmarks.abuse.memory_group import NoMemoryGroupError
from benchmarks.abuse.network import NoNetworkError
from benchmarks.abuse.scenario import SHORT, run
from benchmarks.abuse.suite import unpinned_bench

# one after another, in one worker: two would be each other's attack
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("abuse")]

# a hundred times what an attack of one peer may cost: a machine is not that slow, decoding without limits is that dear
MOST_CPU_PER_MIB = 100 * report.CPU_PER_MIB


@pytest.mark.parametrize("name", [name for name, attack in ATTACKS.items() if attack.is_short])
def test_an_attack_costs_the_others_no_more_than_its_share(name: str) -> None:
    """No live broker evicted or cut off, no dead one kept, no newcomer refused, and a bound for memory and work."""
    try:
        result = run(unpinned_bench(), name, ATTACKS[name], SHORT)
    except (NoMemoryGroupError, NoNetworkError) as error:
        pytest.skip(str(error))

    assert [miss for miss in report.missed(result) if miss not in report.TIMED] == [], result
    assert report.cpu_per_mib(result) <= MOST_CPU_PER_MIB, result
