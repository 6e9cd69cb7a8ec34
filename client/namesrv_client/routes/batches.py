"""Requests to one server for the routes of many topics.

A native server gets as few requests as frames allow, a server that speaks RocketMQ's protocol gets one request per
topic. An error of one topic never affects the other topics.
"""

import asyncio
from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final

from namesrv_client.routes.response import Receive
from namesrv_client.routes.server import SERVER_FAILED, Server
from namesrv_client.routes.sync_point import SyncPoint
from namesrv_remoting.bodies.extensions import MAX_PULLED_TOPICS, PullRoutesRequest
from namesrv_remoting.errors import (
    NoPermissionError,
    RemoteProtocolError,
    RemotingError,
    RequestTimeoutError,
    ResponseError,
    SystemError_,
)
from namesrv_remoting.frames import MAX_HEADER_BYTES

# topics that a working server did not answer, with its refusal, its silence or its malformed response
Unanswered = Mapping[str, RemotingError]

# Topics of one full request: with eight broker groups the response takes 0.8 MB, which the loop decodes at once.
_BATCH: Final = 500
# The names of topics in one request, whose frame has at most `PullRoutesRequest.max_bytes`, header included.
_MAX_NAMES_BYTES: Final = PullRoutesRequest.max_bytes - MAX_HEADER_BYTES
# After this number of refused batches, and two more for each batch of the first division, the whole request counts as
# refused.
_REFUSALS: Final = 20
# concurrent GET_ROUTEINFO_BY_TOPIC requests
_BY_TOPIC: Final = 16


def may_concern_a_topic(error: RemotingError) -> bool:
    """True for a refusal that one of the requested topics may have caused, so that other topics may be answered.

    The response does not fit into a frame, a topic is invalid, or this account may not read a topic.
    """
    return isinstance(error, SystemError_ | NoPermissionError) and not isinstance(error, SERVER_FAILED)


def pull_batches(topics: Sequence[str]) -> list[Sequence[str]]:
    """Topics divided into parts that fit into one PULL_ROUTES request each."""
    batches, begin, size = [], 0, 0
    for at, topic in enumerate(topics):
        # msgpack has up to five bytes before the text of a string.
        topic_bytes = len(topic.encode()) + 5
        if at - begin == MAX_PULLED_TOPICS or size + topic_bytes > _MAX_NAMES_BYTES:
            batches.append(topics[begin:at])
            begin, size = at, 0
        size += topic_bytes
    return [*batches, topics[begin:]]


class TimeLimit:
    """The timeout of each request for routes, or with `is_total` the timeout of all requests of a call together."""

    def __init__(self, server: Server, seconds: float, *, is_total: bool) -> None:
        self._server = server
        self._seconds = seconds
        self.is_total = is_total
        self.began = server.clock.monotonic()

    def left(self) -> float:
        """The timeout of the next request. Raises RequestTimeoutError if the time is over."""
        left = self._seconds - (self._server.clock.monotonic() - self.began if self.is_total else 0.0)
        if left <= 0:
            raise self.timeout_error()
        return left

    def timeout_error(self) -> RequestTimeoutError:
        """The error of each topic that a working server has not answered at the end of the time."""
        return RequestTimeoutError(f"{self._server.address} did not answer for all topics within {self._seconds:.3g} s")


async def request_full_routes(
    server: Server, topics: Sequence[str], receive: Receive, limit: TimeLimit, unanswered: dict[str, RemotingError]
) -> None:
    """Request the full routes of topics; add unanswered topics to `unanswered`.

    Topics that a working server has not answered at the end of a total time are unanswered. Raises RemotingError, also
    if all topics were refused.
    """
    pull = _pull_batches if server.identity.is_native else _pull_each
    await pull(server, topics, receive, limit, unanswered)


