"""Facts about the machine."""

import platform

from benchmarks.conditions import Clocks, Conditions, busy_ticks, others_share, processor
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
        began=Clocks(0.0, 0.0, 0.0),
        took_seconds=151.4,
        others_share=0.126,
    )


def test_the_conditions_are_one_line() -> None:
    """What a reader needs before comparing two runs; rates of one core for both compare with nothing."""
    expected = (
        "4 x Some CPU, Linux 6.1, CPython 3.11.7 with uvloop; server on core 0, load on core 1; "
        "5 rounds of 2 s; 151 s in all; others took 13% of the processors."
    )

    assert expected == str(conditions(Cores(0, 1)))
    assert "on the same core: rates say little" in str(conditions(Cores(None, None)))


def test_what_the_kernel_says() -> None:
    """The first processor named is the processor, however it is spaced; where none is, the architecture is something.

    Waiting is not busy, neither idle nor iowait; guests are in user already.
    """
    assert "Some CPU @ 3GHz" == processor("processor\t: 0\nmodel name\t: Some  CPU @ 3GHz\nmodel name\t: x\n")
    assert platform.machine() == processor("processor\t: 0\n")
    assert 1 + 2 + 4 + 32 + 64 + 128 == busy_ticks("cpu  1 2 4 8 16 32 64 128 256 512\ncpu0 1 1 1 1 1 1 1 1 0 0\n")


def test_what_is_neither_idle_nor_ours_is_others() -> None:
    """10 s of two processors, 12 s of them busy, 8 s with our work: others had a fifth; never less than none."""
    assert others_share(Clocks(5.0, 100.0, 1.0), Clocks(15.0, 112.0, 9.0), processors=2) == 0.2
    # ticks are coarse, and read a moment apart
    assert others_share(Clocks(0.0, 0.0, 0.0), Clocks(1.0, 0.99, 1.0), processors=2) == 0
