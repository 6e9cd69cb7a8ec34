"""What did a server say about routes?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from namesrv_remoting.bodies.route import TopicRouteData


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer of one server to one question."""

    # which run of which server: a native one's boot id, or a connection to one that has none
    run: str
    # the server has run for long enough that what it does not know does not exist
    is_warm: bool
    # for long enough, too, that a topic that it does not know and nobody else either does not exist
    can_deny: bool = True
    # all that were asked about
    topics: Sequence[str]
    # what was said of them, None: does not exist; of a conditional question only what changed
    routes: Mapping[str, TopicRouteData | None]
    # as of which of the run's changes; None from a server that does not count them
    revision: int | None = None
    # asked for changes after some revision
    is_conditional: bool = False
    # asked to keep all topics in use fresh, and not because somebody wanted this one
    is_sync: bool = False
