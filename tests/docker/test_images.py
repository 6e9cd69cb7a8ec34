"""The health check of the images."""

import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from docker import healthcheck
from namesrv.settings.model import Settings
from tests.docker.commands import run
from tests.support.certificates import Authority
from tests.support.daemon import Daemon
from tests.support.ipv6 import can_use_ipv6


def health_check(*path: str, **environ: str) -> tuple[int, str]:
    """Exit code and output of the images' health check."""
    done = run(healthcheck.main, *path, environ=environ)
    return done.code, done.out


@pytest.mark.parametrize("is_required", [False, True])
def test_health_check_over_tls(tmp_path: Path, is_required: bool) -> None:
    """The certificate's name is not checked, and a client certificate is presented where HTTPS requires one."""
    ca = Authority(tmp_path)
    issued = ca.issue("server", "namesrv.example")
    tls = (f"--tls-cert-file={issued.cert_file}", f"--tls-key-file={issued.key_file}", f"--tls-ca-file={ca.ca_file}")
    required = ("--http-tls-client-auth=require",) if is_required else ()
    with Daemon(tmp_path / "data", "--http-listen", "127.0.0.1:0", "--http-tls", *tls, *required) as daemon:
        at = {"NAMESRV_HTTP_LISTEN": "{}:{}".format(*daemon.http_address), "NAMESRV_HTTP_TLS": "true"}
        shown = {"NAMESRV_TLS_CERT_FILE": str(issued.cert_file), "NAMESRV_TLS_KEY_FILE": str(issued.key_file)}
        if is_required:
            assert health_check(**at)[0] == 1
            assert health_check(**at, NAMESRV_HTTP_TLS_CLIENT_AUTH="require")[0] == 1
            at |= {"NAMESRV_HTTP_TLS_CLIENT_AUTH": "require"} | shown
        assert health_check(**at) == (0, "")
        assert health_check(**{**at, "NAMESRV_HTTP_TLS": ""})[0] == 1


def test_health_check_reads_words_as_the_server_does(tmp_path: Path) -> None:
    """A server that serves HTTPS by its environment is not checked over plain HTTP."""
    issued = Authority(tmp_path).issue("server", "namesrv.example")
    tls = (f"--tls-cert-file={issued.cert_file}", f"--tls-key-file={issued.key_file}")
    with Daemon(tmp_path / "data", "--http-listen", "127.0.0.1:0", *tls, environ={"NAMESRV_HTTP_TLS": "on"}) as daemon:
        listen = "{}:{}".format(*daemon.http_address)

        for word in ("1", "t", "y", "yes", "on", "TRUE"):
            assert Settings.model_validate({"data_dir": tmp_path, **issued.server_settings, "http_tls": word}).http_tls
            assert health_check(NAMESRV_HTTP_LISTEN=listen, NAMESRV_HTTP_TLS=word) == (0, ""), word


def test_health_check_of_a_port_without_http() -> None:
    """A greeting of another protocol is a failure with a reason."""
    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor() as threads:

        def greet() -> None:
            peer, _ = listening.accept()
            with peer:
                peer.sendall(b"220 ready\r\n")

        greeted = threads.submit(greet)
        port = listening.getsockname()[1]
        code, output = health_check(NAMESRV_HTTP_LISTEN=f"127.0.0.1:{port}")
        greeted.result()

    assert (code, output) == (1, f"http://127.0.0.1:{port}/livez: 220 ready\n")


def test_health_check_of_a_server(tmp_path: Path) -> None:
    """The check succeeds while the server serves, and prints the reason of a failure."""
    with Daemon(tmp_path, "--http-listen", "127.0.0.1:0") as daemon:
        port = daemon.http_address[1]
        listen = f"0.0.0.0:{port}"

        assert health_check(NAMESRV_HTTP_LISTEN=listen) == (0, "")
        assert health_check("/readyz", NAMESRV_HTTP_LISTEN=listen) == (0, "")
        code, output = health_check("/nowhere", NAMESRV_HTTP_LISTEN=listen)
        assert code == 1
        assert output.startswith(f"http://127.0.0.1:{port}/nowhere: HTTP Error 404")
        daemon.stop()
        code, output = health_check(NAMESRV_HTTP_LISTEN=listen)
        assert code == 1
        assert "refused" in output


def test_health_check_without_http(tmp_path: Path) -> None:
    """If health and metrics are off, the server is healthy while its port for brokers and clients is open."""
    everywhere = ["0.0.0.0", *["::"] * can_use_ipv6()]
    with Daemon(tmp_path, "--http-listen", "", "--listen-host", ",".join(everywhere)).listening() as daemon:

        def checks() -> list[tuple[int, str]]:
            environ = {"NAMESRV_HTTP_LISTEN": "", "NAMESRV_LISTEN_PORT": str(daemon.address[1])}
            hosts = [*everywhere, "127.0.0.1, 127.0.0.2"]
            return [health_check("/readyz", **environ, NAMESRV_LISTEN_HOST=host) for host in hosts]

        assert {*checks()} == {(0, "")}
        daemon.stop()
        assert {(code, "refused" in output) for code, output in checks()} == {(1, True)}
