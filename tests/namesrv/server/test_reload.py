"""A reload changes the settings that can change in a running server, all or none."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from namesrv.context import LiveSettings
from namesrv.server.reload import RELOADABLE, Change, Reloader, apply, changes_between
from namesrv.settings.catalog import SETTINGS
from namesrv.settings.flags import parse
from namesrv.settings.model import Settings
from namesrv.settings.sources import Loaded, load
from namesrv_remoting.aio.limits import ServerLimits
from namesrv_runtime.log import configure
from tests.support.in_process import InProcess, namesrv_in_process
from tests.support.namesrv_peer import Broker, outcome
from tests.support.raw_peer import RawPeer, until

# what a running server cannot change: where it is, what it waits for, and what shapes staleness, which the heartbeat
# log told at its start
NEEDS_RESTART = {
    "max_memory_bytes",
    "listen_host",
    "listen_port",
    "http_listen",
    "data_dir",
    "nameserver_name",
    "scan_interval_seconds",
    "broker_expiry_seconds",
    "evict_on_disconnect",
    "wait_for_service_seconds",
    "heartbeat_log_dir",
}


def test_every_setting_is_on_one_side() -> None:
    """A new one has to say on which."""
    assert set(SETTINGS) == RELOADABLE | NEEDS_RESTART
    assert set() == RELOADABLE & NEEDS_RESTART


def test_changes_are_those_that_differ() -> None:
    """In the order of the settings, with both values."""
    running = dict(Settings(max_connections=5, listen_port=1))
    wanted = Settings(max_connections=6, listen_port=2)
    running["data_dir"], running["heartbeat_log_dir"] = wanted.data_dir, wanted.heartbeat_log_dir

    changes = changes_between(running, wanted)

    assert [Change("listen_port", 1, 2), Change("max_connections", 5, 6)] == changes
    assert [False, True] == [change.can_reload for change in changes]


class File:
    """A settings file, and the server that reads it."""

    def __init__(self, path: Path, server: InProcess) -> None:
        self.path = path
        self.server = server
        argv = [
            "--listen-host=127.0.0.1",
            "--listen-port=0",
            "--http-listen=",
            "--drain-seconds=0",
            f"--data-dir={server.data_dir}",
            f"--heartbeat-log-dir={server.namesrv.settings.heartbeat_log_dir}",
            f"--nameserver-name={server.namesrv.settings.nameserver_name}",
            f"--config={path}",
        ]
        self.read: Callable[[], Loaded] = lambda: load(parse(argv), {})

    async def reload(self, text: str) -> None:
        """Write it and have it read again."""
        self.path.write_text(text)
        await Reloader(self.server.namesrv, self.server.controller.server, self.read).reload()


def events(caplog: pytest.LogCaptureFixture) -> list[tuple[str, dict[str, Any]]]:
    """What the reload logged, and nothing before it."""
    found = [
        (str(record.msg), dict(vars(record)["fields"]))
        for record in caplog.records
        if record.name == "namesrv.server.reload"
    ]
    caplog.clear()
    return found


async def test_changed_setting_is_in_effect_and_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Old and new value and where the new one came from, once."""
    caplog.set_level(logging.INFO)
    async with namesrv_in_process(tmp_path / "data") as server:
        file = File(tmp_path / "ns.toml", server)

        await file.reload("max_connections = 1\n")
        told = {"setting": "max_connections", "old": 10_000, "new": 1, "origin": f"file {file.path}"}
        assert [("setting_changed", told), ("reloaded", {"changed": 1, "need_restart": 0})] == events(caplog)
        peer = await server.connect()
        refused = await RawPeer.connect(server.address)
        assert await refused.at_end()
        refused.close()
        assert 1 == server.namesrv.settings.max_connections

        await file.reload("max_connections = 1\n")
        assert [("reloaded", {"changed": 0, "need_restart": 0})] == events(caplog)
        await file.reload("")
        assert [("setting_changed", 1, 10_000, "default")] == [
            (name, told["old"], told["new"], told["origin"]) for name, told in events(caplog)[:1]
        ]
        assert 0 == (await peer.call(106)).code


