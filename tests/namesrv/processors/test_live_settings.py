"""Settings of a running server that an operator changes (318) and lists (319)."""

from dataclasses import asdict
from pathlib import Path

import pytest

from namesrv.settings.apache_properties import JAVA_NAMES, translate
from namesrv_remoting.bodies.properties import parse_properties
from tests.support.in_process import InProcess, namesrv_in_process
from tests.support.logged import logged
from tests.support.namesrv_peer import NamesrvPeer, Spelling

# settings that may change at run time, by their names in mqadmin
ALLOWED = {
    "supportActingMaster": "support_acting_master",
    "notifyMinBrokerIdChanged": "notify_min_broker_id_changed",
    "orderMessageEnable": "order_message_enable",
    "deleteTopicWithBrokerRegistration": "delete_topic_with_broker_registration",
    "enableTopicList": "enable_topic_list",
    "enableAllTopicList": "enable_all_topic_list",
}
ON = ("enable_topic_list", "enable_all_topic_list")
DEFAULTS = {name: name in ON for name in ALLOWED.values()}


@pytest.mark.settings(admin_enabled=True)
@pytest.mark.parametrize("key", ALLOWED)
async def test_allowed_setting_changes_alone(server: InProcess, peer: NamesrvPeer, key: str) -> None:
    """Each setting of the allow-list changes by its name in mqadmin, and no other one with it."""
    name = ALLOWED[key]
    value = not DEFAULTS[name]

    assert (await peer.call(318, None, f"{key}={value}".encode())).outcome == (0, None)

    assert asdict(server.namesrv.settings.live) == DEFAULTS | {name: value}


async def test_update_and_effective_settings(tmp_path: Path, spelling: Spelling) -> None:
    """The list of settings has the changed values in sorted lines, which a configuration file accepts."""
    async with namesrv_in_process(tmp_path, admin_enabled=True, scan_interval_seconds=5) as server:
        peer = await server.connect()
        body = b"# a comment\nenableTopicList : false\norderMessageEnable\\\n  =true\nunknownKey=this\n"

        response = await peer.call(318, None, body, spelling=spelling)
        assert (*response.outcome, response.fields, response.body) == (0, None, {}, b"")
        response = await peer.call(319, None, spelling=spelling)
        assert (*response.outcome, response.fields) == (0, None, {})

    lines = response.body.decode().splitlines()
    assert sorted(lines) == lines
    assert set(JAVA_NAMES.values()) <= parse_properties(response.body.decode()).keys()
    assert {
        "enableTopicList=false",
        "orderMessageEnable=true",
        "enableAllTopicList=true",
        "scanNotActiveBrokerInterval=5000",
        "adminEnabled=true",
        # the port chosen for listenPort=0
        f"listenPort={server.address[1]}",
        f"dataDir={tmp_path}",
        "bindAddress=127.0.0.1",
    } <= set(lines)
    translation = translate(parse_properties(response.body.decode()), "file F")
    assert (translation.problems, translation.warnings) == ([], [])


@pytest.mark.parametrize(
    ("body", "outcome_expected"),
    [
        (b"", (0, None)),
        (b"{key=value}", (0, None)),
        # the value that the setting has
        (b"enableTopicList=true", (0, None)),
        (b"orderMessageEnable=true\nkvConfigPath=/x", (16, "Can not update config in black list.")),
        (b"listenPort=1", (16, "listenPort is read at start and cannot be changed while running")),
        (b"maxConnections=7", (16, "maxConnections is changed by a reload of the settings (SIGHUP), not by a request")),
        (b"orderMessageEnable=1", (1, "orderMessageEnable: '1' is neither true nor false")),
        (b"orderMessageEnable=\\u12", (1, "string2Properties error")),
        (b"orderMessageEnable=\xff", (1, "string2Properties error")),
    ],
)
@pytest.mark.settings(admin_enabled=True)
async def test_outcomes_of_an_update(
    server: InProcess, peer: NamesrvPeer, body: bytes, outcome_expected: tuple[int, str | None]
) -> None:
    """Remarks are Java's where it has them; an update that is refused, or equals the settings, changes no route."""
    assert (await peer.call(318, None, body)).outcome == outcome_expected

    assert asdict(server.namesrv.settings.live) == DEFAULTS
    assert server.events() == []


async def test_update_needs_administration(tmp_path: Path) -> None:
    """Without `admin_enabled` updates are refused; the settings are readable, but for paths."""
    key = tmp_path / "server.key"
    async with namesrv_in_process(tmp_path, tls_key_file=str(key)) as server:
        peer = await server.connect()
        for body in (b"orderMessageEnable=true", b"", b"kvConfigPath=/x", b"\xff"):
            remark = "administration is disabled on this server, see its setting admin-enabled"
            assert (await peer.call(318, None, body)).outcome == (16, remark)
        assert asdict(server.namesrv.settings.live) == DEFAULTS
        shown = (await peer.call(319)).body.decode()
        assert "adminEnabled=false" in shown.splitlines()
        # paths of files are not shown
        assert str(tmp_path) not in shown
        assert not [name for name in parse_properties(shown) if "Dir" in name or "Path" in name]


@pytest.mark.settings(admin_enabled=True)
async def test_unknown_keys_share_one_line_of_the_log(
    server: InProcess, peer: NamesrvPeer, caplog: pytest.LogCaptureFixture
) -> None:
    """A text of thousands of unknown keys does not make as many lines."""
    body = b"".join(b"unknown%d=1\n" % number for number in range(1_000))

    assert (await peer.call(318, None, body)).code == 0

    assert [len(fields["keys"]) for fields in logged(caplog, "setting_unknown")] == [1_000]


@pytest.mark.settings(admin_enabled=True)
async def test_log_lines_of_changed_settings_are_limited(
    server: InProcess, peer: NamesrvPeer, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has twenty changes of settings a second, and counts the others."""
    for number in range(25):
        assert (await peer.call(318, None, b"orderMessageEnable=%s" % (b"false" if number % 2 else b"true"))).code == 0
    await server.clock.advance(1)

    assert len(logged(caplog, "setting_changed")) == 20
    assert {"of": "setting_changed", "more": 5} in logged(caplog, "events_not_logged")
