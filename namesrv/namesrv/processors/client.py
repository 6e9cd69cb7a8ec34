"""What is answered to producers and consumers: routes, one or many, now or when they change (105, 20001)?"""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from namesrv.context import Namesrv
from namesrv_remoting.aio.dispatch import Handler, Reply, Request
from namesrv_remoting.bodies.dialects import dialect_of
from namesrv_remoting.bodies.extension_answers import ABSENT_ROUTE, RoutesAnswer, routes_answer
from namesrv_remoting.bodies.extensions import PullRoutesRequest, pull_routes_request
from namesrv_remoting.bodies.zone import in_zone
from namesrv_remoting.codes import RequestCode
from namesrv_remoting.errors import NotReadyError, TopicNotExistError
from namesrv_remoting.headers.client import GetRouteInfoRequestHeader
from namesrv_runtime.timeouts import timeout_on

FAQ: Final = "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
# Routes put into one answer between two looks at the loop.
_CHUNK: Final = 500


def handlers(namesrv: Namesrv) -> Mapping[RequestCode, Handler]:
    """The handlers of clients' requests."""
    processor = ClientProcessor(namesrv)
    return {
        RequestCode.GET_ROUTEINFO_BY_TOPIC: processor.route,
        RequestCode.PULL_ROUTES: processor.pull_routes,
    }


class ClientProcessor:
    """Answers route questions that the fast lane left."""

    def __init__(self, namesrv: Namesrv) -> None:
        self._namesrv = namesrv

    async def route(self, request: Request) -> Reply:
        """105."""
        self._check_ready()
        header = GetRouteInfoRequestHeader.from_ext(request.command.ext_fields)
        route = self._namesrv.answers.json.route(header.topic)
        if route is None:
            raise TopicNotExistError(f"No topic route info in name server for the topic: {header.topic}\n{FAQ}")
        if (header.zone_mode or "").lower() == "true" and header.zone_name and header.zone_name.strip():
            route = in_zone(route, header.zone_name)
        self._note_served(request, (header.topic,))
        return Reply(dialect_of(request.command).route(route))

    async def pull_routes(self, request: Request) -> Reply:
        """20001: what changed of the asked topics; with `wait_ms`, as soon as something does."""
        self._check_ready()
        namesrv = self._namesrv
        asked = pull_routes_request(request.command.body)
        if asked.wait_ms and not namesrv.is_draining and self._changed(asked) == []:
            with contextlib.suppress(TimeoutError):
                async with timeout_on(namesrv.clock, asked.wait_ms / 1000):
                    await namesrv.watchers.wait(set(asked.topics))
        routes: dict[str, msgspec.Raw] = {}
        # under the read lock: the revision in the answer must hold for all of its routes
        async with namesrv.manager.lock.read():
            revision = namesrv.manager.revisions.revision
            changed = self._changed(asked)
            for number, topic in enumerate(asked.topics if changed is None else changed, start=1):
                body = namesrv.answers.native_body(topic)
                routes[topic] = ABSENT_ROUTE if body is None else msgspec.Raw(body)
                if number % _CHUNK == 0:
                    await asyncio.sleep(0)
        answer = RoutesAnswer(namesrv.boot_id, revision, ready=True, full=changed is None, routes=routes)
        self._note_served(request, tuple(routes))
        return Reply(routes_answer(answer))

    def _note_served(self, request: Request, topics: Sequence[str]) -> None:
        log = self._namesrv.heartbeat_log
        if log is not None and topics:
            log.served_many(request.connection, topics)
            log.pulled(topics)

    def _changed(self, asked: PullRoutesRequest) -> list[str] | None:
        if asked.boot_id != self._namesrv.boot_id:
            return None
        return self._namesrv.manager.revisions.changed_since(asked.topics, asked.since)

    def _check_ready(self) -> None:
        if not self._namesrv.is_ready():
            raise NotReadyError
