"""The sync point: the revision of a server up to which a client knows all changes. No I/O, no event loop."""

from collections.abc import Callable, Collection, Iterable

from namesrv_client.routes.response import RouteResponse


class SyncPoint:
    """The boot id and revision of a server up to which every change of some topics is known.

    A conditional request asks for the changes after revision 17 of boot id b00t, for all topics at once. A topic whose
    route is not of revision 17 (it came from disk, from another server, or while the request was under way) has to be
    requested in full first; otherwise a change of that topic would be missed for ever.
    """

    def __init__(self, on_leave: Callable[[Iterable[str]], None] = lambda _: None) -> None:
        # called with topics that are about to be dropped, whose time of confirmation would be lost
        self._on_leave = on_leave
        # None while no server has sent a revision
        self.boot_id: str | None = None
        # all changes of `topics` up to this revision are known
        self.revision = 0
        # topics that a conditional request may name
        self.topics: set[str] = set()
        # monotonic time at which the server last confirmed all topics at once
        self.confirmed_at = float("-inf")

    def __repr__(self) -> str:
        return f"<SyncPoint [{self.boot_id} | {self.revision} | {len(self.topics)} topics]>"

    def divide(self, boot_id: str | None, topics: Iterable[str]) -> tuple[list[str], list[str]]:
        """Divide topics into those that a conditional request to a server may name, and the others."""
        known: list[str] = []
        others: list[str] = []
        for topic in topics:
            (known if boot_id == self.boot_id and topic in self.topics else others).append(topic)
        return known, others

    def advance(self, response: RouteResponse, now: float) -> bool:
        """Move the sync point; True if the response covers all topics. A response of another boot id is ignored."""
        if response.revision is None or response.boot_id != self.boot_id:
            return False
        covers_all = self.topics.issubset(response.topics)
        # The other topics are still known only up to the old revision.
        self.revision = response.revision if covers_all else min(self.revision, response.revision)
        if not response.is_conditional:
            self.topics.update(response.topics)
        elif covers_all:
            self.confirmed_at = now
        return covers_all

    def retain(self, topics: Collection[str]) -> None:
        """Drop all topics except these, so that the next request asks for them in full."""
        self._on_leave(self.topics.difference(topics))
        self.topics.intersection_update(topics)
