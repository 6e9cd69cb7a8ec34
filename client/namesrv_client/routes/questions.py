"""Questions about many topics to one server.

A native one is asked in as few questions as fit into frames, one that speaks RocketMQ's protocol topic by topic; and
what is wrong with one topic never touches the others.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from namesrv_client.routes.route import Answer
from namesrv_client.routes.server import Server
from namesrv_client.routes.sync_point import SyncPoint
from namesrv_remoting.errors import (
    GoAwayError,
    NotReadyError,
    RemoteProtocolError,
    RemotingError,
    RequestTimeoutError,
    ResponseError,
    SystemBusyError,
    SystemError_,
)
from namesrv_runtime.clock import Clock

Take = Callable[[Answer], None]

# what an answer tells of the server and not of the question
SERVER_FAILED: Final = (NotReadyError, GoAwayError, SystemBusyError)
# Topics of one full question: with eight groups of brokers the answer has 0.8 MB, and the loop decodes it in one go.
PART: Final = 500
# Refused parts after which the server is to blame.
_REFUSALS: Final = 20
# GET_ROUTEINFO_BY_TOPIC questions that are on their way at a time
BY_TOPIC: Final = 16


@dataclass(frozen=True, slots=True)
class TopicQuestions:
    """Questions about many topics, to whichever server; each method raises RemotingError when the server fails."""

    clock: Clock
    # gets each answer as it comes
    take: Take
    # is told what went wrong with single topics
    note: Callable[[Server, RemotingError], None]
    # for each question
    timeout_seconds: float

    async def everything(self, server: Server, topics: Sequence[str]) -> None:
        """All about the topics. What was refused is noted and left out."""
        if server.is_native:
            await self._pull_in_parts(server, topics)
        else:
            await self._ask_each(server, topics)

    async def changes(self, server: Server, topics: Sequence[str], point: SyncPoint) -> None:
        """What changed of the topics that are known as of the point, and all about the others."""
        known, others = point.known(server.run or "", topics) if server.is_native else ([], list(topics))
        if known:
            try:
                self.take(await server.pull(known, self.timeout_seconds, since=point.revision))
            except SystemError_ as error:
                if isinstance(error, SERVER_FAILED):
                    raise
                # so much has changed that it does not fit into a frame
                point.restart()
                others = list(topics)
        await self.everything(server, others)

    # -- natively -----------------------------------------------------------------------------------------------------

    async def _pull_in_parts(self, server: Server, topics: Sequence[str]) -> None:
        """A part that is refused is halved: its answer may be too large, or one topic bad."""
        parts = [topics[at : at + PART] for at in range(0, len(topics), PART)]
        refusals_left = _REFUSALS + 2 * len(parts)
        while parts:
            part = parts.pop(0)
            try:
                self.take(await server.pull(part, self.timeout_seconds))
            except SystemError_ as error:
                refusals_left -= 1
                if isinstance(error, SERVER_FAILED) or not refusals_left:
                    raise
                self.note(server, error)
                if len(part) > 1:
                    parts[:0] = [part[: len(part) // 2], part[len(part) // 2 :]]

    # -- in RocketMQ's protocol ---------------------------------------------------------------------------------------

    async def _ask_each(self, server: Server, topics: Sequence[str]) -> None:
        """One question per topic, several on their way at a time."""
        waiting = iter(topics)
        failures: list[RemotingError] = []

        async def work() -> None:
            for topic in waiting:
                if failures:
                    return
                try:
                    await self._ask_one(server, topic)
                except RemotingError as error:
                    failures.append(error)

        await asyncio.gather(*(work() for _ in range(min(BY_TOPIC, len(topics)))))
        if failures:
            raise failures[0]

    async def _ask_one(self, server: Server, topic: str) -> None:
        """Raises RemotingError only for what concerns the server and not the topic."""
        asked_at = self.clock.monotonic()
        try:
            await server.identify(self.timeout_seconds)
            self.take(await server.route_by_topic(topic, self.timeout_seconds))
        except SERVER_FAILED:
            raise
        except RequestTimeoutError as error:
            if server.answered_at < asked_at:
                # it has answered nothing else either
                raise
            self.note(server, RequestTimeoutError(f"topic {topic}: {error}"))
        except (ResponseError, RemoteProtocolError) as error:
            self.note(server, RemoteProtocolError(f"topic {topic}: {error}"))
