"""The liveness clock bounds how long a dead broker is kept, also when the process was stopped."""

from hypothesis import given
from hypothesis import strategies as st

from namesrv.routeinfo.tables.liveness import MAX_CREDIT_SECONDS, LivenessClock, stopped_seconds
from tests.support.fake_clock import FakeClock

# the default, and one that a broker asked for
EXPIRY, LONG_EXPIRY, SCAN = 120.0, 600.0, 10.0

# one tick a second: (its lateness, the share of it in which the process worked)
ticks = st.lists(st.tuples(st.sampled_from([0.0, 0.2, 1.0, 60.0, 500.0]), st.floats(0.0, 1.0)), max_size=40)


@given(histories=ticks, expiry=st.sampled_from([EXPIRY, LONG_EXPIRY]))
def test_liveness_time_is_credited_for_stops_up_to_the_cap(histories: list[tuple[float, float]], expiry: float) -> None:
    """Between any two moments, liveness time lags the clock at most by the time stopped, and by the cap."""
    clock = FakeClock()
    liveness = LivenessClock(clock.monotonic, SCAN)
    # (monotonic, liveness, seconds stopped until then) at every tick
    moments = [(clock.monotonic(), liveness.now(), 0.0)]
    for late, share in histories * 5:
        clock.stall(1.0 + late)
        stopped = stopped_seconds(late, share * (1.0 + late))
        assert 0.0 <= liveness.credit(stopped, (EXPIRY, expiry)) <= stopped
        moments.append((clock.monotonic(), liveness.now(), moments[-1][2] + stopped))
    for at, (since, alive_since, stopped_before) in enumerate(moments):
        for now, alive_at, stopped_since in moments[at:]:
            credited = (now - since) - (alive_at - alive_since)
            assert -1e-6 <= credited <= stopped_since - stopped_before + 1e-6
            if alive_at - alive_since <= expiry + SCAN:
                assert credited <= MAX_CREDIT_SECONDS + 1e-6
