"""Limits of one registration: its number of topics, and the memory that decoding takes."""

from dataclasses import dataclass
from typing import Final

from namesrv_remoting.bodies.base import FREE_INFLATED_BYTES
from namesrv_remoting.bodies.topic import TopicQueueMappingInfo, logical_queues
from namesrv_remoting.errors import BadRequestError

# Logical queues of static topics on one broker, per allowed topic; real brokers have a few static topics.
_QUEUES_PER_TOPIC: Final = 2

# Additional memory of the decoders: a slice of the body and the objects decoded from it.
_SLICES_BYTES: Final = 2 * 1024 * 1024
# A mapping of 3 bytes becomes 170 bytes of objects. A topic brings at most itself, a mapping, two queues, and its
# texts: a character takes at most four bytes in memory, and at least one in a body.
_GROWTH: Final = 64
_BYTES_PER_TOPIC: Final = 1024


@dataclass(frozen=True, slots=True)
class RegistrationLimits:
    """The limits of one registration. `max_topics` is also the limit of mappings and of deleted topics."""

    max_topics: int = 100_000
    max_inflated_bytes: int = 64 * 1024 * 1024
    # Real registrations inflate about 40-fold; zlib can inflate one byte to 1,032 bytes.
    max_inflate_ratio: int = 200

    def most_bytes(self, body_bytes: int, *, compressed: bool) -> int:
        """The most memory that decoding a body of this size, and the decoded objects, can take."""
        if compressed:
            body_bytes = min(self.max_inflated_bytes, max(self.max_inflate_ratio * body_bytes, FREE_INFLATED_BYTES))
        return _SLICES_BYTES + min(_GROWTH * body_bytes, 4 * body_bytes + _BYTES_PER_TOPIC * self.max_topics)


DEFAULT_LIMITS: Final = RegistrationLimits()


class Tally:
    """Counts the content of one registration while it is decoded; raises BadRequestError beyond a limit."""

    def __init__(self, max_topics: int) -> None:
        self.max_topics = max_topics
        # logical queues of the mappings so far
        self._queues = 0

    def check(self, what: str, number: int) -> None:
        """Check the number of topics, mappings or deleted topics so far."""
        if number > self.max_topics:
            raise BadRequestError(f"{number} {what} in one registration, limit {self.max_topics}")

    def count(self, mapping: TopicQueueMappingInfo) -> None:
        """Count the queues of one more mapping."""
        self._queues += logical_queues(mapping)
        limit = _QUEUES_PER_TOPIC * self.max_topics
        if self._queues > limit:
            raise BadRequestError(f"{self._queues} queues of static topics in one registration, limit {limit}")
