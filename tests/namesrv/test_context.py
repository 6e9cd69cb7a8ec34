"""Settings that can change while the server runs, and the identity of one run."""

import asyncio
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from namesrv.context import LiveSettings
from namesrv.server.controller import NamesrvController
from namesrv.settings.model import Settings
from namesrv.state.snapshot import ExpectedBroker, Snapshot, save
from tests.support.fake_clock import FakeClock


def test_live_settings_begin_as_the_settings_say() -> None:
    """Each of them, whatever its default."""
    flipped: dict[str, Any] = {item.name: not item.default for item in fields(LiveSettings)}

    assert flipped == asdict(LiveSettings.of(Settings(**flipped)))
    assert {name: not value for name, value in flipped.items()} == asdict(LiveSettings.of(Settings()))


def test_every_run_has_a_boot_id_of_its_own(tmp_path: Path) -> None:
    """Sixteen hexadecimal digits, on the same machine and in the same directory as well."""
    settings = Settings(data_dir=tmp_path)
    boot_ids = {NamesrvController(settings)._build(asyncio.ensure_future).boot_id for _ in range(10)}

    assert 10 == len(boot_ids)
    assert {16} == {len(f"{int(boot_id, 16):016x}") for boot_id in boot_ids}


def test_readiness_and_uptime_run_on_the_monotonic_clock(tmp_path: Path) -> None:
    """A step of the wall clock opens no gate."""
    expected = (ExpectedBroker("c", "b", 0, "10.0.0.1:1"),)
    save(tmp_path / "snapshot.json", Snapshot(saved_ms=0, boot_id="b", brokers=expected))
    clock = FakeClock()
    namesrv = NamesrvController(Settings(data_dir=tmp_path), clock)._build(asyncio.ensure_future)

    clock.step_wall(3600)
    clock.stall(44.9)
    assert (False, 44.9) == (namesrv.is_ready(), round(namesrv.uptime(), 3))
    clock.stall(0.1)
    assert namesrv.is_ready()
