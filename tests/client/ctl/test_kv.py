"""The commands `kv` and `config`."""

from pathlib import Path

import pytest

from tests.support.apache_server import ApacheFront
from tests.support.ctl import address_of, at, ctl, nobody
from tests.support.in_process import namesrv_in_process


@pytest.mark.parametrize("is_apache", [False, True], ids=["native", "rocketmq"])
async def test_value_is_put_shown_and_deleted(tmp_path: Path, *, is_apache: bool) -> None:
    """The same with both protocols."""
    async with namesrv_in_process(tmp_path) as ours, ApacheFront(ours.address) as apache:
        server = apache if is_apache else ours
        where = at(server)
        put = await ctl(*where, "kv", "put", "ns", "k", "v=1; ü")
        assert (0, [["SERVER", "RESULT"], [address_of(server), "done"]]) == (put.code, put.cells)
        assert "v=1; ü" == ours.namesrv.kv.get("ns", "k")
        await ctl(*where, "kv", "put", "ns", "a", "2", "-o", "json")

        got = await ctl(*where, "kv", "get", "ns", "k")
        assert (0, ["VALUE", "v=1; ü"]) == (got.code, got.lines)
        listed = await ctl(*where, "kv", "list", "ns")
        assert (0, [["KEY", "VALUE"], ["a", "2"], ["k", "v=1; ü"]]) == (listed.code, listed.cells)
        found = await ctl(*where, "kv", "list", "ns", "-o", "json")
        assert {"servers": [{"server": address_of(server), "values": {"a": "2", "k": "v=1; ü"}}]} == found.json

        deleted = await ctl(*where, "kv", "delete", "ns", "k", "--yes", "-o", "json")
        assert (0, {"namespace": "ns", "key": "k", "servers": [{"server": address_of(server)}]}) == (
            deleted.code,
            deleted.json,
        )
        assert ours.namesrv.kv.get("ns", "k") is None
        absent = await ctl(*where, "kv", "get", "ns", "k")
        assert (1, "", f"namesrvctl: {address_of(server)}: no k in ns\n") == absent
        assert {"servers": [{"server": address_of(server), "value": None}]} == (
            await ctl(*where, "kv", "get", "ns", "k", "-o", "json")
        ).json
        unknown = await ctl(*where, "kv", "list", "other")
        assert (1, "", f"namesrvctl: {address_of(server)}: no namespace other\n") == unknown


async def test_value_reaches_every_server_or_it_is_a_no(tmp_path: Path) -> None:
    """One that is down keeps what it had."""
    async with namesrv_in_process(tmp_path) as server:
        with nobody() as absent:
            put = await ctl(*at(server, absent), "kv", "put", "ns", "k", "v")

        assert (1, [[address_of(server), "done"]]) == (put.code, put.cells[1:])
        assert [True] == [problem.startswith(f"no connection to {absent}") for problem in put.problems]
        assert "v" == server.namesrv.kv.get("ns", "k")


async def test_nothing_is_deleted_without_a_yes(tmp_path: Path) -> None:
    """There is no terminal to ask on."""
    async with namesrv_in_process(tmp_path) as server:
        await ctl(*at(server), "kv", "put", "ns", "k", "v")

        refused = await ctl(*at(server), "kv", "delete", "ns", "k")

        asked = f"delete k from ns on {address_of(server)}? No terminal to ask on; pass --yes to confirm"
        assert (2, "", f"namesrvctl: {asked}\n") == refused
        assert "v" == server.namesrv.kv.get("ns", "k")


@pytest.mark.parametrize("is_apache", [False, True], ids=["native", "rocketmq"])
async def test_settings_are_shown(tmp_path: Path, *, is_apache: bool) -> None:
    """By Apache's names; all, or those asked for."""
    async with namesrv_in_process(tmp_path) as ours, ApacheFront(ours.address) as apache:
        server = apache if is_apache else ours
        shown = await ctl(*at(server), "config", "show", "orderMessageEnable", "bindAddress")
        assert (0, [["KEY", "VALUE"], ["bindAddress", "127.0.0.1"], ["orderMessageEnable", "false"]]) == (
            shown.code,
            shown.cells,
        )
        everything = await ctl(*at(server), "config", "show", "-o", "json")
        settings = everything.json["servers"][0]["config"]
        # paths are nobody's business unless administration is enabled
        assert ("127.0.0.1", True) == (settings["bindAddress"], "dataDir" not in settings)
        absent = await ctl(*at(server), "config", "show", "noSuch")
        assert (1, "", f"namesrvctl: {address_of(server)}: no setting noSuch\n") == absent


@pytest.mark.parametrize("is_apache", [False, True], ids=["native", "rocketmq"])
async def test_settings_are_changed(tmp_path: Path, *, is_apache: bool) -> None:
    """Several at once, where the server allows it."""
    async with namesrv_in_process(tmp_path, admin_enabled=True) as ours, ApacheFront(ours.address) as apache:
        where = at(apache if is_apache else ours)
        done = await ctl(
            *where, "config", "set", "orderMessageEnable=true", "enableTopicList=false", "-y", "-o", "json"
        )

        assert (0, {"orderMessageEnable": "true", "enableTopicList": "false"}) == (done.code, done.json["config"])
        assert (True, False) == (ours.namesrv.live.order_message_enable, ours.namesrv.live.enable_topic_list)


async def test_refused_setting_is_a_no(tmp_path: Path) -> None:
    """Administration is off by default."""
    async with namesrv_in_process(tmp_path) as server:
        refused = await ctl(*at(server), "config", "set", "orderMessageEnable=true", "--yes")

        assert (1, "") == (refused.code, refused.out)
        reason = "administration is disabled on this server, see its setting admin-enabled"
        assert [f"{address_of(server)}: refused with code 16: {reason}"] == refused.problems


@pytest.mark.parametrize("text", ["orderMessageEnable", "=true", " =true"])
async def test_setting_without_value_is_wrong_usage(text: str) -> None:
    """Nobody is asked."""
    refused = await ctl("config", "set", text, "--yes")

    assert 2 == refused.code
    assert "not of the form KEY=VALUE" in refused.err
