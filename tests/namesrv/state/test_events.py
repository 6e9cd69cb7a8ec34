"""The ring of recent events."""

from namesrv.state.events import EventRing


def test_ring_keeps_a_copy_of_each_event() -> None:
    """A change of an event after it was appended does not reach the ring."""
    ring, appended = EventRing(), {"event": "e1"}
    ring.append(appended)
    appended["event"] = "other"

    assert ring.since(0, 1) == [{"seq": 1, "event": "e1"}]
