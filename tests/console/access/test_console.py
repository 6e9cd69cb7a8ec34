"""A console with access control: the login page, the menu, and the command line."""

import gzip
import io
import json
import ssl
import sys
from pathlib import Path

import httpx2
import pytest

from namesrv_console.access.settings import AccessSettings
from namesrv_console.cli import main
from tests.support.certificates import Authority
from tests.support.console import console
from tests.support.console_access import HTML, PASSWORD, fields, write_users
from tests.support.fake_clock import passing
from tests.support.in_process import namesrv_in_process
from tests.support.printing_process import PatternProcess


async def test_console_shows_nothing_before_sign_in(tmp_path: Path) -> None:
    """The login page shows nothing of the servers; then the menu names the user, who can sign out."""
    access = AccessSettings(users=write_users(tmp_path / "users"))
    async with namesrv_in_process(tmp_path) as server, console(server.clock, server.where, access=access) as shown:
        await passing(server.clock, lambda: shown.console.observed.cluster.servers[0].is_reachable is True)
        asked = await shown.http.get("/", headers=HTML)
        assert (asked.status_code, asked.headers["location"]) == (303, "/login")
        assert (await shown.http.get("/live", params={"of": "/"})).status_code == 401

        page = await shown.text("/login?next=%2F%3Fx")
        assert server.where not in page
        assert '<html lang="zh"' in await shown.text("/login", **{"accept-language": "zh-CN"})
        sent = await shown.http.get("/preferences", params={"language": "en", "back": "/login?next=/x"})
        assert (sent.status_code, sent.headers["location"]) == (303, "/login?next=/x")
        form = fields(page)
        wrong = await shown.http.post("/login", data={**form, "name": '"><script>', "password": "x"})
        assert wrong.status_code == 401
        assert "Unknown user or wrong password." in wrong.text
        assert "<script>" not in wrong.text
        done = await shown.http.post("/login", data={**form, "name": "vera", "password": f"{PASSWORD} of vera"})
        assert (done.status_code, done.headers["location"]) == (303, "/?x")

        page = await shown.text("/")
        assert server.where in page
        assert "<bdi>vera</bdi> (viewer)" in page
        assert (await shown.http.post("/logout", data={"csrf": fields(page)["csrf"]})).status_code == 303
        assert (await shown.http.get("/")).status_code == 401


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--listen", "0.0.0.0:0"], "listening on '0.0.0.0', beyond loopback, without users"),
        (["--users", "missing"], "missing: no such file or directory"),
        (["--http-tls-cert-file", "missing"], "missing: no such file or directory"),
        (["--trusted-proxy", "10.0.0.1/8"], "namesrv-console: --trusted-proxy: '10.0.0.1/8': "),
        (["--public-url", "x", "--viewer", "*"], "namesrv-console: --public-url: 'x': not a URL"),
        (["passwd", "missing", "olga", "--delete"], "missing: no such file or directory"),
    ],
)
def test_command_refuses_to_start(flags: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The command ends before it listens, with the reason in one line."""
    assert main(flags) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert message in line


def served_certificate(url: str) -> str:
    """The certificate of a new connection, as PEM."""
    at = httpx2.URL(url)
    return ssl.get_server_certificate((at.host, at.port or 443))


def test_https_with_a_user_that_passwd_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user that `passwd` added signs in over HTTPS, and the sign-in is a line of the audit trail.

    A renewed certificate is used once its key is there.
    """
    authority, users, trail = Authority(tmp_path), tmp_path / "users", tmp_path / "trail"
    issued = authority.issue("console")
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{PASSWORD}\n"))
    assert main(["passwd", str(users), "olga", "--role", "operator"]) == 0

    flags = [f"--http-tls-cert-file={issued.cert_file}", f"--http-tls-key-file={issued.key_file}", "--actions"]
    flags += [f"--users={users}", f"--audit-log-dir={trail}", "--listen=127.0.0.1:0", "--server=127.0.0.1:9"]
    context = ssl.create_default_context(cafile=str(authority.ca_file))
    with PatternProcess([sys.executable, "-m", "namesrv_console", *flags]) as process:
        url = process.wait_for("namesrv-console: https://").partition(": ")[2]
        with httpx2.Client(base_url=url, verify=context, trust_env=False) as client:
            form = fields(client.get("/login").text)
            assert client.post("/login", data={**form, "name": "olga", "password": "guess"}).status_code == 401
            done = client.post("/login", data={**form, "name": "olga", "password": PASSWORD})
            assert (done.status_code, done.headers["location"]) == (303, "/")
            assert "<bdi>olga</bdi> (operator)" in client.get("/").text

        before = served_certificate(url)
        key = issued.key_file.read_bytes()
        authority.issue("console")
        renewed = issued.key_file.read_bytes()
        issued.key_file.write_bytes(key)
        assert served_certificate(url) == before
        process.wait_for("certificate_refused")
        issued.key_file.write_bytes(renewed)
        assert served_certificate(url) in issued.cert_file.read_text()
        process.stop()
    [path] = trail.glob("dt=*/hour=*/console-*")
    # The file is closed by then; its compression may still be under way.
    text = path.read_bytes() if path.suffix == ".open" else gzip.decompress(path.read_bytes())
    lines = [json.loads(line) for line in text.splitlines()]
    assert [(it["event"], it.get("account"), it.get("reason")) for it in lines] == [
        ("start", None, None),
        ("refusal", "olga", "password"),
        ("sign_in", "olga", None),
        ("stop", None, None),
    ]
