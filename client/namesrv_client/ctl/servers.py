"""Several NameServers, asked the same question at once."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar

from namesrv_client.ctl import exit_codes
from namesrv_client.ctl.nameserver import NameServer
from namesrv_remoting.errors import RemotingError, ResponseError
from namesrv_runtime.clock import Clock, SystemClock

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answers(Generic[T]):
    """What came back, by server, in the order in which the servers were named."""

    servers: tuple[str, ...]
    given: Mapping[str, T]
    # answered that they will not; the remark
    refused: Mapping[str, str]
    # no connection, no answer in time, or one that is none; why
    unreachable: Mapping[str, str]

    def code(self, *, needs_all: bool = False) -> int:
        """The exit code as far as answering goes; `needs_all`: one that is missing makes the whole answer a no."""
        if not self.given and not self.refused:
            return exit_codes.USAGE
        return exit_codes.NO if self.refused or (needs_all and self.unreachable) else exit_codes.OK

    def problems(self) -> list[str]:
        """A line for each server that gave no answer."""
        reasons = {**self.refused, **self.unreachable}
        return [problem(server, reasons[server]) for server in self.servers if server in reasons]

    def documents(self, members: Callable[[T], Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Per server the members of its answer, or `error`: what JSON and YAML show."""
        found: list[dict[str, Any]] = []
        for server in self.servers:
            if server in self.given:
                found.append({"server": server, **members(self.given[server])})
            elif server in self.refused:
                found.append({"server": server, "error": self.refused[server], "answered": True})
            else:
                found.append({"server": server, "error": self.unreachable[server], "answered": False})
        return found


def problem(server: str, reason: str) -> str:
    """A line about a server; many reasons name it already."""
    return reason if server in reason else f"{server}: {reason}"


class Servers:
    """The servers that the command line names, as an async context manager; each keeps its connection."""

    def __init__(self, addresses: Sequence[str], *, timeout_seconds: float, clock: Clock | None = None) -> None:
        self.clock = clock or SystemClock()
        self.all = [NameServer(one, timeout_seconds=timeout_seconds, clock=self.clock) for one in addresses]

    @property
    def addresses(self) -> tuple[str, ...]:
        """In the order in which they were named."""
        return tuple(server.address for server in self.all)

    async def ask(self, question: Callable[[NameServer], Awaitable[T]]) -> Answers[T]:
        """Ask all of them at once; none hides the others."""
        results = await asyncio.gather(*(_ask(server, question) for server in self.all))
        outcomes = dict(zip(self.addresses, results, strict=True))
        errors = {one: error for one, error in outcomes.items() if isinstance(error, RemotingError)}
        return Answers(
            self.addresses,
            {one: value for one, value in outcomes.items() if not isinstance(value, RemotingError)},
            {one: reason(error) for one, error in errors.items() if isinstance(error, ResponseError)},
            {one: reason(error) for one, error in errors.items() if not isinstance(error, ResponseError)},
        )

    async def __aenter__(self) -> Self:
        """Nothing is connected yet."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close all connections."""
        await asyncio.gather(*(server.close() for server in self.all))


async def _ask(server: NameServer, question: Callable[[NameServer], Awaitable[T]]) -> T | RemotingError:
    try:
        return await question(server)
    except RemotingError as error:
        return error


def reason(error: RemotingError) -> str:
    """Why, in one line at most as long as a terminal shows."""
    if isinstance(error, ResponseError):
        return f"refused with code {int(error.code)}: {error.remark or 'no reason given'}"
    return str(error) or type(error).__name__
