"""Topics that may be named in a question for changes, and since when."""

from collections.abc import Sequence

from namesrv_client.routes.route import Answer
from namesrv_client.routes.sync_point import SyncPoint


def said(
    *topics: str, run: str = "run-1", revision: int | None, conditional: bool = False, sync: bool = True
) -> Answer:
    """An answer about these topics."""
    return Answer(
        run=run,
        is_warm=True,
        topics=topics,
        routes={},
        revision=revision,
        is_conditional=conditional,
        is_sync=sync,
    )


def begun(*answers: Answer) -> SyncPoint:
    """A point that has taken these answers, at 1, 2, 3 seconds and so on."""
    point = SyncPoint()
    for now, answer in enumerate(answers, start=1):
        if point.begins(answer):
            point.begin(answer.run)
        point.advance(answer, float(now))
    return point


def asks(point: SyncPoint, run: str, topics: Sequence[str]) -> tuple[list[str], list[str], int]:
    """What would be asked of a run: for changes, fully, and since when."""
    return *point.known(run, topics), point.revision


def test_in_the_beginning_everything_is_asked_fully() -> None:
    """Nothing is known of any run."""
    assert ([], ["a", "b"], 0) == asks(SyncPoint(), "run-1", ["a", "b"])


def test_what_was_asked_fully_is_asked_for_changes() -> None:
    """Since the revision of the answer."""
    point = begun(said("a", "b", revision=7))

    assert (["a", "b"], ["c"], 7) == asks(point, "run-1", ["a", "b", "c"])


def test_another_run_is_asked_fully() -> None:
    """Its revisions have nothing to do with those of the first."""
    point = begun(said("a", revision=7))

    assert ([], ["a"]) == point.known("run-2", ["a"])


def test_an_answer_about_all_topics_moves_the_point() -> None:
    """The next question asks from there on."""
    point = begun(said("a", "b", revision=7), said("a", "b", revision=9, conditional=True))

    assert (["a", "b"], [], 9) == asks(point, "run-1", ["a", "b"])


def test_an_answer_about_some_topics_does_not() -> None:
    """A change of b between 7 and 9 would be missed."""
    point = begun(said("a", "b", revision=7), said("a", revision=9, conditional=True))

    assert (["a", "b"], [], 7) == asks(point, "run-1", ["a", "b"])


def test_a_topic_that_joins_is_known_from_where_the_others_are() -> None:
    """It is known up to 9, which is more than is claimed."""
    point = begun(said("a", revision=7), said("b", revision=9, sync=False))

    assert (["a", "b"], [], 7) == asks(point, "run-1", ["a", "b"])


def test_a_watch_that_began_before_a_topic_joined_does_not_move_the_point_past_it() -> None:
    """The watch was asked about a, b was asked for at 8, changed at 9, and the watch is answered at 10."""
    point = begun(said("a", revision=7), said("b", revision=8, sync=False), said("a", revision=10, conditional=True))

    assert (["a", "b"], [], 7) == asks(point, "run-1", ["a", "b"])


def test_answers_that_overtake_each_other_take_the_point_back() -> None:
    """The older answer came last, and what it said is what is known now."""
    point = begun(
        said("a", revision=7), said("a", revision=12, conditional=True), said("a", revision=9, conditional=True)
    )

    assert (["a"], [], 9) == asks(point, "run-1", ["a"])


def test_an_older_answer_about_one_of_the_topics_takes_the_point_back_for_all() -> None:
    """Asking about too much is harmless."""
    point = begun(said("a", "b", revision=12), said("b", revision=9, sync=False))

    assert (["a", "b"], [], 9) == asks(point, "run-1", ["a", "b"])


def test_another_server_that_was_asked_for_one_topic_does_not_end_the_run() -> None:
    """Only a poll or a watch decides whom to keep up with."""
    point = begun(said("a", revision=7), said("b", run="run-2", revision=99, sync=False))

    assert (["a"], ["b"], 7) == asks(point, "run-1", ["a", "b"])
    assert "<SyncPoint [run-1 | 7 | 1 topics]>" == repr(point)


def test_a_poll_of_another_run_begins_anew() -> None:
    """What was known of the first run is asked fully again if it comes back."""
    point = begun(said("a", "b", revision=7), said("a", run="run-2", revision=3))

    assert (["a"], ["b"], 3) == asks(point, "run-2", ["a", "b"])
    assert ([], ["a", "b"]) == point.known("run-1", ["a", "b"])


def test_changes_of_another_run_cannot_be_used() -> None:
    """They say nothing about what is known here."""
    point = begun(said("a", revision=7))

    assert not point.accepts(said("a", run="run-2", revision=9, conditional=True))
    assert point.accepts(said("a", run="run-2", revision=9))
    assert point.accepts(said("a", revision=9, conditional=True))


def test_a_server_that_does_not_count_changes_is_asked_fully() -> None:
    """Apache's has no revisions."""
    point = begun(said("a", run="10.0.0.1:9876#1", revision=None))

    assert ([], ["a"], 0) == asks(point, "10.0.0.1:9876#1", ["a"])


def test_all_topics_are_confirmed_by_an_answer_about_all() -> None:
    """At once, however many there are; a full answer gave each of them anew."""
    point = begun(said("a", "b", revision=7))
    assert float("-inf") == point.confirmed_at

    assert point.advance(said("b", "a", revision=7, conditional=True), 50.0)
    assert 50.0 == point.confirmed_at

    assert not point.advance(said("a", revision=8, conditional=True), 60.0)
    assert 50.0 == point.confirmed_at


def test_topics_that_nobody_uses_any_more_do_not_hold_the_point_back() -> None:
    """They are not asked about, and no answer would ever be about all."""
    point = begun(said("a", "b", "c", revision=7))
    point.drop("b")
    point.retain({"a"})

    point.advance(said("a", revision=9, conditional=True), 9.0)

    assert (["a"], ["b", "c"], 9) == asks(point, "run-1", ["a", "b", "c"])


def test_what_changed_beyond_telling_is_asked_fully_again() -> None:
    """And from there on for changes, not for ever fully because of what was known before."""
    point = begun(said("a", "b", revision=7))

    point.restart()
    assert ([], ["a", "b"]) == point.known("run-1", ["a", "b"])

    point.advance(said("a", revision=12), 1.0)
    point.advance(said("b", revision=13), 1.0)
    assert (["a", "b"], [], 12) == asks(point, "run-1", ["a", "b"])
