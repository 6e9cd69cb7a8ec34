"""The links of one agent to the NameServers of its list."""

import asyncio
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from functools import partial

from namesrv_broker_agent.link.link import ServerLink
from namesrv_broker_agent.link.state import Status
from namesrv_broker_agent.own_broker import OwnBroker
from namesrv_broker_agent.topics import TopicChange
from namesrv_remoting.aio.server_protocols import ServerProtocols
from namesrv_remoting.command import RemotingCommand
from namesrv_runtime.clock import Clock, timeout_on
from namesrv_runtime.server_events import ServerEvents


class ServerLinks:
    """One link to each NameServer of the list, and the links that unregister because their server left the list."""

    def __init__(  # noqa: PLR0913 - keyword arguments
        self,
        broker: OwnBroker,
        events: ServerEvents,
        *,
        clock: Clock,
        on_registered: Callable[[], None],
        on_request: Callable[[RemotingCommand], None],
        protocols: ServerProtocols,
        random_unit: Callable[[], float],
    ) -> None:
        self._broker = broker
        self._events = events
        self._clock = clock
        self._on_registered = on_registered
        self._on_request = on_request
        self._protocols = protocols
        self._random_unit = random_unit
        # address -> link
        self._links: dict[str, ServerLink] = {}
        # links that are unregistering, with their tasks
        self._leaving: dict[ServerLink, asyncio.Task[None]] = {}
        # set when a link may have become settled, or has another status
        self._link_changed = asyncio.Event()
        # True while the broker is registered with all servers
        self.is_ready = False

    def __repr__(self) -> str:
        return f"<ServerLinks [{self.registered_count()} of {len(self._links)} servers]>"

    def __len__(self) -> int:
        return len(self._links)

    def __iter__(self) -> Iterator[ServerLink]:
        """The links in the order of the list; any thread may iterate."""
        return iter(tuple(self._links.values()))

    def registered(self) -> list[ServerLink]:
        """The links to reachable servers, with which the broker is registered."""
        return [link for link in self if link.monotonic_state.status == "registered"]

    def registered_count(self) -> int:
        """Number of servers with which the broker is registered."""
        return len(self.registered())

    def has_unreachable(self) -> bool:
        """True if a server is unreachable."""
        return any(link.monotonic_state.status == "unreachable" for link in self)

    # -- the list of servers ------------------------------------------------------------------------------------------

    def open(self, addresses: tuple[str, ...]) -> None:
        """Start with the servers of the last list, in the running event loop."""
        # Tasks that have waited since before a restart are woken up, and wait for the new event.
        self._link_changed.set()
        self._link_changed = asyncio.Event()
        self.follow(addresses)

    def follow(self, addresses: tuple[str, ...]) -> None:
        """Use another list of servers: start links to new servers, and leave those that are not in the list."""
        has_changed = set(addresses) != self._links.keys()
        for address in addresses:
            if address not in self._links:
                self._start(address)
        for address in [known for known in self._links if known not in addresses]:
            link = self._links.pop(address)
            leaving = self._leaving[link] = asyncio.ensure_future(self._leave(link))
            leaving.add_done_callback(partial(self._left, link))
        self._link_changed.set()
        if has_changed:
            self._events.servers_changed(addresses)
        self._update_readiness()

    def _start(self, address: str) -> None:
        link = self._links[address] = ServerLink(
            address,
            self._broker,
            clock=self._clock,
            on_registered=self._link_registered,
            on_status_changed=self._status_changed,
            on_request=self._on_request,
            protocols=self._protocols,
            random_unit=self._random_unit,
        )
        link.start()

    async def _leave(self, link: ServerLink) -> None:
        """Close a link; first unregister, unless another link is registered with the same server by another address."""
        settings = self._broker.settings
        await link.end_task()
        # The server may have got another name in the list, or have returned to the list: its new link has to register
        # before this link leaves.
        with suppress(TimeoutError):
            async with timeout_on(self._clock, settings.connect_timeout_seconds + settings.response_timeout_seconds):
                while any(other.monotonic_state.status == "connecting" for other in self):
                    self._link_changed.clear()
                    await self._link_changed.wait()
        # If the list had two addresses of this server (IPv4 and IPv6, for example), the broker stays registered there.
        boot_ids = {other.monotonic_state.boot_id for other in self.registered()} - {None}
        await link.close(settings.stop_seconds, unregisters=link.monotonic_state.boot_id not in boot_ids)
        if link.monotonic_state.boot_id is None:
            # Apache's servers have no boot id. If another link is to the same server, the server has just removed the
            # broker, over whichever connection the broker had registered.
            for other in self.registered():
                if other.monotonic_state.boot_id is None:
                    other.register_again()

    def _left(self, link: ServerLink, _: asyncio.Task[None]) -> None:
        del self._leaving[link]

    async def leave_all(self) -> None:
        """Unregister from all servers in parallel, and close all connections."""
        self.follow(())
        if self._leaving:
            await asyncio.wait(self._leaving.values())

    # -- the broker's registrations -----------------------------------------------------------------------------------

    def topics_changed(self, change: TopicChange) -> None:
        """Have each link send a change to its server at once."""
        for link in self:
            link.topics_changed(change)

    def register_again(self) -> None:
        """Have each link send a full registration; unreachable servers get theirs when they are reachable again."""
        for link in self:
            link.register_again()

    async def wait_accepted(self) -> None:
        """Wait until the reachable servers have accepted all topics, for `response_timeout_seconds` at most."""
        reachable = self.registered()
        with suppress(TimeoutError):
            async with timeout_on(self._clock, self._broker.settings.response_timeout_seconds):
                await asyncio.gather(*(link.settled.wait() for link in reachable))

    def ask_for_master(self) -> None:
        """Have each link register again at once, because the responses name the current master."""
        for link in self:
            link.ask_for_master()

    def settled_count(self) -> int:
        """Number of servers that have accepted all topics and settings of the broker."""
        return sum(link.settled.is_set() for link in self)

    async def wait_settled(self, count: int | None) -> None:
        """Wait until `count` servers (None: all) have accepted all topics.

        Raises:
            ValueError: `count` is less than 1, or larger than the number of servers.
        """
        self._check_count(count)
        while self.settled_count() < (max(1, len(self)) if count is None else count):
            self._link_changed.clear()
            await self._link_changed.wait()
            # The list of servers may have changed.
            self._check_count(count)

    def _check_count(self, count: int | None) -> None:
        if count is not None and count < 1:
            raise ValueError(f"count={count}: must be 1 or more")
        # While the list is empty, the number of servers is unknown.
        if count is not None and self._links and count > len(self._links):
            servers = f"{len(self._links)} name server{'' if len(self._links) == 1 else 's'}"
            raise ValueError(f"count={count}: the agent has {servers} ({', '.join(self._links)})")

    def unsettled(self) -> list[str]:
        """The servers that have not accepted all topics, each with its last error."""
        missing = ((link.address, link.monotonic_state.last_error) for link in self if not link.settled.is_set())
        # The errors of connections name the server, but its responses do not.
        return [
            error if error and address in error else f"{address} ({error or 'no answer yet'})"
            for address, error in missing
        ]

    def _link_registered(self) -> None:
        self._link_changed.set()
        self._on_registered()

    def _status_changed(self, link: ServerLink, before: Status) -> None:
        state = link.monotonic_state
        if state.status == "registered":
            self._events.connected(link.address)
        elif before == "registered":
            self._events.disconnected(link.address, state.last_error or "no longer in the list of name servers")
        self._link_changed.set()
        self._update_readiness()

    def _update_readiness(self) -> None:
        statuses = {link.monotonic_state.status for link in self}
        was_ready, self.is_ready = self.is_ready, statuses == {"registered"}
        if self.is_ready and not was_ready:
            self._events.ready()

    # -- forks --------------------------------------------------------------------------------------------------------

    def socket_descriptors(self) -> list[int]:
        """The file descriptors of all connections, which a forked child closes."""
        return [descriptor for link in (*self, *self._leaving) for descriptor in link.socket_descriptors()]

    def reconnect_except(self, descriptors: Collection[int]) -> None:
        """Replace all connections except these, because a forked child has not closed its copies of the others."""
        for link in self:
            if not link.has_one_of(descriptors):
                link.reconnect()
