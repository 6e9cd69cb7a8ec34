"""Bounds that a reload changes; tests/journeys tests that a reload is all or nothing, and its log."""

import asyncio
import logging
import resource
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from namesrv.server.reload import apply, warn_if_files_are_few
from namesrv.settings.live import LiveSettings
from namesrv.settings.model import Settings
from namesrv.state.sd_notify import ServiceManager
from tests.support.fake_clock import until
from tests.support.in_process import InProcess, namesrv_in_process
from tests.support.logged import logged, logged_by
from tests.support.namesrv_peer import Broker, NamesrvPeer, registration
from tests.support.threads import without_new_threads

RELOADER = "namesrv.server.reload"


class File:
    """A settings file and the server that reads it."""

    def __init__(self, path: Path, server: InProcess) -> None:
        self.path = path
        log_dir = server.namesrv.settings.current.heartbeat_log_dir
        self.reloader = server.reloader(f"--heartbeat-log-dir={log_dir}", f"--config={path}")

    async def reload(self, text: str) -> None:
        """Write the file and reload it."""
        self.path.write_text(text)
        await self.reloader.reload()


@pytest.fixture
def file(tmp_path: Path, server: InProcess) -> File:
    """A settings file that does not exist yet."""
    return File(tmp_path / "ns.toml", server)


# setting, its new value, owner of the bound, name of the bound, and the bound if it differs from the value
BOUNDS: list[tuple[str, object, str, str, object]] = [
    ("max_connections", 110, "server", "max_connections", None),
    ("max_connections", 110, "server", "reserved_connections", 11),
    ("share_per_ip_percent", 20.0, "server", "max_connections_per_ip", 22),
    ("share_per_ip_percent", 20.0, "requests", "ip_per_second", 5),
    ("proxy_protocol", "optional", "server", "proxy_protocol", True),
    ("max_topics", 2_000_000, "tables", "max_topics", None),
    ("max_topics", 2_000_000, "tables", "max_topics_per_broker", 200_000),
    ("heartbeat_log_keep_days", 23.0, "log", "keep_days", None),
    ("heartbeat_log_max_bytes", 1 << 30, "log", "max_bytes", None),
    ("audit_log_keep_days", 24.0, "audit", "keep_days", None),
    ("quota_requests_per_second", 25, "requests", "all_per_second", None),
    ("quotas", "enforce", "quotas", "mode", None),
    ("quota_topics", 3, "quotas", "topics", None),
    ("takeover", "refuse", "takeover", "takeover", None),
]


async def test_reloaded_bounds_reach_their_owners(tmp_path: Path) -> None:
    """A reload changes the bounds of connections, routes, requests and log files."""
    log_dir = str(tmp_path / "log")
    async with namesrv_in_process(tmp_path / "data", heartbeat_log_dir=log_dir, quotas="observe") as server:
        namesrv, remoting = server.namesrv, server.controller.server
        apply(namesrv, {setting: value for setting, value, *_ in BOUNDS})

        assert namesrv.heartbeat_log is not None
        enforced = {"server": remoting.limits, "tables": namesrv.manager.rules.limits}
        enforced |= {"log": namesrv.heartbeat_log.lines.retention, "audit": server.audit.logs[1].retention}
        rules = namesrv.manager.rules
        enforced |= {"requests": server.limiter.quotas, "quotas": rules.quotas, "takeover": rules.policy}
        for _, value, owner, limit, other in BOUNDS:
            assert getattr(enforced[owner], limit) == (value if other is None else other), limit


async def test_reloaded_settings_apply_to_the_next_request(server: InProcess, peer: NamesrvPeer) -> None:
    """Limits and switches apply to the next request, and cached responses are dropped."""
    assert (await peer.register(Broker())).code == 0
    assert (await peer.call(318, None, b"enableTopicList=false")).code == 16
    put = {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "broker-a:8"}
    await peer.call(100, put)
    assert b"orderTopicConf" not in (await peer.call(105, {"topic": "T"})).body

    changed = {"max_topics": 1, "admin_enabled": True, "order_message_enable": True}
    apply(server.namesrv, changed)

    refused = (await peer.register(Broker("broker-b", 0, "10.0.0.2:10911"), registration("T", "V"))).outcome
    assert refused == (1, "3 topics, limit 1")
    assert (await peer.call(318, None, b"enableTopicList=false")).code == 0
    assert b'"orderTopicConf":"broker-a:8"' in (await peer.call(105, {"topic": "T"})).body


