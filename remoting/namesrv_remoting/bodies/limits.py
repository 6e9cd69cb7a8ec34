"""Limits of one registration: how much it may bring, and the memory that reading it takes."""

from dataclasses import dataclass
from typing import Final

from namesrv_remoting.bodies.base import FREE_INFLATED_BYTES
from namesrv_remoting.bodies.topic import TopicQueueMappingInfo
from namesrv_remoting.errors import BadRequestError

# Logical queues of static topics on one broker, per topic that it may have; real ones have a few static topics.
_QUEUES_PER_TOPIC: Final = 2

# What the decoders of registrations hold besides: a slice and what is made of it.
_SLICES_BYTES: Final = 2 * 1024 * 1024
# A mapping of 3 bytes becomes 170 bytes of objects. No topic brings more than that and another one, a mapping and two
# queues, besides its texts: a character takes at most four bytes in memory, and at least one in a body.
_GROWTH: Final = 64
_BYTES_PER_TOPIC: Final = 1024


@dataclass(frozen=True, slots=True)
class RegistrationLimits:
    """The bounds of one registration. `max_topics` holds for its mappings and its deleted topics, too."""

    max_topics: int = 100_000
    max_inflated_bytes: int = 64 * 1024 * 1024
    max_inflate_ratio: int = 200

    def most_bytes(self, body_bytes: int, *, compressed: bool) -> int:
        """The memory that a body of that size can take at most while it is decoded, and by what comes of it."""
        if compressed:
            body_bytes = min(self.max_inflated_bytes, max(self.max_inflate_ratio * body_bytes, FREE_INFLATED_BYTES))
        return _SLICES_BYTES + min(_GROWTH * body_bytes, 4 * body_bytes + _BYTES_PER_TOPIC * self.max_topics)


DEFAULT_LIMITS: Final = RegistrationLimits()


class Tally:
    """What a registration has brought so far; raises BadRequestError as soon as that is too much."""

    def __init__(self, max_topics: int) -> None:
        self.max_topics = max_topics
        # logical queues of its mappings
        self._queues = 0

    def check(self, what: str, number: int) -> None:
        """So many topics, mappings or deleted topics so far."""
        if number > self.max_topics:
            raise BadRequestError(f"{number} {what} in one registration, limit {self.max_topics}")

    def count(self, mapping: TopicQueueMappingInfo) -> None:
        """One more mapping."""
        self._queues += len(mapping.curr_id_map or ())
        limit = _QUEUES_PER_TOPIC * self.max_topics
        if self._queues > limit:
            raise BadRequestError(f"{self._queues} queues of static topics in one registration, limit {limit}")
