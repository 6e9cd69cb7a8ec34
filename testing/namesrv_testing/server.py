"""A NameServer for tests: the real server in a thread of the test's process."""

import asyncio
import contextlib
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from namesrv.server.controller import NamesrvController
from namesrv.settings.model import Settings
from namesrv.settings.sources import Loaded
from namesrv_testing.clock import TestClock
from namesrv_testing.thread import TestThread

_HOST: Final = "127.0.0.1"
# Only a guard, because the server listens within milliseconds.
_START_SECONDS: Final = 30.0


class _Serving:
    def __init__(self, settings: Settings, clock: TestClock) -> None:
        self.controller = NamesrvController(Loaded.of(settings), clock)

    async def __aenter__(self) -> None:
        self._serving = asyncio.create_task(self.controller.serve())
        listening = asyncio.create_task(self.controller.listening.wait())
        await asyncio.wait((self._serving, listening), return_when=asyncio.FIRST_COMPLETED)
        listening.cancel()
        if self._serving.done():
            await self._serving

    async def __aexit__(self, *_: object) -> None:
        self.controller.ask_to_stop()
        await self._serving

    def socket_descriptors(self) -> Iterable[int]:
        return ()


class TestNameServer(TestThread[_Serving]):
    """A real NameServer on 127.0.0.1 and a free port; the context manager starts and stops the server.

    `settings` are the daemon's, by their names in TOML. By default the server keeps its data in a temporary directory,
    writes no heartbeat log and no audit trail, and serves no HTTP.

    Raises:
        pydantic.ValidationError: a setting is unknown, or its value is invalid.
    """

    def __init__(
        self, data_dir: str | os.PathLike[str] | None = None, clock: TestClock | None = None, **settings: Any
    ) -> None:
        self.clock = clock or TestClock()
        self._temporary = tempfile.TemporaryDirectory(prefix="namesrv-test-") if data_dir is None else None
        place = {"listen_host": _HOST, "listen_port": 0, "http_listen": "", "drain_seconds": 0.0}
        logs = {"heartbeat_log_dir": "", "audit_log_dir": ""}
        directory = Path(self._temporary.name) if self._temporary else data_dir
        try:
            self._settings = Settings(**{**place, **logs, "data_dir": directory, **settings})
        except ValueError:
            self._clean_up()
            raise
        super().__init__("namesrv-test", "the test's NameServer", _START_SECONDS, _START_SECONDS)

    def _made(self) -> _Serving:
        return _Serving(self._settings, self.clock)

    @property
    def port(self) -> int:
        """The server's port, which a restart keeps."""
        return self._started().controller.addresses[0][1]

    @property
    def address(self) -> str:
        """`host:port`, the list of NameServers for agents, clients and RocketMQ's peers."""
        return f"{_HOST}:{self.port}"

    def close(self) -> None:
        """Stop the server, and remove its temporary directory."""
        self.stop()
        self._clean_up()

    def _clean_up(self) -> None:
        if self._temporary is not None:
            self._temporary.cleanup()

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- faults -------------------------------------------------------------------------------------------------------

    def restart(self) -> None:
        """Stop the server gracefully, and start it again on the same port with the same data."""
        self._settings = self._settings.model_copy(update={"listen_port": self.port})
        self.stop()
        self.start()

    def disconnect(self, broker_name: str | None = None) -> int:
        """Cut the connections of a broker's instances, or all, as a crash of the peer would; return their number."""

        def cut(serving: _Serving) -> int:
            namesrv = serving.controller.namesrv
            live = namesrv.manager.tables.broker_live_table
            names = {key: info.broker_name for key, info in live.items()}
            chosen = {live[key].connection_id for key, name in names.items() if broker_name in {None, name}}
            connections = [
                connection
                for number, connection in namesrv.slots.connections.items()
                if broker_name is None or number in chosen
            ]
            for connection in connections:
                connection.abort()
            return len(connections)

        return self._read(cut)

    # -- tables -------------------------------------------------------------------------------------------------------

    @property
    def broker_names(self) -> set[str]:
        """The names of the live brokers in the server's tables."""
        return self._read(lambda serving: set(serving.controller.namesrv.manager.tables.broker_addr_table))

    @property
    def topics(self) -> set[str]:
        """The topics that have a route."""
        return self._read(lambda serving: set(serving.controller.namesrv.manager.tables.topic_queue_table))

    def __repr__(self) -> str:
        with contextlib.suppress(RuntimeError):
            return f"<TestNameServer [{self.address}{' | frozen' if self.is_frozen else ''}]>"
        return "<TestNameServer [not started]>"
