"""Revisions: a client that pulls changed routes always ends up with the current ones."""

import itertools
import random
from collections.abc import Collection

import pytest

from namesrv.routeinfo.tables.revisions import DEFAULT_SPARE_TOPICS, RouteRevisions
from namesrv.routeinfo.tables.rows import CHUNK_TOPICS, RowChange, RowChanges, TopicRow
from tests.support.steps import finished, steps_and_result

TOPICS = ["a", "b", "c"]
# topics of a change that is entered in chunks
CROWD = dict.fromkeys(f"t{number}" for number in range(3 * CHUNK_TOPICS)).keys()
LAST = f"t{len(CROWD) - 1}"


class ChangingTopics:
    """A topic table with the revisions of its changes."""

    def __init__(self, spare_topics: int = DEFAULT_SPARE_TOPICS) -> None:
        self.routed: dict[str, TopicRow] = {}
        self.revisions = RouteRevisions(self.routed, spare_topics)

    def change(self, routed: Collection[str] = (), gone: Collection[str] = ()) -> int:
        """Change the routes of some topics and remove others; the new revision."""
        row = TopicRow(())
        chunk = [RowChange([topic], self.routed.get(topic), row) for topic in routed]
        self.routed.update(dict.fromkeys(routed, row))
        for topic in gone:
            self.routed.pop(topic, None)
        rows = {**dict.fromkeys(routed, row), **dict.fromkeys(gone)}
        return self.revisions.changed(RowChanges(rows, [chunk], made=[row], gone=[*gone]))


def test_removals_of_a_large_change_are_entered_in_chunks() -> None:
    """Removed topics are entered in chunks later, but count at once, and newer changes override them.

    The revision of a topic that has a route again is in its row.
    """
    table = ChangingTopics()
    revisions = table.revisions
    table.change((), CROWD)
    assert not revisions._gone
    table.change((), {"t0"})
    table.change({"t1"})
    settling = revisions.settle()
    sizes = [1]
    for _ in settling:
        sizes.append(len(revisions._gone))
        assert [*map(revisions.last_change, ("t0", "t1", LAST))] == [2, 3, 1]
        assert revisions.changed_since(["x", LAST], 0) == [LAST]
        assert revisions.changed_since(CROWD, 1) == ["t0", "t1"]

    assert revisions._gone.keys() == CROWD
    assert max(later - earlier for earlier, later in itertools.pairwise(sizes)) <= CHUNK_TOPICS
    assert steps_and_result(revisions.settle())[0] == 0


def test_number_of_removed_topics_is_bounded() -> None:
    """The oldest removed topics are dropped; a client from before the last dropped one gets everything."""
    table = ChangingTopics(spare_topics=4)
    revisions = table.revisions
    for topic in ("gone", "gone too", *TOPICS):
        table.change((), {topic})
    table.change(TOPICS)
    finished(revisions.settle())
    assert [revisions.floor, *map(revisions.last_change, ("gone", "gone too"))] == [0, 1, 2]

    for number in range(3):
        table.change((), {f"another {number}"})
    finished(revisions.settle())

    assert [revisions.floor, *map(revisions.last_change, ("gone", "another 2"))] == [9, 0, 0]
    assert [revisions.last_change(topic) for topic in TOPICS] == [6, 6, 6]
    assert revisions.changed_since(TOPICS, 8) is None
    assert revisions.changed_since(TOPICS, 9) == []


@pytest.mark.parametrize("spare_topics", [0, 1, 3, 10, 1_000])
def test_client_that_replays_changes_is_current(spare_topics: int) -> None:
    """With any bound of removed topics and rare pulls, a client knows the current routes after each pull."""
    dice = random.Random(spare_topics)
    names = [f"t{number}" for number in range(20)]
    table, truth = ChangingTopics(spare_topics), dict.fromkeys(names, 0)
    revisions = table.revisions
    clients: list[tuple[int, dict[str, int]]] = [(0, dict(truth)) for _ in range(5)]

    for step in range(2_000):
        chance = dice.random()
        if chance < 0.02:
            truth = {name: value + step for name, value in truth.items()}
            revisions.everything_changed()
        elif chance < 0.03:
            truth.update(dict.fromkeys(names, step))
            table.change((), CROWD)
        elif chance < 0.1:
            finished(revisions.settle())
        else:
            touched = dice.sample(names, dice.randrange(1, 4))
            truth.update(dict.fromkeys(touched, step))
            come = dice.randrange(len(touched) + 1)
            table.change(touched[:come], touched[come:])
        number = dice.randrange(5)
        since, known = clients[number]
        if dice.random() < 0.3:
            changed = revisions.changed_since(names, since)
            known.update({name: truth[name] for name in (names if changed is None else changed)})
            clients[number] = (revisions.revision, known)
            assert truth == known
