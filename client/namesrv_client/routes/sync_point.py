"""The sync point: the run and revision of a server up to which every change of some topics is known.

A conditional question says "what changed after revision 17 of run b00t?" for all topics at once. That is only right for
topics that were known at 17: one that came from the disk, from another server, or while the question was under way has
to be asked about fully first, or a change of it would be missed for ever.
"""

from collections.abc import Collection, Iterable

from namesrv_client.routes.route import Answer


class SyncPoint:
    """A run, a revision, and the topics that are known as of it. No I/O, no clock."""

    def __init__(self) -> None:
        # None: nothing is known of any run
        self.run: str | None = None
        # changes up to this one are known of all topics
        self.revision = 0
        self.topics: set[str] = set()
        # monotonic: when the run last confirmed all of them at once
        self.confirmed_at = float("-inf")

    def __repr__(self) -> str:
        return f"<SyncPoint [{self.run} | {self.revision} | {len(self.topics)} topics]>"

    def known(self, run: str, topics: Iterable[str]) -> tuple[list[str], list[str]]:
        """Those of the topics that a conditional question to this run may name, and those that it may not."""
        if run != self.run:
            return [], list(topics)
        found: tuple[list[str], list[str]] = ([], [])
        for topic in topics:
            found[topic not in self.topics].append(topic)
        return found

    def accepts(self, answer: Answer) -> bool:
        """Whether the answer can be used: changes of another run say nothing about what is known here."""
        return not answer.is_conditional or answer.run == self.run

    def begins(self, answer: Answer) -> bool:
        """Whether the answer is the first of the run to keep up with from now on."""
        return answer.revision is not None and answer.run != self.run and (answer.is_sync or self.run is None)

    def begin(self, run: str) -> None:
        """Forget what was known of the run before."""
        self.run, self.revision, self.confirmed_at = run, 0, float("-inf")
        self.topics.clear()

    def restart(self) -> None:
        """Ask this run about everything again: it cannot say what has changed, because too much has."""
        self.topics.clear()

    def advance(self, answer: Answer, now: float) -> bool:
        """Take in an answer; whether it confirms all topics at once. One of another run says nothing here."""
        if answer.revision is None or answer.run != self.run:
            return False
        covers_all = self.topics.issubset(answer.topics)
        # what else is known is known only up to where it was
        self.revision = answer.revision if covers_all else min(self.revision, answer.revision)
        if not answer.is_conditional:
            self.topics.update(answer.topics)
            return False
        if covers_all:
            self.confirmed_at = now
        return covers_all

    def drop(self, topic: str) -> None:
        """Ask fully about a topic the next time, or never again."""
        self.topics.discard(topic)

    def retain(self, topics: Collection[str]) -> None:
        """Drop all topics but these."""
        self.topics.intersection_update(topics)
