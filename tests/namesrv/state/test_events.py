"""The last events are kept, numbered without a gap, and nothing more."""

from namesrv.state.events import EventRing


def test_event_that_is_changed_later_stays_as_it_was() -> None:
    """The ring keeps its own."""
    ring, said = EventRing(), {"event": "e1"}
    ring.append(said)
    said["event"] = "other"

    assert ring.since(0, 1) == [{"seq": 1, "event": "e1"}]
