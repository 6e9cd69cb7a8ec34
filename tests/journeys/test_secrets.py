"""No secret appears in the output of a server, agents, clients and tools, whether they succeed or fail.

The test searches all files, all printed text and all responses, in plain text, hex and Base64, except for the files
that it wrote itself.
"""

import asyncio
import base64
import gzip
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from pydantic import SecretStr

from namesrv_client import ClientSettings, RouteClient, RouteUnavailableError, SyncRouteClient
from tests.broker_agent.test_example import EXAMPLE
from tests.support import http_peer
from tests.support.certificates import Authority
from tests.support.ctl import run
from tests.support.daemon import Daemon, Start
from tests.support.fake_clock import GUARD_SECONDS
from tests.support.printing_process import PrintingProcess

# Each secret is unique, so that a finding shows its origin.
SECRETS: Final = {
    name: f"zq7-{name}-{number:04}-secret"
    for number, name in enumerate(["broker", "operator", "operator-next", "reader", "passphrase", "wrong", "broken"])
}
ACCESS: Final = f"""
[accounts.broker]
secrets = ["{SECRETS["broker"]}"]
may = ["route-read", "broker-control"]

[accounts.operator]
secrets = ["{SECRETS["operator"]}", "{SECRETS["operator-next"]}"]
may = ["route-read", "admin-read", "admin-write"]

[accounts.reader]
secrets = ["{SECRETS["reader"]}"]
may = ["route-read"]
"""
# Mistakes that operators make while they change a secret.
BROKEN_FILES: Final = (
    f'[accounts.broker]\nsecrets = "{SECRETS["broken"]}"\nmay = []\n',
    f'[accounts.broker]\nsecrets = ["{SECRETS["broken"]}", "{SECRETS["broken"]}", "x"]\nmay = ["{SECRETS["broken"]}"\n',
    f'[accounts.broker]\nsecrets = ["{SECRETS["broken"]}\nmay = []\n',
    f'[accounts.broker]\nsecret = ["{SECRETS["broken"]}"]\nmay = []\n',
    f'[accounts.broker]\nsecrets = [{{ a = "{SECRETS["broken"]}" }}]\nmay = []\n',
)
CRASHING_AGENT: Final = """
import asyncio, sys
from namesrv_broker_agent import AgentSettings, BrokerAgent, TopicConfig

async def main():
    identity = {"cluster_name": "c", "broker_name": "b-crash", "broker_addr": "10.0.0.9:1"}
    settings = AgentSettings(**identity, name_servers=sys.argv[1])
    async with BrokerAgent(settings, [TopicConfig("orders", 4, 4)]) as agent:
        await agent.registered()
        print(settings, repr(agent), agent.servers, list(agent._links), [link._connections for link in agent._links])
        raise RuntimeError(f"at the end: {settings!r}")

asyncio.run(main())
"""
# A bug of the server. The log cuts the message, so the reprs of our objects come first.
CRASHING_SERVER: Final = """
import gc, sys
from namesrv.cli import main
from namesrv.routeinfo.manager import RouteInfoManager

def evict_silent(manager, **_):
    gc.unfreeze()
    ours = {type(each).__name__: each for each in gc.get_objects() if str(type(each).__module__).startswith("namesrv")}
    print(ours)
    raise RuntimeError(f"at the end: {[ours[name] for name in ('Settings', 'AccessFile', 'AccessGuard')]!r}")

RouteInfoManager.evict_silent = evict_silent
sys.exit(main())
"""


def signing(account: str, secret: str = "") -> dict[str, str]:
    """The environment variables for signing."""
    return {"NAMESRV_ACCESS_KEY": account, "NAMESRV_SECRET_KEY": SECRETS[secret or account]}


class Searched:
    """Runs programs, and keeps what they print."""

    def __init__(self, server: str) -> None:
        self.server = server
        self.printed: list[str] = []

    def run(self, *words: str, code: int = 0, env: Mapping[str, str] | None = None) -> str:
        """The output of a program, whose exit code must be `code`."""
        with PrintingProcess(sys.executable, *words, **(env or {})) as process:
            ended = process.wait()
        text = "\n".join(process.lines)
        assert code == ended, text
        self.printed.append(text)
        return text

    def ctl(self, *words: str, code: int | None = 0, env: Mapping[str, str] | None = None) -> None:
        """Run namesrvctl and keep its output."""
        done = run("-s", self.server, *words, env=dict(env or {}))
        assert code in (None, done.code), done
        self.printed += [done.out, done.err]


