"""Requests to one server for the routes of many topics.

A native server gets as few requests as frames allow, a server that speaks RocketMQ's protocol gets one request per
topic. An error of one topic never affects the other topics.
"""

import asyncio
from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final

from namesrv_client.routes.response import Receive, RouteResponse
from namesrv_client.routes.servers.server import SERVER_FAILED, Server
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
TopicErrors = Mapping[str, RemotingError]

# Topics of one full request: with eight broker groups the response takes 0.8 MB, which the loop decodes at once.
_BATCH: Final = 500
# The names of topics in one request, whose frame has at most `PullRoutesRequest.max_bytes`, header included.
_MAX_NAMES_BYTES: Final = PullRoutesRequest.max_bytes - MAX_HEADER_BYTES
# After this number of refused batches, and two more for each batch of the first division, the whole request counts as
# refused.
_REFUSALS: Final = 20
# GET_ROUTEINFO_BY_TOPIC requests under way at once
_MAX_CONCURRENT_REQUESTS: Final = 16


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


class FullRequests:
    """The requests of one attempt for full routes, all to one server and within one time limit.

    Topics that a working server has not answered at the end of a total time are unanswered.
    """

    def __init__(self, server: Server, receive: Receive, limit: TimeLimit) -> None:
        self._server = server
        self._receive = receive
        self._limit = limit
        # topics that a working server did not answer so far, with its errors
        self.unanswered: dict[str, RemotingError] = {}

    def __repr__(self) -> str:
        return f"<FullRequests [{self._server.address} | {len(self.unanswered)} topics unanswered]>"

    async def send(self, topics: Sequence[str]) -> None:
        """Request the full routes of topics. Raises RemotingError, also if all topics were refused."""
        if self._server.identity.is_native:
            await self._send_batches(topics)
        else:
            await self._send_each(topics)

    async def _send_batches(self, topics: Sequence[str]) -> None:
        """Request topics natively in batches; a refused batch is halved, to find the topic that caused the refusal."""
        has_answered = False
        batches = [topics[at : at + _BATCH] for at in range(0, len(topics), _BATCH)]
        refusals_left = _REFUSALS + 2 * len(batches)
        while batches:
            batch = batches.pop(0)
            try:
                self._receive(await self._server.pull(batch, self._limit.left()))
                has_answered = True
            except RequestTimeoutError:
                if not (self._limit.is_total and has_answered):
                    raise
                self._note_end_of_time([*batch, *chain(*batches)])
                return
            except ResponseError as error:
                refusals_left -= 1
                if not may_concern_a_topic(error) or not refusals_left:
                    raise
                self._server.record.note_failure(error)
                if len(batch) > 1:
                    half = len(batch) // 2
                    batches[:0] = [batch[:half], batch[half:]]
                    continue
                self.unanswered[batch[0]] = error
                if len(self.unanswered) == len(topics):
                    raise

    def _note_end_of_time(self, topics: Iterable[str]) -> None:
        """Note that a server, which has answered for other topics, did not answer for these in time."""
        error = self._limit.timeout_error()
        self._server.record.note_failure(error)
        self.unanswered.update(dict.fromkeys(topics, error))

    async def _send_each(self, topics: Sequence[str]) -> None:
        """Request each topic in RocketMQ's protocol, several at a time."""
        # All workers take topics from this iterator, until the server fails.
        waiting = iter(topics)
        failures: list[RemotingError] = []

        async def work() -> None:
            for topic in waiting:
                if failures:
                    return
                failure = await self._send_one(topic)
                if failure is not None:
                    failures.append(failure)

        await asyncio.gather(*(work() for _ in range(min(_MAX_CONCURRENT_REQUESTS, len(topics)))))
        if failures:
            raise failures[0]
        last = next(reversed(self.unanswered.values()), None)
        if len(self.unanswered) == len(topics) and isinstance(last, ResponseError):
            raise last

    async def _send_one(self, topic: str) -> RemotingError | None:
        """Request one topic in RocketMQ's protocol; return the error if the server itself fails."""
        server, limit = self._server, self._limit
        # With one timeout for all requests, the last ones may be sent just before its end: a response to an earlier one
        # shows that the server works.
        since = limit.began if limit.is_total else server.clock.monotonic()
        try:
            await server.identify(limit.left())
            self._receive(await server.route_by_topic(topic, limit.left()))
        except RemotingError as error:
            if _has_server_failed(server, error, since):
                return error
            server.record.note_failure(f"topic {topic}: {error}")
            self.unanswered[topic] = error
        return None


def _has_server_failed(server: Server, error: RemotingError, since: float) -> bool:
    """True if the error of a request for one topic shows that the server fails, and not only this request.

    A server that has answered any request after `since` is not silent.
    """
    if isinstance(error, RequestTimeoutError):
        return server.record.answered_at < since
    if isinstance(error, ResponseError):
        return isinstance(error, SERVER_FAILED)
    return not isinstance(error, RemoteProtocolError)


async def request_changes(
    server: Server, topics: Sequence[str], point: SyncPoint, receive: Receive, timeout_seconds: float
) -> TopicErrors:
    """Request the changes of the topics in the sync point, and the full routes of the other topics.

    Returns the unanswered topics. Raises RemotingError, also if the server refuses each of the topics.
    """
    known, others = point.divide(server.identity.boot_id, topics) if server.identity.is_native else ([], list(topics))
    if known:
        try:
            await _request_known_changes(server, known, point.revision, receive, timeout_seconds)
        except ResponseError as error:
            if not may_concern_a_topic(error):
                raise
            # One topic may have caused the refusal; requests for full routes find out which.
            point.retain(())
            known, others = [], list(topics)
    requests = FullRequests(server, receive, TimeLimit(server, timeout_seconds, is_total=False))
    try:
        await requests.send(others)
    except ResponseError as error:
        if not known or not may_concern_a_topic(error):
            raise
        # The server has answered for the known topics, so that only the others count as refused.
        return {**dict.fromkeys(others, error), **requests.unanswered}
    return requests.unanswered


async def _request_known_changes(
    server: Server, topics: Sequence[str], since_revision: int, receive: Receive, timeout_seconds: float
) -> None:
    """Request the changes of topics since a revision, in as few requests as the server accepts."""
    responses = [
        await server.pull(batch, timeout_seconds, since_revision=since_revision) for batch in pull_batches(topics)
    ]
    if len({(response.boot_id, response.connection_number, response.is_conditional) for response in responses}) == 1:
        # The sync point moves only with a response that covers all topics.
        receive(_merged(responses))
        return
    # The server has restarted between the requests, or has answered some of them with full routes.
    for response in responses:
        receive(response)


def _merged(responses: Sequence[RouteResponse]) -> RouteResponse:
    """One response of the same content; the responses are of one boot and connection, and of one kind of request."""
    if len(responses) == 1:
        return responses[0]
    return replace(
        responses[0],
        is_complete=all(response.is_complete for response in responses),
        has_been_complete=all(response.has_been_complete for response in responses),
        knows_all_topics=all(response.knows_all_topics for response in responses),
        topics=[topic for response in responses for topic in response.topics],
        routes=ChainMap(*(dict(response.routes) for response in responses)),
        revision=min(response.revision or 0 for response in responses),
    )
