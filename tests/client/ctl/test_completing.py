"""Shell completion of names."""

from pathlib import Path

import pytest

from tests.support.ctl import ctl, one_server, refusing_address
from tests.support.namesrv_peer import ELSEWHERE, MASTER, native_registration
from tests.support.scripted_server import ScriptedServer

HOSTILE = ("x;reboot", "x|reboot", "x$(reboot)", "x`reboot`", "x reboot", "x\x1b[2J", "x\u202e", "-x", "x'", "x" * 127)


async def offered(line: str, **env: str) -> list[str]:
    """The completions of a line in fish's format, without error output."""
    shell = {"_NAMESRVCTL_COMPLETE": "complete_fish", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    done = await ctl(env={**shell, "_TYPER_COMPLETE_ARGS": f"namesrvctl {line}", **env})
    assert (done.code, done.err) == (0, "")
    return done.out.split()


@pytest.mark.parametrize("protocol", ["native", "rocketmq"])
@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("-s {} route ", ["bills", "orders"]),
        ("route o -s {}", []),
        ("-s {} route bills o", ["orders"]),
        ("delete-topic -s {} b", ["bills"]),
        ("-s {} wipe-write-perm ", ["broker-a", "broker-c"]),
        ("-s {} brokers --name broker-c", ["broker-c"]),
        ("-s {} topics --cluster cl", ["cluster-1", "cluster-2"]),
        ("topicRoute -n {} -t or", ["orders"]),
    ],
)
async def test_names_are_completed_from_the_given_servers(
    tmp_path: Path, protocol: str, line: str, names: list[str]
) -> None:
    """Topics, broker groups and clusters with the typed prefix are completed from our and Apache's servers."""
    async with one_server(tmp_path, protocol) as (server, where):
        peer = await server.connect()
        await peer.register(MASTER, native_registration("orders", "bills"), spelling="native")
        await peer.register(ELSEWHERE, native_registration("orders"), spelling="native")

        assert await offered(line.format(where)) == names


async def test_names_with_shell_characters_are_not_completed(tmp_path: Path) -> None:
    """A shell inserts completions into the line unquoted."""
    async with one_server(tmp_path) as (server, where):
        await (await server.connect()).register(MASTER, native_registration(*HOSTILE, "%RETRY%x"), spelling="native")

        assert await offered(f"-s {where} route ") == ["%RETRY%x", "x" * 127]


async def test_completion_hides_errors(tmp_path: Path) -> None:
    """Unreachable and hanging servers, invalid addresses and unknown contexts give no completions and no message."""
    async with one_server(tmp_path) as (server, where), ScriptedServer() as hanging:
        await (await server.connect()).register(MASTER, native_registration("orders"), spelling="native")
        with refusing_address() as absent:
            assert await offered(f"-s {absent} -s {where} -s {hanging.address} route ") == ["orders"]
            assert await offered(f"-s {absent} route ") == []
        assert await offered("-s a:b:c route ") == []
        assert await offered("--context nope route ") == []
        assert await offered(f"-s {where} --tls-ca-file nope route ") == []
        assert await offered("route ", NAMESRV_ADDR=where) == ["orders"]


async def test_saved_contexts_are_completed(tmp_path: Path) -> None:
    """Contexts are completed for --context and for the `context` commands."""
    env = {"XDG_CONFIG_HOME": str(tmp_path)}
    for name in ("prod", "perf", "test"):
        await ctl("context", "add", name, "-s", "ns1", env=env)

    assert await offered("--context p", **env) == ["perf", "prod"]
    assert await offered("context use t", **env) == ["test"]
