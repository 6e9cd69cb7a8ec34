"""A client that asks for what has changed always ends up with what is."""

import itertools
import random

import pytest

from namesrv.routeinfo.revisions import STEP_TOPICS, RouteRevisions
from tests.support.steps import finished, steps_and_result

TOPICS = ["a", "b", "c"]
# of a change that is too large to be entered at once
CROWD = dict.fromkeys(f"t{number}" for number in range(3 * STEP_TOPICS)).keys()


def test_every_change_has_its_number() -> None:
    """From 1 on; nothing has happened at 0."""
    revisions = RouteRevisions()
    assert (0, 0) == (revisions.revision, revisions.last_change("a"))
    assert [] == revisions.changed_since(TOPICS, 0)

    assert [1, 2, 3] == [revisions.changed({"a"}), revisions.everything_changed(), revisions.changed({"b"})]
    assert (3, 1, 3) == (revisions.revision, revisions.last_change("a"), revisions.last_change("b"))


@pytest.mark.parametrize(
    ("since", "changed"), [(0, None), (1, None), (2, ["a", "b"]), (3, ["a"]), (4, []), (5, None), (-1, None)]
)
def test_what_changed_since(since: int, changed: list[str] | None) -> None:
    """Those of the asked topics, in the order asked; who asks for what came before a change of everything gets all."""
    revisions = RouteRevisions()
    revisions.changed({"a"})
    revisions.everything_changed()
    revisions.changed({"b", "x"})
    revisions.changed({"a", "y"})

    assert changed == revisions.changed_since(TOPICS, since)


def test_large_change_costs_nothing_when_it_is_noted() -> None:
    """It is entered later, a few topics at a time, and known from the first moment; newer ones count more."""
    revisions = RouteRevisions()
    revisions.changed(CROWD)
    assert not revisions._last
    revisions.changed({"t0"})
    settling = revisions.settle({})
    sizes = [0]
    for _ in settling:
        sizes.append(len(revisions._last))
        assert (2, 1) == (revisions.last_change("t0"), revisions.last_change("t5999"))
        assert ["t5999"] == revisions.changed_since(["x", "t5999"], 0)
        assert ["t0"] == revisions.changed_since(CROWD, 1)

    assert len(CROWD) == len(revisions._last)
    assert max(later - earlier for earlier, later in itertools.pairwise(sizes)) <= STEP_TOPICS
    assert 0 == steps_and_result(revisions.settle(CROWD))[0]


def test_settling_that_is_given_up_begins_anew() -> None:
    """The task that settled was cancelled in the middle of it."""
    revisions = RouteRevisions()
    revisions.changed(CROWD)
    given_up = revisions.settle(CROWD)
    next(given_up)
    given_up.close()

    assert 1 == revisions.last_change("t5999")
    finished(revisions.settle(CROWD))
    assert [1, 1] == [revisions._last["t0"], revisions._last["t5999"]]


def test_topics_without_a_route_are_forgotten_when_they_are_too_many() -> None:
    """Those with one never are; who asks for changes before the last of the forgotten gets everything."""
    revisions = RouteRevisions(spare_topics=2)
    for topic in ("a", "gone", "b", "b too", "c"):
        revisions.changed({topic})
    finished(revisions.settle(dict.fromkeys(TOPICS)))
    assert (0, 2) == (revisions.floor, revisions.last_change("gone"))

    revisions.changed({"a"})
    revisions.changed({"one more"})
    finished(revisions.settle(dict.fromkeys(TOPICS)))

    assert (7, 0) == (revisions.floor, revisions.last_change("gone"))
    assert [6, 3, 5] == [revisions.last_change(topic) for topic in TOPICS]
    assert revisions.changed_since(TOPICS, 6) is None
    assert [] == revisions.changed_since(TOPICS, 7)


@pytest.mark.parametrize("spare_topics", [0, 1, 3, 10, 1_000])
def test_client_that_replays_changes_is_right(spare_topics: int) -> None:
    """However little is remembered, however rarely a client asks, it knows the truth after asking."""
    dice = random.Random(spare_topics)
    names = [f"t{number}" for number in range(20)]
    revisions, truth = RouteRevisions(spare_topics), dict.fromkeys(names, 0)
    clients: list[tuple[int, dict[str, int]]] = [(0, dict(truth)) for _ in range(5)]

    for step in range(2_000):
        chance = dice.random()
        if chance < 0.02:
            truth = {name: value + step for name, value in truth.items()}
            revisions.everything_changed()
        elif chance < 0.03:
            truth.update(dict.fromkeys(names, step))
            revisions.changed(CROWD)
        elif chance < 0.1:
            finished(revisions.settle(names[: dice.randrange(20)]))
        else:
            touched = dice.sample(names, dice.randrange(1, 4))
            truth.update(dict.fromkeys(touched, step))
            revisions.changed(frozenset(touched))
        number = dice.randrange(5)
        since, known = clients[number]
        if dice.random() < 0.3:
            changed = revisions.changed_since(names, since)
            known.update({name: truth[name] for name in (names if changed is None else changed)})
            clients[number] = (revisions.revision, known)
            assert truth == known
