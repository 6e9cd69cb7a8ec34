"""Requests and their responses, and the interfaces through which connections have requests answered.

`Connection` is a connection as handlers of requests see it; `ServerConnection` in protocol.py implements it, with
further methods for the server that owns the connection.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from namesrv.net.fairness.read_shares import NetworkShare
from namesrv.net.header_checks import HeaderVerdict
from namesrv.net.peer import Peer
from namesrv_remoting.command import RemotingCommand

# The dispatcher answers longer requests.
LONGEST_FAST_REQUEST: Final = 512


class HeldRequest(Protocol):
    """A request that waits for its response without a task."""

    def cancel(self) -> None:
        """Give up the request without a response, since its connection ends."""
        ...


class Connection(Protocol):
    """The connection of a request, as the fast path, the access guard and handlers see it."""

    # a number that grows with each connection and is never reused; it fences registrations
    id: int
    peer: Peer
    # the share of the peer's network in each iteration of the loop
    read_share: NetworkShare

    @property
    def is_open(self) -> bool:
        """False once no response can reach the peer any more."""
        ...

    @property
    def certificate_names(self) -> tuple[str, ...]:
        """Common name and alternative names of the peer's verified certificate; empty without one."""
        ...

    @property
    def age_seconds_left(self) -> float:
        """The seconds until a client's connection is due to be closed for its age; infinite for other peers."""
        ...

    @property
    def is_write_paused(self) -> bool:
        """Whether the peer has to read earlier responses before the next request is answered."""
        ...

    async def until_responses_sent(self) -> None:
        """Wait until all responses are sent, or the connection is closed."""
        ...

    def confirm_broker(self) -> None:
        """Keep the reserved slot: a broker has registered over this connection."""
        ...

    def reserve_memory(self, size: int) -> bool:
        """Reserve memory on this peer's account; False if the peer's share has too little left."""
        ...

    def release_memory(self, size: int) -> None:
        """Release reserved memory."""
        ...

    def hold(self, held: HeldRequest) -> None:
        """Keep a request without a response until `end_held` or `resume`; it is cancelled when the connection ends."""
        ...

    def end_held(self, held: HeldRequest, data: bytes, request_code: int, began: float) -> None:
        """Send the encoded success response to a request that is held since `began` on the monotonic clock."""
        ...

    def resume(self, held: HeldRequest, request: "Request", reply: Callable[[], Awaitable[Any]], began: float) -> None:
        """Answer a request that is held since `began` in a task, which calls `reply` and awaits the result."""
        ...


class Response(NamedTuple):
    """An encoded response, empty for a one-way or held request, and what the connection does after sending it."""

    data: bytes
    # the connection is closed
    closes: bool = False
    # memory of the peer's account that the connection releases
    reserved_bytes: int = 0


@dataclass(slots=True, frozen=True)
class Request:
    """The argument of a handler: a command, and the connection over which it was received."""

    command: RemotingCommand
    connection: Connection
    # the account of the peer, if the server has accounts
    account: str = ""
    # the reason why the body was not received: then the request can only be refused
    unread_reason: str = ""
    # raises a ResponseError for forbidden topics in the body; None if permission does not depend on the topics
    check_topics: Callable[[Iterable[str]], Awaitable[None]] | None = None
    # cluster and address of a registered broker that the request may replace -> the account of that broker
    displaces: Mapping[tuple[str, str], str] = field(default_factory=dict)


@dataclass(slots=True, frozen=True)
class ReceiveRules:
    """How connections receive requests with one code, and when the dispatcher gets them."""

    # True for requests that may be watches: such a request has a task of its own, and delays no later request of the
    # connection. All other requests are answered in order of arrival.
    is_concurrent: bool = False
    # the largest frame that is received, if larger than a small frame
    largest_frame_bytes: int = 0
    # True if the request is allowed over a reserved connection slot before the registration of a broker
    before_registration: bool = False


# the rules for most requests, and for those with an unknown code
ORDINARY: Final = ReceiveRules()


class RequestHandler(Protocol):
    """The dispatcher, as connections see it."""

    # request code -> rules for receiving these requests; ORDINARY for all other codes
    receive_rules: Mapping[int, ReceiveRules]

    async def answer(self, request: Request) -> Response:
        """The response to a request; empty if a handler holds the request."""
        ...

    async def encode_reply(self, request: Request, pending: Awaitable[Any], began: float) -> Response:
        """Await the reply of a handler, and return the response with it; empty if the handler holds the request."""
        ...

    def note_answered(self, request_code: int, code: int, began: float) -> None:
        """Count a request by its code and the code of its response, and its time since `began` (`time.monotonic`)."""
        ...

    def judge_header(self, request: Request) -> HeaderVerdict:
        """Judge a request by its header alone."""
        ...


class FastPath(Protocol):
    """Recognises repeated requests by their bytes, and answers them inside `data_received`."""

    def answer(self, connection: Connection, frame: bytes) -> bytes | None:
        """The encoded response, empty if no response is due; None leaves the frame to the dispatcher.

        `frame` may be a whole read that is not exactly one frame; the result is None then.
        """
        ...

    def learn(self, frame: bytes, command: RemotingCommand) -> None:
        """Learn from a request that was decoded for the dispatcher, so that its repetition is recognised."""
        ...
