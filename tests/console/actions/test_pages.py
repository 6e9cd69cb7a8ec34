"""Actions on real servers: previewed, confirmed by name, done on each server, and audited with the user's name."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from html import escape
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import httpx2
import pytest

from namesrv.routeinfo.tables.rows import queues_of
from namesrv_console.access.settings import AccessSettings
from namesrv_console.actions.kinds import ACTIONS
from namesrv_remoting.aio.credentials import SigningSettings
from namesrv_remoting.aio.tls import TlsClientSettings
from namesrv_remoting.codes import RequestCode, ResponseCode
from namesrv_runtime.log import printable
from tests.support.apache_server import ApacheFront
from tests.support.certificates import Authority
from tests.support.console import Shown, console
from tests.support.console_access import fields, write_users
from tests.support.ctl import address_of, ctl, refusing_address
from tests.support.fake_clock import FakeClock, until
from tests.support.in_process import InProcess, namesrv_in_process
from tests.support.logged import logged
from tests.support.namesrv_peer import MASTER, registration, topic_config
from tests.support.scripted_server import ScriptedServer

T = TypeVar("T")

HOSTILE: Final = '<script>alert(1)</script>\x1b[2J\u202egnp.exe it\'s "quoted" & 100%\na\rb'

LIVE: Final = "orderMessageEnable"


class Acting(NamedTuple):
    """A console with actions, two running servers, and one server that is down."""

    shown: Shown
    first: InProcess
    second: InProcess
    down: str
    clock: FakeClock
    trail: Path

    async def during(self, work: Awaitable[T]) -> T:
        """The result of the work; the clock moves on, since requests to the server that is down are retried by it."""
        task = asyncio.ensure_future(work)
        while not task.done():
            await self.clock.advance(0.5)
            # The running servers answer in real time; meanwhile the fake clock must stand still, or they would be late.
            await asyncio.wait({task}, timeout=5.0)
        return await task

    async def preview(self, action: str, **given: str) -> httpx2.Response:
        return await self.during(self.shown.http.get(f"/actions/{action}", params=given))

    async def act(self, action: str, typed: str, **given: str) -> httpx2.Response:
        """Send the form of the preview."""
        seen = await self.preview(action, **given)
        assert seen.status_code == 200, seen.text
        form = confirmed(seen.text, typed)
        return await self.during(self.shown.http.post(f"/actions/{action}", data=form))


def confirmed(preview: str, typed: str) -> dict[str, str]:
    """The form of a preview with a confirmation."""
    return {**fields(preview.split('<h2 id="confirm-title"')[1]), "confirm": typed}


async def audited(trail: Path, count: int) -> list[dict[str, Any]]:
    """The lines of the trail, as soon as there are `count` of them."""

    def read() -> list[dict[str, Any]]:
        found = sorted(trail.glob("dt=*/hour=*/console-*.open"))
        return [json.loads(line) for path in found for line in path.read_bytes().splitlines()]

    await until(lambda: len(read()) >= count)
    return read()


@asynccontextmanager
async def acting(path: Path, asks: Mapping[str, Any] = {}, **settings: Any) -> AsyncIterator[Acting]:
    """A console at which olga is signed in; `settings` are the servers', `asks` the console's connection settings."""
    clock = FakeClock()
    access = AccessSettings(users=write_users(path / "users"), audit_log_dir=path / "trail", actions=True)
    async with (
        namesrv_in_process(path / "1", clock=clock, **settings) as first,
        namesrv_in_process(path / "2", clock=clock, **settings) as second,
    ):
        with refusing_address() as down:
            async with console(clock, first.where, second.where, down, access=access, **asks) as shown:
                done = Acting(shown, first, second, down, clock, path / "trail")
                await done.shown.sign_in("olga")
                yield done


def perms(server: InProcess, topic: str) -> list[int]:
    """The permissions of the topic's queues."""
    return [queues.perm for queues in queues_of(server.namesrv.manager.tables.topic_queue_table.get(topic))]


