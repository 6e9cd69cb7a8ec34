"""A client that asks for what has changed always ends up with what is."""

import random

import pytest

from namesrv.routeinfo.revisions import RouteRevisions

TOPICS = ["a", "b", "c"]


def test_every_change_has_its_number() -> None:
    """From 1 on; nothing has happened at 0."""
    revisions = RouteRevisions()
    assert 0 == revisions.revision
    assert [] == revisions.changed_since(TOPICS, 0)

    assert [1, 2, 3] == [revisions.changed("a"), revisions.everything_changed(), revisions.changed("b")]
    assert 3 == revisions.revision


@pytest.mark.parametrize(
    ("since", "changed"), [(0, ["a", "b"]), (1, ["a", "b"]), (2, ["a"]), (3, []), (4, None), (-1, None)]
)
def test_what_changed_since(since: int, changed: list[str] | None) -> None:
    """Those of the asked topics, in the order asked; a number that was never given knows nothing."""
    revisions = RouteRevisions()
    revisions.changed(["a"])
    revisions.changed(["b", "x"])
    revisions.changed(["a", "y"])

    assert changed == revisions.changed_since(TOPICS, since)


def test_everything_changed() -> None:
    """Who asks for changes before it gets everything, who asks after it gets what came since."""
    revisions = RouteRevisions()
    revisions.changed(["a"])
    revisions.everything_changed()
    revisions.changed(["b"])

    assert revisions.changed_since(TOPICS, 1) is None
    assert ["b"] == revisions.changed_since(TOPICS, 2)
    assert [] == revisions.changed_since(TOPICS, 3)


def test_what_is_forgotten_counts_as_changed() -> None:
    """With room for two topics, the third pushes out the one that changed longest ago."""
    revisions = RouteRevisions(log_topics=2)
    revisions.changed(["a"])
    revisions.changed(["b"])
    revisions.changed(["a"])
    assert (0, ["a", "b"]) == (revisions.floor, revisions.changed_since(TOPICS, 0))

    revisions.changed(["c"])

    # b's only change was number 2
    assert 2 == revisions.floor
    assert revisions.changed_since(TOPICS, 1) is None
    assert ["a", "c"] == revisions.changed_since(TOPICS, 2)
    assert ["c"] == revisions.changed_since(TOPICS, 3)


def test_change_larger_than_the_log_is_remembered_until_the_next() -> None:
    """However many topics it has; what came before it is forgotten with the next large one."""
    revisions = RouteRevisions(log_topics=2)
    revisions.changed(TOPICS)
    assert TOPICS == revisions.changed_since(TOPICS, 0)

    revisions.changed(["x", "y"])

    assert revisions.changed_since(TOPICS, 0) is None
    assert [] == revisions.changed_since(TOPICS, 1)


def test_flapping_broker_does_not_fill_the_log() -> None:
    """The same thousand topics change a thousand times: two thousand entries at most, and nothing is forgotten."""
    revisions = RouteRevisions(log_topics=2_000)
    topics = [f"t{number}" for number in range(1_000)]
    revisions.changed(["a"])
    for _ in range(1_000):
        revisions.changed(topics)

    assert 0 == revisions.floor
    assert ["a"] == revisions.changed_since(["a"], 0)
    assert len(revisions._younger) + len(revisions._older) <= 2_001


@pytest.mark.parametrize("log_topics", [1, 3, 10, 1_000])
def test_client_that_replays_changes_is_right(log_topics: int) -> None:
    """However short the log, however rarely a client asks, it knows the truth after asking."""
    dice = random.Random(log_topics)
    names = [f"t{number}" for number in range(20)]
    revisions, truth = RouteRevisions(log_topics), dict.fromkeys(names, 0)
    clients: list[tuple[int, dict[str, int]]] = [(0, dict(truth)) for _ in range(5)]

    for step in range(2_000):
        if dice.random() < 0.02:
            truth = {name: value + step for name, value in truth.items()}
            revisions.everything_changed()
        else:
            touched = dice.sample(names, dice.randrange(1, 4))
            truth.update(dict.fromkeys(touched, step))
            revisions.changed(touched)
        number = dice.randrange(5)
        since, known = clients[number]
        if dice.random() < 0.3:
            changed = revisions.changed_since(names, since)
            known.update({name: truth[name] for name in (names if changed is None else changed)})
            clients[number] = (revisions.revision, known)
            assert truth == known