async def request_changes(
    server: Server, topics: Sequence[str], point: SyncPoint, receive: Receive, timeout_seconds: float
) -> Unanswered:
    """Request the changes of the topics in the sync point, and the full routes of the other topics.

    Returns the unanswered topics. Raises RemotingError, also if the server refuses each of the topics.
    """
    known, others = point.known(server.identity.boot_id, topics) if server.identity.is_native else ([], list(topics))
    if known:
        try:
            await _pull_changes(server, known, point.revision, receive, timeout_seconds)
        except ResponseError as error:
            if not may_concern_a_topic(error):
                raise
            point.retain(())
            known, others = [], list(topics)
    unanswered: dict[str, RemotingError] = {}
    try:
        limit = TimeLimit(server, timeout_seconds, is_total=False)
        await request_full_routes(server, others, receive, limit, unanswered)
    except ResponseError as error:
        if not known or not may_concern_a_topic(error):
            raise
        return {**dict.fromkeys(others, error), **unanswered}
    return unanswered


async def _pull_changes(
    server: Server, topics: Sequence[str], since: int, receive: Receive, timeout_seconds: float
) -> None:
    """Request the changes of topics since a revision, in as few requests as the server accepts."""
    responses = [await server.pull(batch, timeout_seconds, since=since) for batch in pull_batches(topics)]
    first = responses[0]
    if len(responses) == 1 or any(
        (response.boot_id, response.connection, response.is_conditional)
        != (first.boot_id, first.connection, first.is_conditional)
        for response in responses
    ):
        # One response covers all topics, or the server has restarted between the requests.
        for response in responses:
            receive(response)
        return
    # The sync point moves only with a response that covers all topics.
    receive(
        replace(
            first,
            is_complete=all(response.is_complete for response in responses),
            was_complete=all(response.was_complete for response in responses),
            knows_all_topics=all(response.knows_all_topics for response in responses),
            topics=topics,
            routes=ChainMap(*(dict(response.routes) for response in responses)),
            revision=min(response.revision or 0 for response in responses),
        )
    )


async def _pull_batches(
    server: Server, topics: Sequence[str], receive: Receive, limit: TimeLimit, unanswered: dict[str, RemotingError]
) -> None:
    """Request topics in batches; a refused batch is halved, to find the topic that caused the refusal."""
    has_answered = False
    batches = [topics[at : at + _BATCH] for at in range(0, len(topics), _BATCH)]
    refusals_left = _REFUSALS + 2 * len(batches)
    while batches:
        batch = batches.pop(0)
        try:
            receive(await server.pull(batch, limit.left()))
            has_answered = True
        except RequestTimeoutError:
            if not (limit.is_total and has_answered):
                raise
            server.record.note_failure(limit.timeout_error())
            unanswered.update(dict.fromkeys(chain(batch, *batches), limit.timeout_error()))
            return
        except ResponseError as error:
            refusals_left -= 1
            if not may_concern_a_topic(error) or not refusals_left:
                raise
            server.record.note_failure(error)
            if len(batch) > 1:
                batches[:0] = [batch[: len(batch) // 2], batch[len(batch) // 2 :]]
            else:
                unanswered[batch[0]] = error
                if len(unanswered) == len(topics):
                    raise


async def _pull_each(
    server: Server, topics: Sequence[str], receive: Receive, limit: TimeLimit, unanswered: dict[str, RemotingError]
) -> None:
    """Request each topic in RocketMQ's protocol, several at a time."""
    waiting = iter(topics)
    failures: list[RemotingError] = []

    async def work() -> None:
        for topic in waiting:
            if failures:
                return
            # With one timeout for all requests, the last ones may be sent just before its end: a response to an
            # earlier one shows that the server works.
            since = limit.began if limit.is_total else server.clock.monotonic()
            try:
                await server.identify(limit.left())
                receive(await server.route_by_topic(topic, limit.left()))
            except (ResponseError, RemoteProtocolError, RequestTimeoutError) as error:
                is_silent = isinstance(error, RequestTimeoutError) and server.record.answered_at < since
                if isinstance(error, SERVER_FAILED) or is_silent:
                    failures.append(error)
                else:
                    server.record.note_failure(f"topic {topic}: {error}")
                    unanswered[topic] = error
            except RemotingError as error:
                failures.append(error)

    await asyncio.gather(*(work() for _ in range(min(_BY_TOPIC, len(topics)))))
    if failures:
        raise failures[0]
    last = next(reversed(unanswered.values()), None)
    if len(unanswered) == len(topics) and isinstance(last, ResponseError):
        raise last
