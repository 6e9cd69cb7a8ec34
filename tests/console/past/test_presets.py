"""The spans and settings to choose from on the pages about the past."""

import pytest

from namesrv.settings.model import Settings
from namesrv_client.settings import ClientSettings
from namesrv_console.pages.past import SLIDERS, presets
from namesrv_spark_jobs.history.spans import DAY_MS, HOUR_MS, MINUTE_MS, Span


@pytest.mark.parametrize(
    ("length_ms", "every_ms"), [(20 * MINUTE_MS, 20 * MINUTE_MS), (3 * DAY_MS, 3 * DAY_MS), (9 * DAY_MS, 7 * DAY_MS)]
)
def test_presets_end_with_the_logs(length_ms: int, every_ms: int) -> None:
    """A quarter of an hour, an hour, a day, or all of the logs, as far as a page can show that."""
    found = presets(Span(10 * DAY_MS - length_ms, 10 * DAY_MS))

    assert {name: span.length_ms for name, span in found.items()} == {
        "quarter": 15 * MINUTE_MS,
        "hour": HOUR_MS,
        "day": DAY_MS,
        "every": every_ms,
    }
    assert {span.to_ms for span in found.values()} == {10 * DAY_MS}


def test_sliders_begin_at_the_defaults() -> None:
    """Without settings in the query, the what-if page replays the default ones of servers and clients."""
    server, client = Settings(), ClientSettings()

    assert {slider.name: slider.default for slider in SLIDERS} == {
        "expiry": server.broker_expiry_seconds,
        "scan": server.scan_interval_seconds,
        "poll": client.poll_seconds,
    }
