"""A client that asks for what has changed always ends up with what is."""

import itertools
import random
from collections.abc import Collection

import pytest

from namesrv.routeinfo.revisions import DEFAULT_SPARE_TOPICS, STEP_TOPICS, RouteRevisions
from namesrv.routeinfo.rows import RowChanges, SharedStep, TopicRow
from tests.support.steps import finished, steps_and_result

TOPICS = ["a", "b", "c"]
# of a change that is too large to be entered at once
CROWD = dict.fromkeys(f"t{number}" for number in range(3 * STEP_TOPICS)).keys()


class Changing:
    """A topic table, and the revisions of what is done to it."""

    def __init__(self, spare_topics: int = DEFAULT_SPARE_TOPICS) -> None:
        self.routed: dict[str, TopicRow] = {}
        self.revisions = RouteRevisions(self.routed, spare_topics)

    def change(self, routed: Collection[str] = (), gone: Collection[str] = ()) -> int:
        """These topics have other routes now, those none."""
        row = TopicRow(())
        steps = [SharedStep([topic], self.routed.get(topic), row) for topic in routed]
        self.routed.update(dict.fromkeys(routed, row))
        for topic in gone:
            self.routed.pop(topic, None)
        rows = {**dict.fromkeys(routed, row), **dict.fromkeys(gone)}
        return self.revisions.changed(RowChanges(rows, [steps], made=[row], gone=[*gone]))


def test_every_change_has_its_number() -> None:
    """From 1 on; nothing has happened at 0."""
    it = Changing()
    revisions = it.revisions
    assert (revisions.revision, revisions.last_change("a")) == (0, 0)
    assert revisions.changed_since(TOPICS, 0) == []

    assert [it.change({"a"}), revisions.everything_changed(), it.change({"b"}, {"c"})] == [1, 2, 3]
    assert [revisions.revision, *map(revisions.last_change, TOPICS)] == [3, 1, 3, 3]


@pytest.mark.parametrize("has_route", [True, False])
@pytest.mark.parametrize(
    ("since", "changed"), [(0, None), (1, None), (2, ["a", "b"]), (3, ["a"]), (4, []), (5, None), (-1, None)]
)
def test_what_changed_since(since: int, changed: list[str] | None, *, has_route: bool) -> None:
    """Those of the asked topics, in the order asked; who asks for what came before a change of everything gets all."""
    it = Changing()
    it.change({"a"})
    it.revisions.everything_changed()
    for topics in ({"b", "x"}, {"a", "y"}):
        it.change(*((topics, ()) if has_route else ((), topics)))

    assert changed == it.revisions.changed_since(TOPICS, since)


def test_large_change_costs_nothing_when_it_is_noted() -> None:
    """Topics that are gone are entered later, a few at a time, and known from the first moment; newer ones count more.

    That of one that has come back is in its row.
    """
    it = Changing()
    revisions = it.revisions
    it.change((), CROWD)
    assert not revisions._gone
    it.change((), {"t0"})
    it.change({"t1"})
    settling = revisions.settle()
    sizes = [1]
    for _ in settling:
        sizes.append(len(revisions._gone))
        assert [*map(revisions.last_change, ("t0", "t1", "t5999"))] == [2, 3, 1]
        assert revisions.changed_since(["x", "t5999"], 0) == ["t5999"]
        assert revisions.changed_since(CROWD, 1) == ["t0", "t1"]

    assert revisions._gone.keys() == CROWD
    assert max(later - earlier for earlier, later in itertools.pairwise(sizes)) <= STEP_TOPICS
    assert steps_and_result(revisions.settle())[0] == 0


def test_broker_that_comes_and_goes_leaves_nothing() -> None:
    """Its topics are entered when they go, and taken out when they are back, so that the others are few."""
    it = Changing()
    for number in (2, 4, 6):
        it.change(TOPICS)
        assert not it.revisions._gone
        it.change((), TOPICS)
        assert dict.fromkeys(TOPICS, number) == it.revisions._gone


def test_settling_that_is_given_up_begins_anew() -> None:
    """The task that settled was cancelled in the middle of it."""
    it = Changing()
    it.change((), CROWD)
    given_up = it.revisions.settle()
    next(given_up)
    given_up.close()

    assert it.revisions.last_change("t5999") == 1
    finished(it.revisions.settle())
    assert [it.revisions._gone["t0"], it.revisions._gone["t5999"]] == [1, 1]


def test_topics_without_a_route_are_forgotten_when_they_are_too_many() -> None:
    """Those that came back do not count; who asks for changes before the last of the forgotten gets everything."""
    it = Changing(spare_topics=4)
    revisions = it.revisions
    for topic in ("gone", "gone too", *TOPICS):
        it.change((), {topic})
    it.change(TOPICS)
    finished(revisions.settle())
    assert [revisions.floor, *map(revisions.last_change, ("gone", "gone too"))] == [0, 1, 2]

    for number in range(3):
        it.change((), {f"another {number}"})
    finished(revisions.settle())

    assert [revisions.floor, *map(revisions.last_change, ("gone", "another 2"))] == [9, 0, 0]
    assert [revisions.last_change(topic) for topic in TOPICS] == [6, 6, 6]
    assert revisions.changed_since(TOPICS, 8) is None
    assert revisions.changed_since(TOPICS, 9) == []


@pytest.mark.parametrize("spare_topics", [0, 1, 3, 10, 1_000])
def test_client_that_replays_changes_is_right(spare_topics: int) -> None:
    """However little is remembered, however rarely a client asks, it knows the truth after asking."""
    dice = random.Random(spare_topics)
    names = [f"t{number}" for number in range(20)]
    it, truth = Changing(spare_topics), dict.fromkeys(names, 0)
    revisions = it.revisions
    clients: list[tuple[int, dict[str, int]]] = [(0, dict(truth)) for _ in range(5)]

    for step in range(2_000):
        chance = dice.random()
        if chance < 0.02:
            truth = {name: value + step for name, value in truth.items()}
            revisions.everything_changed()
        elif chance < 0.03:
            truth.update(dict.fromkeys(names, step))
            it.change((), CROWD)
        elif chance < 0.1:
            finished(revisions.settle())
        else:
            touched = dice.sample(names, dice.randrange(1, 4))
            truth.update(dict.fromkeys(touched, step))
            come = dice.randrange(len(touched) + 1)
            it.change(touched[:come], touched[come:])
        number = dice.randrange(5)
        since, known = clients[number]
        if dice.random() < 0.3:
            changed = revisions.changed_since(names, since)
            known.update({name: truth[name] for name in (names if changed is None else changed)})
            clients[number] = (revisions.revision, known)
            assert truth == known