async def test_reload_reverts_changes_by_request(
    server: InProcess, file: File, caplog: pytest.LogCaptureFixture
) -> None:
    """A reload sets each changed setting to its value in the file, and logs that."""
    names = {item.name for item in fields(LiveSettings)}
    for name in names:
        setattr(server.namesrv.settings.live, name, not getattr(server.namesrv.settings.live, name))

    await file.reload("")

    assert {fields["setting"] for _, name, fields in logged_by(caplog, RELOADER) if name == "setting_changed"} == names
    assert LiveSettings.of(Settings()) == server.namesrv.settings.live


async def test_reloaded_settings_have_a_new_origin(server: InProcess, file: File) -> None:
    """A setting that a reload changed has the origin of its new value; one that needs a restart keeps the old one."""
    await file.reload("")

    await file.reload("max_topics = 7\nscan_interval_seconds = 3.0\n")

    origins = server.namesrv.settings.origins
    assert (origins["max_topics"], origins["scan_interval_seconds"]) == (f"file {file.path}", "default")
    await file.reload("")
    assert origins["max_topics"] == "default"


@pytest.fixture
def thousand_files() -> Iterator[None]:
    """A limit of 1000 open files for this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("thousand_files")
@pytest.mark.settings(max_connections=901)
async def test_low_limit_of_open_files_logs_a_warning(
    server: InProcess, file: File, caplog: pytest.LogCaptureFixture
) -> None:
    """A start or reload warns when `max_connections` and 100 other files exceed the limit of open files."""
    for max_connections in (900, 5000):
        await file.reload(f"max_connections = {max_connections}\n")

    assert "open_files_limit_too_low" in {record.msg for record in caplog.get_records("setup")}
    [found] = logged(caplog, "open_files_limit_too_low")
    assert (found["limit"], found["needed"]) == (1000, 5100)
    assert "to 5100" in found["hint"]


@pytest.mark.usefixtures("thousand_files")
def test_connections_for_the_list_of_name_servers_need_open_files(caplog: pytest.LogCaptureFixture) -> None:
    """The port of `name_servers_listen` may have 256 connections."""
    for max_connections in (644, 645):
        warn_if_files_are_few(Settings(max_connections=max_connections, name_servers_listen="127.0.0.1:1"))

    assert [found["needed"] for found in logged(caplog, "open_files_limit_too_low")] == [1001]


async def test_requests_during_a_reload_start_one_more(
    server: InProcess, file: File, caplog: pytest.LogCaptureFixture
) -> None:
    """Any number of reload requests during a reload cause one more, which reads the latest file."""
    caplog.set_level(logging.INFO)
    file.path.write_text("max_connections = 7\n")
    requested = asyncio.Event()
    reloading = asyncio.ensure_future(file.reloader.run(requested, ServiceManager()))
    for _ in range(5):
        requested.set()
    await until(lambda: server.namesrv.settings.current.max_connections == 7)
    file.path.write_text("max_connections = 8\n")
    requested.set()
    await until(lambda: server.namesrv.settings.current.max_connections == 8)
    reloading.cancel()
    await asyncio.wait([reloading])

    assert [name for _, name, _ in logged_by(caplog, RELOADER)].count("reloaded") == 2


async def test_reload_without_a_thread_is_refused(
    file: File, server: InProcess, caplog: pytest.LogCaptureFixture
) -> None:
    """A server that can start no thread goes on with its settings, and logs that it refused the reload."""
    with without_new_threads():
        await file.reload("max_topics = 19")

    assert [fields["problems"] for fields in logged(caplog, "reload_refused")] == [["can't start new thread"]]
    await file.reload("max_topics = 19")
    assert server.namesrv.settings.current.max_topics == 19
