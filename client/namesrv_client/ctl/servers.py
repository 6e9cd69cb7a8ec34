"""Several NameServers that get the same request at once."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar

from namesrv_client.ctl import ExitCode
from namesrv_client.ctl.nameserver import NameServer
from namesrv_remoting.aio.credentials import SigningSettings
from namesrv_remoting.aio.tls import ClientTls
from namesrv_remoting.errors import RemotingError, ResponseError
from namesrv_runtime.clock import Clock, SystemClock

T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True, slots=True)
class Responses(Generic[T]):
    """Response or error of each server, in the order in which the servers were named; a ResponseError is a refusal."""

    outcomes: Mapping[str, T | RemotingError]

    @property
    def given(self) -> dict[str, T]:
        """The responses, without errors."""
        return {server: outcome for server, outcome in self.outcomes.items() if not isinstance(outcome, RemotingError)}

    def mapped(self, change: Callable[[T], U]) -> "Responses[U]":
        """The same outcomes, with each response changed."""
        return Responses(
            {
                server: outcome if isinstance(outcome, RemotingError) else change(outcome)
                for server, outcome in self.outcomes.items()
            }
        )

    def code(self, *, needs_all: bool = False) -> ExitCode:
        """The exit code: USAGE if no server responded, NO if one refused, or with `needs_all` if one is silent."""
        refusals = [isinstance(it, ResponseError) for it in self.outcomes.values() if isinstance(it, RemotingError)]
        if len(refusals) == len(self.outcomes) and not any(refusals):
            return ExitCode.USAGE
        return ExitCode.NO if any(refusals) or (needs_all and refusals) else ExitCode.OK

    def failures(self) -> list[str]:
        """A line for each server that did not answer, or refused."""
        return [
            failure_line(server, error) for server, error in self.outcomes.items() if isinstance(error, RemotingError)
        ]

    def documents(self, members: Callable[[T], Mapping[str, Any]]) -> list[dict[str, Any]]:
        """For each server the members of its response, or `error`, for JSON and YAML."""

        def shown(outcome: T | RemotingError) -> Mapping[str, Any]:
            if isinstance(outcome, RemotingError):
                return {"error": reason(outcome), "answered": isinstance(outcome, ResponseError)}
            return members(outcome)

        return [{"server": server, **shown(response)} for server, response in self.outcomes.items()]


class Servers:
    """The servers that the command line names, as an async context manager; each keeps its connection."""

    def __init__(
        self, addresses: Sequence[str], *, timeout_seconds: float, signing: SigningSettings, tls: ClientTls | None
    ) -> None:
        self.clock: Clock = SystemClock()
        credentials = signing.credentials(self.clock.wall)
        self.all = [
            NameServer(one, timeout_seconds=timeout_seconds, clock=self.clock, credentials=credentials, tls=tls)
            for one in addresses
        ]

    async def ask(self, request: Callable[[NameServer], Awaitable[T]]) -> Responses[T]:
        """Send a request to all servers at once."""
        return await responses_of(self.all, request)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(server.close() for server in self.all))


async def responses_of(servers: Iterable[NameServer], request: Callable[[NameServer], Awaitable[T]]) -> Responses[T]:
    """Send a request to servers at once; an error of one server does not hide the responses of others."""

    async def outcome_of(server: NameServer) -> tuple[str, T | RemotingError]:
        try:
            return server.address, await request(server)
        except RemotingError as error:
            return server.address, error

    return Responses(dict(await asyncio.gather(*map(outcome_of, servers))))


def reason(error: RemotingError) -> str:
    """The reason of an error, in one line."""
    if isinstance(error, ResponseError):
        return f"refused with code {int(error.code)}: {error.remark or 'no reason given'}"
    return str(error) or type(error).__name__


def failure_line(server: str, error: RemotingError) -> str:
    """A line about an error of a server; many reasons contain the server's address already."""
    why = reason(error)
    return why if server in why else f"{server}: {why}"
