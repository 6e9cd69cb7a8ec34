"""A server with TLS, and peers with and without TLS: real sockets, real processes."""

import asyncio
import contextlib
import http.client
import re
import signal
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest

from namesrv_broker_agent import AgentSettings, BrokerAgent, TopicConfig
from namesrv_client import ClientSettings, RouteClient
from namesrv_remoting.aio.server_protocols import ServerProtocols
from tests.support.certificates import Authority, Identity
from tests.support.daemon import Daemon, Start
from tests.support.fake_clock import GUARD_SECONDS
from tests.support.heartbeat_files import read_log
from tests.support.peer import Connect, Peer


@pytest.fixture
def ca(tmp_path: Path) -> Authority:
    """An authority that has certified `server` and `client`."""
    return Authority(tmp_path)


def flags(ca: Authority, mode: str = "enforcing", *others: str) -> list[str]:
    """The flags of a server with a certificate of this authority."""
    server = ca.issue("server")
    return [f"--tls-mode={mode}", f"--tls-cert-file={server.cert_file}", f"--tls-key-file={server.key_file}", *others]


def name_server(daemon: Daemon) -> str:
    """The server's address, as in a list of NameServers."""
    return f"127.0.0.1:{daemon.address[1]}"


def agent_of(daemon: Daemon, **settings: Any) -> BrokerAgent:
    """The agent of a master with one topic."""
    identity = AgentSettings(
        cluster_name="c1",
        broker_name="broker-a",
        broker_addr="10.0.0.1:10911",
        name_servers=name_server(daemon),
        **settings,
    )
    return BrokerAgent(identity, [TopicConfig("orders", 8, 8)], protocols=ServerProtocols())


def client_of(daemon: Daemon, **settings: Any) -> RouteClient:
    """A client without any cached route."""
    return RouteClient(ClientSettings(name_servers=name_server(daemon), **settings), protocols=ServerProtocols())


async def test_broker_and_client_meet_over_tls(start: Start, ca: Authority) -> None:
    """With TLS enforced, an agent registers and a client finds it, each with the authority's certificate alone."""
    daemon = start(*flags(ca), "--http-listen=127.0.0.1:0")

    async with asyncio.timeout(GUARD_SECONDS), agent_of(daemon, **ca.client()) as agent:
        await agent.registered()
        async with client_of(daemon, **ca.client()) as client:
            found = await client.route("orders")
            metrics = (await asyncio.to_thread(page, daemon, "/metrics"))[1]

    assert {it.broker_name: dict(it.broker_addrs) for it in found.data.broker_datas} == {
        "broker-a": {0: "10.0.0.1:10911"}
    }
    assert "\nnameserver_tls_connections 2.0\n" in metrics


def page(daemon: Daemon, path: str, ca: Authority | None = None, shown: Identity | None = None) -> tuple[int, str]:
    """The status and text of a page of its HTTP port, over TLS if an authority is named."""
    host, port = daemon.http_address
    connection = http.client.HTTPConnection(host, port, timeout=GUARD_SECONDS)
    if ca is not None:
        context = ssl.create_default_context(cafile=str(ca.ca_file))
        if shown is not None:
            context.load_cert_chain(shown.cert_file, shown.key_file)
        connection = http.client.HTTPSConnection(host, port, timeout=GUARD_SECONDS, context=context)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_http_port_over_tls(start: Start, ca: Authority) -> None:
    """Metrics and health over HTTPS contain the certificate's expiry; plain HTTP gets an error that names TLS."""
    daemon = start(*flags(ca, "off", "--http-tls", "--http-listen=127.0.0.1:0"))

    metrics = page(daemon, "/metrics", ca)[1]
    assert re.search(r"(?m)^nameserver_tls_certificate_expiry_seconds \d", metrics)
    # Handshakes at the HTTP port do not count.
    assert "\nnameserver_tls_handshake_wait_seconds_count 0.0\n" in metrics
    assert re.search(r"\[\+\] tls: certificate expires in \d+\.\d days\n", page(daemon, "/readyz?verbose", ca)[1])
    assert page(daemon, "/livez") == (400, "plain HTTP received, but this port speaks HTTPS only\n")


def test_http_port_has_its_own_client_authentication(start: Start, ca: Authority, tmp_path: Path) -> None:
    """The HTTP port requires client certificates only if its own setting does."""
    config = tmp_path / "namesrv.toml"
    config.write_text("")
    others = ("--tls-client-auth=require", f"--tls-ca-file={ca.ca_file}", "--http-tls", "--http-listen=127.0.0.1:0")
    daemon = start(*flags(ca, "enforcing", *others), "--config", str(config))
    assert page(daemon, "/livez", ca) == (200, "ok\n")

    config.write_text('http_tls_client_auth = "require"\n')
    daemon.send_signal(signal.SIGHUP)
    daemon.wait_for("reloaded")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        page(daemon, "/livez", ca)
    shown = ca.issue("collector", "collector.example")
    assert page(daemon, "/livez", ca, shown) == (200, "ok\n")
    assert '\nnameserver_http_requests_total{path="other",status="tls"} 1.0\n' in page(daemon, "/metrics", ca, shown)[1]