def written(directory: Path, inputs: set[Path]) -> dict[str, bytes]:
    """The content of all files but the inputs."""
    found = {}
    for path in directory.rglob("*"):
        if path.is_file() and path not in inputs:
            content = path.read_bytes()
            found[str(path)] = gzip.decompress(content) if path.suffix == ".gz" else content
    return found


def spellings(secret: str) -> list[bytes]:
    """Encodings in which the secret could appear; of Base64 the part that does not depend on preceding bytes."""
    plain = secret.encode()
    return [plain, plain.hex().encode(), *(base64.b64encode(b"\0" * at + plain)[4:-4] for at in range(3))]


def encrypted(key_file: Path, passphrase: str) -> None:
    """Put a passphrase on a key."""
    key = load_pem_private_key(key_file.read_bytes(), None)
    protection = BestAvailableEncryption(passphrase.encode())
    key_file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, protection))


def side_car(path: Path, server: str) -> None:
    """Write a settings file for the side-car, and its secret into another file."""
    path.with_name("broker.secret").write_text(f"{SECRETS['broker']}\n")
    path.write_text(
        f'cluster_name = "c1"\nbroker_name = "broker-a"\nbroker_addr = "10.0.0.5:1"\nname_servers = "{server}"\n'
        f'access_key = "broker"\nsecret_key_file = "{path.with_name("broker.secret")}"\n'
        '[[topics]]\ntopic_name = "orders"\nread_queue_nums = 4\nwrite_queue_nums = 4\n'
    )


# no output of a server depends on its event loop
@pytest.mark.slow
@pytest.mark.parametrize("loop", ["auto"])
def test_secrets_appear_nowhere(start: Start, tmp_path: Path, data_dir: Path) -> None:
    """No log, metric, setting, error, event, heartbeat log, audit trail or traceback contains a secret."""
    inputs = tmp_path / "inputs"
    inputs.mkdir()
    access, config, agent_file = inputs / "access.toml", inputs / "namesrv.toml", inputs / "agent.toml"
    certificate = Authority(inputs).issue("server")
    encrypted(certificate.key_file, SECRETS["passphrase"])
    access.write_text(ACCESS)
    config.write_text(
        f'access = "{access}"\ntls_mode = "permissive"\ntls_cert_file = "{certificate.cert_file}"\n'
        f'tls_key_file = "{certificate.key_file}"\ntls_key_password = "{SECRETS["passphrase"]}"\n'
    )
    for path in (access, config):
        path.chmod(0o600)
    flags = ("--config", str(config), "--log-level=debug")
    daemon = start(*flags, "--http-listen=127.0.0.1:0")
    host, port = daemon.address
    searched = Searched(f"{host}:{port}")
    side_car(agent_file, searched.server)

    agent = PrintingProcess(
        sys.executable, "-m", "namesrv_broker_agent", "--config", str(agent_file), "--log-level=debug"
    )
    broker = PrintingProcess(
        sys.executable, str(EXAMPLE), "serve", "--name=broker-b", "--topic=bills", "--name-servers", searched.server,
        **signing("broker"),
    )  # fmt: skip
    with agent, broker:
        daemon.wait_for("broker_registered", broker_name="broker-a")
        daemon.wait_for("broker_registered", broker_name="broker-b")
        _in_order(searched)
        _refused(searched, daemon)
        for target in ("/metrics", "/readyz?verbose", "/livez"):
            searched.printed.append(http_peer.ask(daemon.http_address, target).text)
        _changed_files(searched, daemon, access)
        broken_agent = inputs / "broken.toml"
        broken_agent.write_text(agent_file.read_text().replace("secret_key_file", "secret_key_fil"))
        searched.run("-m", "namesrv_broker_agent", "--config", str(broken_agent), code=2)
        crash = searched.run(
            "-c", CRASHING_AGENT, searched.server, code=1, env={"PYTHONASYNCIODEBUG": "1", **signing("broker")}
        )
        assert "at the end: " in crash
        assert (agent.stop(), broker.stop()) == (0, 0)
    daemon.stop()
    searched.run("-m", "namesrv", *flags, "--print-config")
    place = ("--listen-host=127.0.0.1", "--listen-port=0", "--http-listen=", "--data-dir", str(data_dir))
    crashing = ("-c", CRASHING_SERVER, *flags, *place, "--log-format=text", "--scan-interval-seconds=0.1")
    crash = searched.run(*crashing, code=70, env={"PYTHONASYNCIODEBUG": "1", "PYTHONDEVMODE": "1"})
    assert "at the end: [Settings(" in crash
    searched.run("-m", "namesrv", *flags, "--check-config")
    searched.printed += [*agent.lines, *broker.lines, *map(str, daemon.log)]

    outputs = {"printed": "\n".join(searched.printed).encode(), **written(tmp_path, {*inputs.iterdir()})}
    assert any(str(data_dir) in path for path in outputs)
    assert b"access_refused" in outputs["printed"]
    found = [
        (where, name, content[max(0, content.find(spelt) - 80) :][:200])
        for where, content in outputs.items()
        for name, secret in SECRETS.items()
        for spelt in spellings(secret)
        if spelt in content
    ]
    assert found == []


