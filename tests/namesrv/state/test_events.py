"""The last events are kept, numbered without a gap, and nothing more."""

import pytest

from namesrv.state.events import RING_SIZE, EventRing


def ring_of(count: int, size: int = 3) -> EventRing:
    """A ring after so many events."""
    ring = EventRing(size)
    for number in range(1, count + 1):
        ring.append({"event": f"e{number}"})
    return ring


@pytest.mark.parametrize(
    ("since", "limit", "found"),
    [
        (0, 10, [3, 4, 5]),
        (2, 10, [3, 4, 5]),
        (3, 10, [4, 5]),
        (5, 10, []),
        (99, 10, []),
        # the latest count most
        (0, 2, [4, 5]),
        (0, 1, [5]),
        (3, 1, [5]),
    ],
)
def test_events_since(since: int, limit: int, found: list[int]) -> None:
    """After five events, a ring of three holds the last three; the numbers say what was missed."""
    ring = ring_of(5)

    assert found == [event["seq"] for event in ring.since(since, limit)]
    assert 5 == ring.last_seq


def test_ring_is_bounded() -> None:
    """A server that runs for a year keeps the last thousand."""
    ring = ring_of(10 * RING_SIZE, size=RING_SIZE)

    assert 1_000 == len(ring.since(0, 100_000))
    assert {"seq": 9_001, "event": "e9001"} == ring.since(0, 100_000)[0]


def test_event_that_is_changed_later_stays_as_it_was() -> None:
    """The ring keeps its own."""
    ring, said = EventRing(), {"event": "e1"}
    ring.append(said)
    said["event"] = "other"

    assert [{"seq": 1, "event": "e1"}] == ring.since(0, 1)
