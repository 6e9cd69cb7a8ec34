"""The bound on how long a dead broker may be kept, whatever happened to the process."""

from hypothesis import given
from hypothesis import strategies as st

from namesrv.routeinfo.liveness import MAX_CREDIT_SECONDS, LivenessClock, stopped_seconds
from tests.support.fake_clock import FakeClock

# the default, and one that a broker asked for
EXPIRY, LONG_EXPIRY, SCAN = 120.0, 600.0, 10.0

# (how late a tick is, how much of that the process worked), one a second
ticks = st.lists(st.tuples(st.sampled_from([0.0, 0.2, 1.0, 60.0, 500.0]), st.floats(0.0, 1.0)), max_size=40)


@given(histories=ticks, expiry=st.sampled_from([EXPIRY, LONG_EXPIRY]))
def test_silence_is_credited_with_what_was_stopped_and_never_more_than_the_cap(
    histories: list[tuple[float, float]], expiry: float
) -> None:
    """Of any two moments: liveness time advances with the clock, but for stops, and those only up to the cap."""
    clock = FakeClock()
    liveness = LivenessClock(clock.monotonic, SCAN)
    # (monotonic, liveness) at every tick, and how long the process had been stopped by then
    moments = [(clock.monotonic(), liveness.now(), 0.0)]
    for late, share in histories * 5:
        clock.stall(1.0 + late)
        stopped = stopped_seconds(late, share * (1.0 + late))
        assert 0.0 <= liveness.credit(stopped, (EXPIRY, expiry)) <= stopped
        moments.append((clock.monotonic(), liveness.now(), moments[-1][2] + stopped))
    for at, (heard_at, heard, stopped_before) in enumerate(moments):
        for now, alive_at, stopped_since in moments[at:]:
            credited = (now - heard_at) - (alive_at - heard)
            assert -1e-6 <= credited <= stopped_since - stopped_before + 1e-6
            if alive_at - heard <= expiry + SCAN:
                assert credited <= MAX_CREDIT_SECONDS + 1e-6