def _in_order(searched: Searched) -> None:
    """Successful requests of operators and clients."""
    env = signing("operator")
    for words in (
        *(
            "status",
            "brokers",
            "clusters",
            "topics",
            "route orders",
            "connections",
            "events",
            "explain orders",
            "whoami",
        ),
        *("config show", "kv put ns k v", "kv get ns k", "kv list ns", "bench --seconds 0.1 --topic orders"),
        *("wipe-write-perm broker-a -y", "add-write-perm broker-a -y", "config set deleteEmptyTopicEnable=false -y"),
    ):
        searched.ctl(*words.split(), "-o", "json", code=None, env=env)
    searched.ctl("whoami", env=signing("operator", "operator-next"))
    for command in (["produce", "--topic=bills", "hello"], ["consume", "--topic=bills"]):
        searched.run(str(EXAMPLE), *command, "--name-servers", searched.server, env=signing("broker"))

    settings = ClientSettings(
        name_servers=searched.server, access_key="reader", secret_key=SecretStr(SECRETS["reader"])
    )
    with SyncRouteClient(settings) as client:
        searched.printed += [str(settings), repr(client), str(client.route("orders"))]


def _refused(searched: Searched, daemon: Daemon) -> None:
    """Requests without permission, with a wrong secret, or with an incomplete configuration."""
    searched.ctl("kv", "put", "ns", "k", "w", code=1, env=signing("reader"))
    searched.ctl("whoami", code=1, env=signing("operator", "wrong"))
    searched.ctl("whoami", code=1, env=signing("unknown", "wrong"))
    searched.ctl("whoami", code=2, env={"NAMESRV_SECRET_KEY": SECRETS["wrong"]})
    searched.ctl("whoami", code=2, env={**signing("operator"), "NAMESRV_SECRET_KEY_FILE": "/nonexistent"})
    searched.run(
        str(EXAMPLE),
        "consume",
        "--topic=bills",
        "--name-servers",
        searched.server,
        code=1,
        env=signing("broker", "wrong"),
    )
    daemon.wait_for("access_refused", reason="mismatch")

    async def route() -> None:
        settings = ClientSettings(
            name_servers=searched.server, access_key="reader", secret_key=SecretStr(SECRETS["wrong"])
        )
        async with asyncio.timeout(GUARD_SECONDS), RouteClient(settings) as client:
            try:
                await client.route("orders")
            except RouteUnavailableError as error:
                searched.printed.append(str(error))

    asyncio.run(route())


def _changed_files(searched: Searched, daemon: Daemon, access: Path) -> None:
    """A wrong file is read by a running server, by a starting one, and by namesrvctl."""
    good = access.read_text()
    for count, text in enumerate(BROKEN_FILES, start=1):
        access.write_text(text)
        searched.ctl("access", "check", str(access), code=1)
        daemon.send_signal(signal.SIGHUP)
        daemon.wait_for("reload_refused", count=count)
    searched.run("-m", "namesrv", "--access", str(access), "--check-config", code=2)
    access.write_text(good)
    searched.ctl("access", "check", str(access))
    searched.ctl("access", "explain", "broker", "105", "--file", str(access))
    daemon.send_signal(signal.SIGHUP)
    daemon.wait_for("reloaded")