def serial_number(daemon: Daemon, ca: Authority) -> Any:
    """The serial number of the certificate on a new connection."""
    context = ssl.create_default_context(cafile=str(ca.ca_file))
    with (
        socket.create_connection(daemon.address, GUARD_SECONDS) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as wrapped,
    ):
        return (wrapped.getpeercert() or {})["serialNumber"]


@pytest.mark.slow
def test_certificate_is_replaced_while_running(start: Start, ca: Authority) -> None:
    """New connections get a replaced certificate without a signal; a broken one is logged and not used."""
    daemon = start(*flags(ca, "enforcing", "--http-listen=127.0.0.1:0"))
    first = serial_number(daemon, ca)
    context = ssl.create_default_context(cafile=str(ca.ca_file))
    with (
        socket.create_connection(daemon.address, GUARD_SECONDS) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as kept,
    ):
        ca.issue("server")
        daemon.wait_for("tls_certificate_changed")
        second = serial_number(daemon, ca)
        assert first != second

        key_file = ca.ca_file.parent / "server.key"
        key_file.write_text("not a key")
        problem = f"{key_file}: no private key"
        # Another reload may have come first, between the replacement of certificate and key.
        daemon.wait_for("tls_certificate_refused", error=problem)
        assert serial_number(daemon, ca) == second
        assert problem in page(daemon, "/readyz?verbose")[1]
        assert "\nnameserver_tls_certificate_refused 1.0\n" in page(daemon, "/metrics")[1]

        daemon.send_signal(signal.SIGHUP)
        daemon.wait_for("reload_refused")
        ca.issue("server")
        daemon.send_signal(signal.SIGHUP)
        daemon.wait_for("reloaded")
        assert serial_number(daemon, ca) not in {first, second}
        # The connection that was open all the time.
        assert Peer(kept).ask(105, {"topic": "orders"}).code == 17


def test_moving_to_tls_without_a_restart(start: Start, connect: Connect, ca: Authority, tmp_path: Path) -> None:
    """SIGHUP changes a server from plain text to permissive, to enforcing and back; open connections stay."""
    issued = ca.issue("server")
    place = f'tls_cert_file = "{issued.cert_file}"\ntls_key_file = "{issued.key_file}"\n'
    config = tmp_path / "namesrv.toml"

    def follow(mode: str, text: str = place) -> None:
        config.write_text(f'{text}tls_mode = "{mode}"\n')
        if mode != "off" or text != place:
            before = len(daemon.lines("reloaded"))
            daemon.send_signal(signal.SIGHUP)
            daemon.wait_for("reloaded", count=before + 1)

    follow("off")
    daemon = start("--config", str(config))
    first = connect(daemon)
    assert first.ask(105, {"topic": "orders"}).code == 17
    follow("permissive")
    assert serial_number(daemon, ca)
    second = connect(daemon)
    assert second.ask(105, {"topic": "orders"}).code == 17
    follow("enforcing")
    assert serial_number(daemon, ca)
    assert ((refused := connect(daemon).ask(105)).code, "requires TLS" in str(refused.remark)) == (1, True)
    assert [peer.ask(105, {"topic": "orders"}).code for peer in (first, second)] == [17, 17]
    follow("off", "")
    assert connect(daemon).ask(105, {"topic": "orders"}).code == 17
    with pytest.raises(ssl.SSLError):
        serial_number(daemon, ca)


def test_each_kind_of_refused_connection_has_a_line(start: Start, ca: Authority, tmp_path: Path) -> None:
    """Plain text, a missing certificate and a foreign certificate have separate lines in the audit trail."""
    daemon = start(*flags(ca, "enforcing", "--tls-client-auth=require", f"--tls-ca-file={ca.ca_file}"))
    others = Authority(tmp_path, "foreign")
    foreign, another = (others.issue(f"forged-{name}", f"{name}.example.com") for name in ("operators", "brokers"))

    def refused(shown: Identity | None) -> None:
        context = ssl.create_default_context(cafile=str(ca.ca_file))
        if shown is not None:
            context.load_cert_chain(shown.cert_file, shown.key_file)
        with (
            contextlib.suppress(ssl.SSLError, ConnectionError),
            socket.create_connection(daemon.address, GUARD_SECONDS) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as wrapped,
        ):
            # With TLS 1.3 a client receives the alert only when it reads.
            assert wrapped.recv(1) == b""

    peer = Peer(daemon.address)
    assert peer.ask(105, {"topic": "orders"}).code == 1
    peer.close()
    for shown in (None, foreign, another) * 3:
        refused(shown)
    assert daemon.stop() == 0

    lines = [line for line in read_log(daemon.data_dir / "audit") if line["event"] == "refusal"]
    causes = ["plain text received", "the peer shows no certificate", "operators.example.com", "brokers.example.com"]
    counts = [sum(line.get("repeated", 1) for line in lines if text in line["remark"]) for text in causes]
    assert counts == [1, 3, 3, 3]
    claimed = "(names in it, not verified: operators.example.com)"
    assert any(line["remark"].endswith(claimed) for line in lines)
