"""What is said about the machine?"""

import platform

from benchmarks.conditions import Conditions, processor
from benchmarks.rounds import Cores, Effort


def conditions(cores: Cores) -> Conditions:
    """Those of some machine."""
    return Conditions(
        processor="Some CPU",
        processors=4,
        python="CPython 3.11.7",
        loop="uvloop",
        system="Linux 6.1",
        cores=cores,
        effort=Effort(rounds=5, seconds=2),
        load_average=0.126,
        began=0.0,
        took_seconds=151.4,
    )


def test_the_first_processor_named_is_the_processor() -> None:
    """However it is spaced; where none is named, the architecture says something."""
    assert processor("processor\t: 0\nmodel name\t: Some  CPU @ 3GHz\nmodel name\t: x\n") == "Some CPU @ 3GHz"
    assert platform.machine() == processor("processor\t: 0\n")


def test_the_conditions_are_one_line() -> None:
    """What a reader needs before comparing two runs."""
    expected = (
        "4 x Some CPU, Linux 6.1, CPython 3.11.7 with uvloop; server on core 0, load on core 1; "
        "5 rounds of 2 s; 151 s in all; load average 0.13 before."
    )

    assert expected == str(conditions(Cores(0, 1)))


def test_one_core_for_both_is_pointed_out() -> None:
    """Such rates compare with nothing."""
    assert "on the same core: rates say little" in str(conditions(Cores(None, None)))