async def test_setting_that_needs_a_restart(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Is named each time, and is as it was."""
    caplog.set_level(logging.INFO)
    async with namesrv_in_process(tmp_path / "data") as server:
        file = File(tmp_path / "ns.toml", server)
        for _ in range(2):
            await file.reload("broker_expiry_seconds = 60\nadmin_enabled = true\n")

            told = next(told for name, told in events(caplog) if name == "setting_needs_restart")
            assert ("broker_expiry_seconds", 120.0, 60.0) == (told["setting"], told["old"], told["new"])
            assert 120.0 == server.namesrv.settings.broker_expiry_seconds
            assert server.namesrv.settings.admin_enabled


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("max_connections = 5\nmax_header_bytes = 1\n", "max-header-bytes: 1 is not between 1024 and 16777215"),
        ("max_connections = 5\nmax_conections = 6\n", "unknown key max_conections"),
        ("max_connections = 5\nmax_conn", "{file}: "),
    ],
)
async def test_bad_file_changes_nothing(
    text: str, problem: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What is wrong is told, and what is right beside it is not applied either."""
    caplog.set_level(logging.INFO)
    async with namesrv_in_process(tmp_path / "data") as server:
        file = File(tmp_path / "ns.toml", server)
        before = server.namesrv.effective_settings()

        await file.reload(text)

        ((name, told),) = events(caplog)
        assert "reload_refused" == name
        (found,) = told["problems"]
        assert found.startswith(problem.replace("{file}", str(file.path)))
        assert before == server.namesrv.effective_settings()
        assert 10_000 == server.controller.server.limits.max_connections


async def test_file_that_is_gone_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It may be in the middle of being replaced."""
    async with namesrv_in_process(tmp_path / "data") as server:
        file = File(tmp_path / "ns.toml", server)
        await Reloader(server.namesrv, server.controller.server, file.read).reload()

    ((name, told),) = events(caplog)
    assert ("reload_refused", (f"{file.path}: cannot be read: no such file or directory",)) == (name, told["problems"])


async def test_flag_wins_over_a_changed_file(tmp_path: Path) -> None:
    """As at the start."""
    async with namesrv_in_process(tmp_path / "data", drain_seconds=0.0) as server:
        file = File(tmp_path / "ns.toml", server)
        await file.reload("drain_seconds = 60\n")

        assert 0.0 == server.namesrv.settings.drain_seconds


async def test_each_bound_reaches_who_enforces_it(tmp_path: Path) -> None:
    """Connections and frames, the KV configuration, answers, and the heartbeat log's files."""
    async with namesrv_in_process(tmp_path / "data", heartbeat_log_dir=str(tmp_path / "log")) as server:
        namesrv = server.namesrv
        changed = {
            "max_frame_bytes": 65536,
            "max_header_bytes": 2048,
            "max_connections": 110,
            "reserved_broker_connections": 500,
            "max_connections_per_ip": 12,
            "max_in_flight_per_connection": 13,
            "write_buffer_bytes": 65537,
            "first_frame_timeout_seconds": 14.0,
            "whole_frame_timeout_seconds": 15.0,
            "idle_timeout_seconds": 16.0,
            "tcp_user_timeout_seconds": 17.0,
            "silent_timeout_seconds": 18.0,
            "proxy_protocol": "optional",
            "kv_max_value_bytes": 18,
            "kv_max_keys_per_namespace": 19,
            "kv_max_namespaces": 20,
            "heartbeat_log_keep_days": 21.0,
            "heartbeat_log_max_bytes": 1 << 30,
        }

        remoting = server.controller.server
        apply(namesrv, remoting, changed)

        expected = ServerLimits(
            max_frame_bytes=65536,
            max_header_bytes=2048,
            max_connections=110,
            reserved_connections=11,
            max_connections_per_ip=12,
            max_in_flight=13,
            write_buffer_bytes=65537,
            first_frame_seconds=14.0,
            whole_frame_seconds=15.0,
            idle_seconds=16.0,
            tcp_user_timeout_seconds=17.0,
            silent_seconds=18.0,
            proxy_protocol=True,
        )
        assert expected == remoting.limits
        assert 65536 == remoting.dispatcher.max_frame_bytes
        limits = namesrv.kv.limits
        assert (18, 19, 20) == (limits.max_value_bytes, limits.max_keys_per_namespace, limits.max_namespaces)
        assert namesrv.heartbeat_log is not None
        retention = namesrv.heartbeat_log.log.retention
        assert (21.0, 1 << 30) == (retention.keep_days, retention.max_bytes)


async def test_what_is_looked_up_counts_at_once(tmp_path: Path) -> None:
    """Topics per broker, the size of inflated bodies, administration and values of the KV configuration."""
    async with namesrv_in_process(tmp_path / "data") as server:
        peer = await server.connect()
        assert 0 == (await peer.register(Broker())).code
        assert 16 == (await peer.call(318, None, b"enableTopicList=false")).code

        apply(
            server.namesrv,
            server.controller.server,
            {"max_topics_per_broker": 1, "admin_enabled": True, "kv_max_value_bytes": 3},
        )

        assert (1, "2 topics in one registration, limit 1") == outcome(
            await peer.register(Broker("broker-b", 0, "10.0.0.2:10911"))
        )
        assert 0 == (await peer.call(318, None, b"enableTopicList=false")).code
        put = {"namespace": "n", "key": "k", "value": "four"}
        assert "value of 4 bytes, limit 3" in str((await peer.call(100, put)).remark)


async def test_option_of_routes_shows_in_the_next_answer(tmp_path: Path) -> None:
    """Answers that are encoded already are made anew."""
    async with namesrv_in_process(tmp_path / "data") as server:
        peer = await server.connect()
        await peer.register(Broker())
        await peer.call(100, {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "broker-a:8"})
        assert b"orderTopicConf" not in (await peer.call(105, {"topic": "T"})).body

        apply(server.namesrv, server.controller.server, {"order_message_enable": True})

        assert b'"orderTopicConf":"broker-a:8"' in (await peer.call(105, {"topic": "T"})).body


async def test_reload_takes_back_what_was_changed_over_the_wire(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What the files say counts, and the change is told with the value that was in effect."""
    async with namesrv_in_process(tmp_path / "data") as server:
        file = File(tmp_path / "ns.toml", server)
        for item in fields(LiveSettings):
            setattr(server.namesrv.live, item.name, not getattr(server.namesrv.live, item.name))

        await file.reload("")

        told = [told["setting"] for name, told in events(caplog) if name == "setting_changed"]
        assert {item.name for item in fields(LiveSettings)} == set(told)
        assert LiveSettings.of(Settings()) == server.namesrv.live


async def test_asked_often_it_reloads_once_more(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever asks while it reads gets what was written by then."""
    caplog.set_level(logging.INFO)
    async with namesrv_in_process(tmp_path / "data") as server:
        file = File(tmp_path / "ns.toml", server)
        file.path.write_text("max_connections = 7\n")
        asked = asyncio.Event()
        reloading = asyncio.ensure_future(Reloader(server.namesrv, server.controller.server, file.read).run(asked))
        for _ in range(5):
            asked.set()
        await until(lambda: server.namesrv.settings.max_connections == 7)
        file.path.write_text("max_connections = 8\n")
        asked.set()
        await until(lambda: server.namesrv.settings.max_connections == 8)
        reloading.cancel()
        await asyncio.wait([reloading])

    assert 2 == [name for name, _ in events(caplog)].count("reloaded")


async def test_log_level(tmp_path: Path) -> None:
    """Counts for everything from now on, and so does the format."""
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    try:
        configure("info", "json")
        async with namesrv_in_process(tmp_path / "data") as server:
            apply(server.namesrv, server.controller.server, {"log_level": "error"})
            assert logging.ERROR == root.level
            apply(server.namesrv, server.controller.server, {"log_level": "debug", "log_format": "text"})
            assert logging.DEBUG == root.level
    finally:
        root.setLevel(level)
        root.handlers = handlers