async def test_permission_is_wiped_where_a_server_is_down(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A preview, a wrong and a right confirmation, the results by server, the command, the trail, the servers' logs."""
    caplog.set_level("INFO")
    async with acting(tmp_path) as console:
        for server in (console.first, console.second):
            await (await server.connect()).register(MASTER)

        seen = (await console.preview("wipe-write-perm", broker="broker-a")).text
        for server in (console.first, console.second):
            assert server.where in seen
        assert seen.count("cluster-1/broker-a/0</bdi>") == 2
        assert "unknown:</b> no connection to" in seen
        expected = (
            f"namesrvctl -s {console.first.where} -s {console.second.where} -s {console.down} wipe-write-perm broker-a"
        )
        assert expected in seen

        wrong = await console.act("wipe-write-perm", "broker-b", broker="broker-a")
        assert wrong.status_code == 400
        assert "Nothing was changed: the confirmation must be broker-a." in wrong.text
        assert perms(console.first, "T") == [6]

        done = (await console.act("wipe-write-perm", "broker-a", broker="broker-a")).text
        assert "Carried out on 2 of 3 servers." in done
        assert [perms(console.first, "T"), perms(console.second, "T")] == [[4], [4]]

        *_, line = await audited(console.trail, 3)
        about = {"what": "write_permission", "broker_name": "broker-a", "before": "RW-", "after": "R--"}
        assert [{**about, "server": server.where} for server in (console.first, console.second)] == line["changes"][:2]
        assert [line["changes"][2][name] for name in ("what", "server")] == ["not_done", console.down]
        assert tuple(line[name] for name in ("event", "account", "role", "source")) == (
            "change",
            "olga",
            "operator",
            "password",
        )
        assert line["command"] == expected
        # namesrvctl reads the console's trail; the sign-in may come before the line of the start.
        rows = {row[1]: row for row in (await ctl("audit", str(console.trail))).cells}
        signed_in, changed = rows["sign_in"], rows["change"]
        assert signed_in[-1] == "signed in to the console (password)"
        assert changed[1:3] == ["change", "olga"]
        assert f'write permission broker-a: "RW-" -> "R--" on {console.second.where}; not done on' in changed[-1]
        assert f"not done on {console.down}: no connection" in changed[-1]
        # Each server's log has the user, too.
        assert [it["request_fields"]["operator"] for it in logged(caplog, "operator_changed")] == ["olga", "olga"]


async def test_setting_that_needs_a_restart_is_not_previewed(tmp_path: Path) -> None:
    """The preview shows no new value of a setting that servers refuse to change by a request."""
    async with acting(tmp_path, admin_enabled=True) as console:
        seen = await console.shown.text("/actions/config-set?key=logLevel&value=debug")

        assert seen.count("setting logLevel cannot be changed by a request") == 2
        assert "<bdi>debug</bdi>" not in seen


async def test_pages_show_the_values_after_an_action(tmp_path: Path) -> None:
    """Pages share responses for some seconds; those from before an action are not shown after it."""
    async with acting(tmp_path) as console:
        await console.first.namesrv.kv.put("N", "k", "former value")
        await until(lambda: console.shown.console.observed.cluster.servers[0].is_reachable)
        assert "former value" in await console.shown.text("/kv?namespace=N")

        await console.act("kv-put", "k", namespace="N", key="k", value="new value")
        page = await console.shown.text("/kv?namespace=N")

        assert ("former value" in page, "new value" in page) == (False, True)


async def test_lost_response_leaves_open_whether_the_action_was_done(tmp_path: Path) -> None:
    """The server took the request and its connection broke: neither page nor trail claims that nothing was done."""

    async def play(server: ScriptedServer) -> None:
        while True:
            peer = await server.accept()
            while (asked := await peer.receive()).code != RequestCode.PUT_KV_CONFIG:
                peer.answer(asked.opaque, code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
            peer.close()

    clock = FakeClock()
    access = AccessSettings(users=write_users(tmp_path / "users"), audit_log_dir=tmp_path / "trail", actions=True)
    async with ScriptedServer() as server, console(clock, server.address, access=access) as shown:
        played = shown.tasks.create_task(play(server))
        await shown.sign_in("olga")
        form = confirmed(await shown.text("/actions/kv-put?namespace=N&key=k&value=v"), "k")
        done = (await shown.http.post("/actions/kv-put", data=form)).text
        [line] = [line for line in await audited(tmp_path / "trail", 3) if line["event"] == "change"]
        played.cancel()

    assert "Carried out on 0 of 1 server." in done
    assert "not done" not in done
    assert "unknown whether done:" in done
    assert (line["account"], len(line["changes"])) == ("olga", 1)
    assert line["changes"][0]["error"].endswith("closed by the peer; the server may have done it all the same")


@pytest.mark.parametrize(
    ("action", "typed", "given", "before", "after"),
    [
        ("add-write-perm", "broker-a", {"broker": "broker-a"}, ("perm", 4), ("perm", 6)),
        ("delete-topic", "T", {"topic": "T"}, ("topic", True), ("topic", False)),
        ("kv-put", "k", {"namespace": "N", "key": "k", "value": ""}, ("kv", "old"), ("kv", "")),
        ("kv-delete", "k", {"namespace": "N", "key": "k"}, ("kv", "old"), ("kv", None)),
        ("config-set", LIVE, {"key": LIVE, "value": "true"}, ("setting", False), ("setting", True)),
    ],
)
async def test_each_action(
    tmp_path: Path, action: str, typed: str, given: dict[str, str], before: tuple[str, Any], after: tuple[str, Any]
) -> None:
    """Each action is carried out on both running servers, and only after its confirmation."""

    def state(server: InProcess) -> tuple[str, Any]:
        namesrv = server.namesrv
        found = {
            "perm": next(iter(perms(server, "T")), None),
            "topic": bool(perms(server, "T")),
            "kv": namesrv.kv.get("N", "k"),
            "setting": namesrv.settings.live.order_message_enable,
        }
        return before[0], found[before[0]]

    async with acting(tmp_path, admin_enabled=True) as console:
        for server in (console.first, console.second):
            await (await server.connect()).register(MASTER, registration("U", topic_config("T", perm=4)))
            await server.namesrv.kv.put("N", "k", "old")

        await console.preview(action, **given)
        assert [state(console.first), state(console.second)] == [before, before]
        assert "Carried out on 2 of 3 servers." in (await console.act(action, typed, **given)).text
        assert [state(console.first), state(console.second)] == [after, after]


@pytest.mark.parametrize(
    ("action", "given", "nothing"),
    [
        ("wipe-write-perm", {"broker": "broker-x"}, "no broker of this name"),
        ("add-write-perm", {"broker": "broker-x"}, "no broker of this name"),
        ("delete-topic", {"topic": "X"}, "no route of this topic"),
        ("kv-delete", {"namespace": "N", "key": "x"}, "no value of this key"),
        # A server ignores a setting that it does not have, and reports success.
        ("config-set", {"key": "orderMesageEnable", "value": "true"}, "no setting orderMesageEnable"),
    ],
)
async def test_misspelt_name_is_named(tmp_path: Path, action: str, given: dict[str, str], nothing: str) -> None:
    """A preview, and the result of a server, say that the server lacks what the action would change."""
    async with acting(tmp_path, admin_enabled=True) as console:
        seen = (await console.preview(action, **given)).text
        done = (await console.act(action, given[ACTIONS[action].confirmed], **given)).text

    assert (seen.count(nothing), done.count(nothing)) == (2, 2)
    assert "Carried out on 0 of 3 servers." in done
    assert '<b class="good">' not in done


async def test_action_that_found_nothing_is_no_change_in_the_trail(tmp_path: Path) -> None:
    """The deletion of a missing key is no line; on a further server that is down, it has failed."""
    access = AccessSettings(users=write_users(tmp_path / "users"), audit_log_dir=tmp_path / "one", actions=True)
    async with namesrv_in_process(tmp_path) as server, console(server.clock, server.where, access=access) as shown:
        await shown.sign_in("olga")
        for action, value in (("kv-delete", ""), ("kv-put", "&value=v")):
            preview = await shown.text(f"/actions/{action}?namespace=N&key=k{value}")
            assert (await shown.http.post(f"/actions/{action}", data=confirmed(preview, "k"))).status_code == 200
        done = await audited(tmp_path / "one", 3)
    async with acting(tmp_path) as three:
        await three.act("kv-delete", "k", namespace="N", key="k")
        failed = await audited(three.trail, 3)

    assert [line["request"] for line in done if line["event"] == "change"] == ["PUT_KV_CONFIG"]
    assert [(line["event"], line["request"], line["reason"]) for line in failed[2:]] == [
        ("refusal", "DELETE_KV_CONFIG", "failed")
    ]


@pytest.mark.parametrize("name", [HOSTILE, "x" * 127])
async def test_hostile_name_is_escaped_and_acted_on_exactly(tmp_path: Path, name: str) -> None:
    """A hostile topic name appears escaped, never as markup, and exactly the topic of that name is deleted."""
    async with acting(tmp_path) as console:
        peer = await console.first.connect()
        await peer.register(MASTER, registration(topic_config(name), "T"))
        seen = (await console.preview("delete-topic", topic=name)).text
        shown = str(escape(printable(name))).replace("&#x27;", "&#39;").replace("&quot;", "&#34;")
        assert f"<code><bdi>{shown}</bdi></code>" in seen
        assert "<script>alert" not in seen
        assert "\x1b" not in seen
        assert "\u202e" not in seen

        # Control characters cannot be typed: the user types the printable form.
        done = await console.act("delete-topic", printable(name), topic=name)
        assert "Carried out on 1 of 3 servers." in done.text
        assert list(console.first.namesrv.manager.tables.topic_queue_table) == ["T"]


@pytest.mark.parametrize(
    ("classes", "result"),
    [
        (["admin-write"], "Carried out on 2 of 3 servers."),
        ([], "refused with code 16: account console lacks admin-write"),
    ],
)
async def test_servers_see_the_account_of_the_console(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, classes: list[str], result: str
) -> None:
    """Requests are signed and sent over TLS; operators may do no more than the console's account."""
    caplog.set_level("INFO")
    authority = Authority(tmp_path)
    (tmp_path / "access.toml").write_text(
        f'[accounts.console]\nsecrets = ["of-the-console"]\nmay = {["route-read", "admin-read", *classes]}\n'
    )
    asks = {
        "tls": TlsClientSettings(**authority.client()),
        "signing": SigningSettings(access_key="console", secret_key="of-the-console"),  # type: ignore[arg-type]  # as text
    }
    servers = {"tls_mode": "enforcing", "access": str(tmp_path / "access.toml")}
    async with acting(tmp_path, asks, **servers, **authority.issue("server").server_settings) as console:
        done = (await console.act("kv-put", "k", namespace="N", key="k", value="v")).text
        assert result in done
        assert (
            f"namesrvctl -s {console.first.where} -s {console.second.where} -s {console.down} --tls kv put N k v"
            in done
        )
        changed = [(it["account"], it["request_fields"]["operator"]) for it in logged(caplog, "operator_changed")]
        assert [("console", "olga")] * 2 * len(classes) == changed


async def test_viewers_see_no_action_and_do_none(tmp_path: Path) -> None:
    """A viewer gets neither a preview nor the action, and the attempt is audited."""
    async with acting(tmp_path) as console:
        page = await console.shown.text("/topic?name=T")
        assert "/actions/delete-topic?topic=T" in page
        seen = await console.preview("delete-topic", topic="T")
        form = confirmed(seen.text, "T")

        await console.shown.sign_in("vera")
        page = await console.shown.text("/topic?name=T")
        assert "/actions/delete-topic" not in page
        assert "Only operators may make changes." in await console.shown.text("/actions")
        assert (await console.preview("delete-topic", topic="T")).status_code == 403
        form["csrf"] = fields(page)["csrf"]
        assert (await console.shown.http.post("/actions/delete-topic", data=form)).status_code == 403
        *_, line = await audited(console.trail, 4)
        assert tuple(line[name] for name in ("event", "account", "request", "reason")) == (
            "refusal",
            "vera",
            "/actions/delete-topic",
            "forbidden",
        )


async def test_actions_are_off_by_default(tmp_path: Path) -> None:
    """Without `--actions` the pages do not exist, for operators either."""
    access = AccessSettings(users=write_users(tmp_path / "users"))
    async with namesrv_in_process(tmp_path) as server, console(server.clock, server.where, access=access) as shown:
        await shown.sign_in("olga")
        page = await shown.text("/topic?name=T")
        assert "/actions" not in page
        assert (await shown.http.get("/actions/delete-topic?topic=T")).status_code == 404
        assert (await shown.http.post("/actions/delete-topic", data=fields(page))).status_code == 404


async def test_permission_on_apaches_server_is_unknown_before_the_action(tmp_path: Path) -> None:
    """Apache's server does not report removed write permissions."""
    access = AccessSettings(users=write_users(tmp_path / "users"), audit_log_dir=tmp_path / "trail", actions=True)
    async with (
        namesrv_in_process(tmp_path) as server,
        ApacheFront(server.address) as apache,
        console(server.clock, address_of(apache), access=access) as shown,
    ):
        await (await server.connect()).register(MASTER)
        await shown.sign_in("olga")
        preview = await shown.text("/actions/wipe-write-perm?broker=broker-a")

    assert '<td data-label="Now"><span class="soft">unknown</span></td>' in preview
