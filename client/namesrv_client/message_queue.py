"""What is a queue to a client, and how are many of them written down?"""

from typing import NamedTuple


class MessageQueue(NamedTuple):
    """One queue of one topic on one broker group."""

    topic: str
    broker_name: str
    queue_id: int


class QueueRun(NamedTuple):
    """Neighbouring queues of one broker: `first_id`, `first_id` + 1, and so on.

    A topic is kept as its runs: of each broker one, whether it has 4 queues or, by somebody's mistake, a billion.
    """

    broker_name: str
    first_id: int
    size: int
