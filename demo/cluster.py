"""The cluster of the demo, made with the test kit: two NameServers, three brokers and a slave, two clients."""

import logging
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from demo.screen import Instance, Screen, ServerLog, called
from namesrv_client import RouteError
from namesrv_client.routes.route import Route, RouteChange
from namesrv_testing import TestBroker, TestClient, TestNameServer
from namesrv_testing.ports import held_port

TOPIC: Final = "orders"
_TOPICS: Final = (TOPIC, "payments")
_BROKERS: Final = (("broker-a", 0), ("broker-a", 1), ("broker-b", 0), ("broker-c", 0))
_ATTEMPTS: Final = 4
_SEND_SECONDS: Final = 0.05
# Time that the producer loses with a send to a broker that does not respond.
_BROKER_SECONDS: Final = 0.3


@dataclass(frozen=True, slots=True)
class Times:
    """The times of a real system, all divided by one factor."""

    factor: float

    def __getitem__(self, seconds: float) -> float:
        return seconds / self.factor

    @property
    def bound_seconds(self) -> float:
        """The longest time for which a client can see a dead broker: expiry, scan and poll (160 s by default)."""
        return self[160]


class Application:
    """The base of producer and consumer: a route client that prints changes of its route."""

    def __init__(self, name: str, servers: list[TestNameServer], screen: Screen, **settings: Any) -> None:
        self.name = name
        self.client = TestClient(servers, protocol="native", fault_tolerance=True, **settings)
        self._screen = screen
        # Stops printing changes.
        self.hide: Callable[[], None] = lambda: None

    def __enter__(self) -> Self:
        self.client.start()
        self.hide = self.client.on_change(self._changed)
        return self

    def __exit__(self, *_: object) -> None:
        self.client.stop()

    def sees(self, instance: Instance) -> bool:
        """True if the client's route has the broker."""
        return instance in _instances(self.client.cached(TOPIC))

    def _changed(self, change: RouteChange) -> None:
        if change.topic != TOPIC:
            return
        before, now = _instances(change.old), _instances(change.new)
        for instance in sorted(before - now):
            self._screen.gone(self.name, instance, "no longer sees")
        if now - before:
            self._screen.line(self.name, f"sees {', '.join(map(called, sorted(now - before)))}")
        for name in change.queues_changed:
            self._screen.line(self.name, f"sees other permissions on {name}")


def _instances(route: Route | None) -> set[Instance]:
    if route is None or route.confirmed_absent_since is not None:
        return set()
    return {(group.broker_name, number) for group in route.data.broker_datas for number in group.broker_addrs}


class Cluster:
    """Context with the running servers, brokers and clients of the demo."""

    def __init__(self, directory: Path, times: Times, screen: Screen) -> None:
        self.screen = screen
        self.times = times
        self.log = ServerLog(screen)
        self.directories = {name: directory / name for name in ("ns1", "ns2")}
        self.servers: dict[str, TestNameServer] = {}
        self.brokers: dict[Instance, TestBroker] = {}
        self.sent = 0
        # Messages that needed another broker, and messages that no broker accepted.
        self.repeated = 0
        self.failed = 0
        self._ended = threading.Event()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        logging.getLogger().addHandler(self.log)
        logging.getLogger("namesrv").setLevel(logging.INFO)
        with ExitStack() as stack:
            for name, directory in self.directories.items():
                self.log.names[str(directory)] = name
                port = stack.enter_context(held_port())
                self.servers[name] = stack.enter_context(self._server(name, directory, port))
            for instance in _BROKERS:
                self.brokers[instance] = stack.enter_context(self._broker(instance))
            servers = list(self.servers.values())
            poll = {"poll_seconds": self.times[30], "warm_up_seconds": self.times[45]}
            self.producer = Application("producer", servers, self.screen, watch=True, **poll)
            self.consumer = Application("consumer", servers, self.screen, **poll)
            for application in (self.producer, self.consumer):
                stack.enter_context(application)
            # A client polls the topics that were requested before.
            self.consumer.client.route(TOPIC)
            producing = threading.Thread(target=self._produce, daemon=True)
            producing.start()
            stack.callback(producing.join)
            stack.callback(self._ended.set)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        # Do not print the events of the demo's own end.
        logging.getLogger().removeHandler(self.log)
        for application in (self.producer, self.consumer):
            application.hide()
        self._stack.close()

    def _server(self, name: str, directory: Path, port: int) -> TestNameServer:
        return TestNameServer(
            directory,
            listen_port=port,
            nameserver_name=name,
            heartbeat_log_dir=str(directory / "heartbeats"),
            broker_expiry_seconds=self.times[120],
            scan_interval_seconds=self.times[10],
            wait_for_service_seconds=self.times[45],
        )

    def _broker(self, instance: Instance, **place: str) -> TestBroker:
        name, number = instance
        settings: dict[str, Any] = {"heartbeat_seconds": self.times[30], "client_poll_seconds": self.times[30], **place}
        return TestBroker(self.servers.values(), name, _TOPICS, cluster_name="demo", broker_id=number, **settings)

    # -- messages, starts and stops ------------------------------------------------------------------------------------

    def _produce(self) -> None:
        """Send a message every 50 ms; if a broker does not accept a message, send it to another broker."""
        client, complained = self.producer.client, set[str]()
        while not self._ended.wait(_SEND_SECONDS):
            last: str | None = None
            for attempt in range(_ATTEMPTS):
                try:
                    last = client.broker_of(client.select_queue(TOPIC, last))
                except RouteError:
                    continue
                if not self.brokers[last, 0].is_frozen:
                    client.report(last, 0.001)
                    complained.discard(last)
                    self.sent, self.repeated = self.sent + 1, self.repeated + (attempt > 0)
                    break
                client.report(last, _BROKER_SECONDS, failed=True)
                if last not in complained:
                    complained.add(last)
                    what = f"{last} does not accept a message; the producer tries another broker"
                    self.screen.line("producer", what, is_bad=True)
            else:
                self.failed += 1

    def start_broker(self, instance: Instance) -> None:
        """Start a new broker at the address of a broker that was killed, as another process would."""
        address = self.brokers[instance].settings.broker_addr
        self.brokers[instance] = self._stack.enter_context(self._broker(instance, broker_addr=address))

    def stop_server(self, name: str) -> None:
        """Stop a NameServer."""
        self.log.ready.discard(name)
        self.servers[name].stop()

    def known_everywhere(self) -> None:
        """Wait until both servers and both applications know all brokers."""
        wanted = set(self.brokers)
        self.screen.until(
            "every server and client knows every broker",
            lambda: (
                len(self.log.ready) == len(self.servers)
                and all(wanted <= brokers for brokers in self.log.brokers.values())
                and all(each.sees(instance) for each in (self.producer, self.consumer) for instance in wanted)
            ),
        )

    def gone_everywhere(self, instance: Instance) -> None:
        """Wait until no server and no application knows a broker."""
        self.screen.until(
            "every server and client has dropped the broker",
            lambda: (
                all(instance not in brokers for brokers in self.log.brokers.values())
                and not any(each.sees(instance) for each in (self.producer, self.consumer))
            ),
            self.times.bound_seconds + 30,
        )
