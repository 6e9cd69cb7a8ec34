"""Settings of a running server that an operator changes (318) and lists (319)."""

import asyncio
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from namesrv.context import Namesrv
from namesrv.processors.live_settings import apply_update
from namesrv.server.controller import NamesrvController
from namesrv.settings.apache_properties import JAVA_NAMES, translate
from namesrv.settings.model import Settings
from namesrv_remoting.bodies.properties import format_properties, parse_properties
from namesrv_remoting.errors import ResponseError
from tests.support.in_process import InProcess, namesrv_in_process
from tests.support.namesrv_peer import Broker, NamesrvPeer, Spelling

# settings that may change at run time, by their names in mqadmin
ALLOWED = {
    "supportActingMaster": "support_acting_master",
    "notifyMinBrokerIdChanged": "notify_min_broker_id_changed",
    "orderMessageEnable": "order_message_enable",
    "deleteTopicWithBrokerRegistration": "delete_topic_with_broker_registration",
    "returnOrderTopicConfigToBroker": "return_order_topic_config_to_broker",
    "enableTopicList": "enable_topic_list",
    "enableAllTopicList": "enable_all_topic_list",
}
ON = ("return_order_topic_config_to_broker", "enable_topic_list", "enable_all_topic_list")
DEFAULTS = {name: name in ON for name in ALLOWED.values()}
BLACK_LIST = ("configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome")
TRUTH = {"true": True, "false": False}


def stopped(data_dir: str | Path, **overrides: Any) -> Namesrv:
    """A NameServer without a listening socket."""
    return NamesrvController(Settings(**{"data_dir": Path(data_dir), "admin_enabled": True, **overrides}))._build(
        asyncio.ensure_future
    )


booleans = st.sampled_from(["true", "false", "TRUE", " False ", "True"])
texts = st.one_of(st.sampled_from(["", "yes", "1", "0", "on", "null", "10000", "/tmp/x"]), st.text(max_size=5))
unknown = st.sampled_from(["key", "order_message_enable", "ordermessageenable", "listen-port", "clusterTest", ""])


@given(
    allowed=st.dictionaries(st.sampled_from(sorted(ALLOWED)), booleans),
    others=st.dictionaries(unknown, texts),
    refused=st.one_of(
        st.just({}),
        st.dictionaries(st.sampled_from(sorted(set(JAVA_NAMES.values()) - set(ALLOWED))), booleans | texts, max_size=1),
        st.dictionaries(st.sampled_from(BLACK_LIST), booleans | texts, max_size=1),
        st.dictionaries(st.sampled_from(sorted(ALLOWED)), texts.filter(lambda text: text.strip().lower() not in TRUTH)),
    ),
    order=st.permutations(range(3)),
)
def test_exactly_the_allow_list_changes(
    allowed: dict[str, str], others: dict[str, str], refused: dict[str, str], order: list[int]
) -> None:
    """Only allowed settings change, and none if one of the update is refused; unknown keys are ignored."""
    parts = [allowed, others, refused]
    properties: dict[str, str] = {}
    for number in order:
        properties |= parts[number]
    properties |= refused
    with TemporaryDirectory() as data_dir:
        namesrv = stopped(data_dir)
        before = dict(namesrv.settings)

        with pytest.raises(ResponseError) if refused else nullcontext():
            apply_update(namesrv, format_properties(properties).encode())

        changed = {} if refused else {ALLOWED[key]: TRUTH[text.strip().lower()] for key, text in allowed.items()}
        assert DEFAULTS | changed == asdict(namesrv.live)
        assert dict(namesrv.settings) == before
        # and no file was written
        assert list(Path(data_dir).iterdir()) == []


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
        (b"orderMessageEnable=true\nkvConfigPath=/x", (16, "Can not update config in black list.")),
        (b"listenPort=1", (16, "listenPort is read at start and cannot be changed while running")),
        (b"adminEnabled=false", (16, "adminEnabled is read at start and cannot be changed while running")),
        (b"orderMessageEnable=1", (1, "orderMessageEnable: '1' is neither true nor false")),
        (b"orderMessageEnable=\\u12", (1, "string2Properties error")),
        (b"orderMessageEnable=\xff", (1, "string2Properties error")),
    ],
)
@pytest.mark.settings(admin_enabled=True)
async def test_outcomes_of_an_update(
    server: InProcess, peer: NamesrvPeer, body: bytes, outcome_expected: tuple[int, str | None]
) -> None:
    """Remarks are Java's where it has them, and a refused update changes nothing."""
    assert (await peer.call(318, None, body)).outcome == outcome_expected

    assert asdict(server.namesrv.live) == DEFAULTS
    assert server.events() == []


async def test_update_needs_administration(tmp_path: Path) -> None:
    """Without `admin_enabled` updates are refused; the settings are readable, but for paths."""
    key = tmp_path / "server.key"
    async with namesrv_in_process(tmp_path, tls_key_file=str(key)) as server:
        peer = await server.connect()
        for body in (b"orderMessageEnable=true", b"", b"kvConfigPath=/x", b"\xff"):
            remark = "administration is disabled on this server, see its setting admin-enabled"
            assert (await peer.call(318, None, body)).outcome == (16, remark)
        assert asdict(server.namesrv.live) == DEFAULTS
        shown = (await peer.call(319)).body.decode()
        assert "adminEnabled=false" in shown.splitlines()
        # paths of files are not shown
        assert str(tmp_path) not in shown
        assert not [name for name in parse_properties(shown) if "Dir" in name or "Path" in name]


def test_changed_and_unknown_settings_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A changed setting and an unknown key have a log line each; an unchanged setting has none."""
    namesrv = stopped(tmp_path)

    apply_update(namesrv, b"enableTopicList=false\nenableAllTopicList=true\nunknownKey=1")

    assert [(record.msg, vars(record)["fields"]) for record in caplog.records] == [
        ("setting_unknown", {"key": "unknownKey"}),
        ("setting_changed", {"setting": "enable_topic_list", "value": False}),
    ]


@pytest.mark.settings(admin_enabled=True)
async def test_changed_setting_drops_cached_routes_once(server: InProcess, peer: NamesrvPeer) -> None:
    """A changed setting drops cached routes and raises the revision; an unchanged one does not."""
    await peer.register(Broker())
    # The dispatcher answers the first request, and the fast path answers and encodes from the second on.
    for _ in range(2):
        await peer.call(105, {"topic": "T"})
    for body, responses, revision in (
        (b"orderMessageEnable=false", 1, 1),
        (b"orderMessageEnable=true", 0, 2),
        (b"orderMessageEnable=true", 0, 2),
    ):
        await peer.call(318, None, body)
        assert responses == len(server.namesrv.encoded_routes.json)
        assert revision == server.namesrv.manager.revisions.revision
