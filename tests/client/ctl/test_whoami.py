"""The command `whoami`: the account that a server assigns to a request, and why."""

import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.certificates import Authority
from tests.support.ctl import NOT_SUPPORTED, at, ctl, one_server
from tests.support.fake_clock import FakeClock, until
from tests.support.namesrv_peer import Broker

FILE = """
[accounts.reader]
secrets = ["new-secret", "old-secret"]
may = ["route-read"]

[accounts.trusted]
access_key = "tk"
secrets = ["old-secret"]
trust_rocketmq_signatures = true
may = [{ access = "admin-read", clusters = ["c1", "c2"] }]

[accounts.neighbours]
networks = ["127.0.0.0/8"]
may = ["route-read", "broker-control"]
"""
FOREIGNERS = FILE.replace("127.0.0.0/8", "10.0.0.0/8")


def signing(key: str, secret: str) -> dict[str, str]:
    """The environment of a signing client."""
    return {"NAMESRV_ACCESS_KEY": key, "NAMESRV_SECRET_KEY": secret}


class MachineClock(FakeClock):
    """A fake clock with this machine's wall clock, which namesrvctl uses to sign."""

    def wall(self) -> float:
        return time.time()


@pytest.mark.parametrize(
    ("env", "account", "by", "may"),
    [
        ({}, "neighbours", "network", ["route-read", "broker-control"]),
        (signing("reader", "new-secret"), "reader", "native", ["route-read"]),
        (signing("tk", "old-secret"), "trusted", "native", ["admin-read; clusters c1, c2"]),
    ],
)
async def test_whoami_shows_the_account_and_its_source(
    tmp_path: Path, env: dict[str, str], account: str, by: str, may: list[str]
) -> None:
    """A signature takes precedence over the network."""
    async with one_server(tmp_path, access=FILE, clock=MachineClock()) as (_, where):
        done = await ctl(*at(where), "whoami", "-o", "json", env=env)
        shown = await ctl(*at(where), "whoami", env=env)

    (found,) = done.json["servers"]
    identity = found["identity"]
    assert identity.pop("peer").startswith("127.0.0.1:")
    assert identity == {"access": "enforce", "account": account, "by": by, "certificate_names": [], "may": may}
    assert shown.cells[1][:2] == [account, by]


@pytest.mark.parametrize(
    ("env", "remark"),
    [
        ({}, "request is not signed, and no account matches this address or certificate"),
        (
            signing("reader", "wrong-secret"),
            "access key 'reader' is unknown, or the request is not signed with its secret",
        ),
    ],
)
async def test_stranger_is_refused_with_the_reason(tmp_path: Path, env: dict[str, str], remark: str) -> None:
    """In observe mode the account is None instead."""
    async with one_server(tmp_path / "1", access=FOREIGNERS, clock=MachineClock()) as (_, where):
        refused = await ctl(*at(where), "whoami", env=env)
    assert (refused.code, refused.problems) == (1, [f"{where}: refused with code 16: {remark}"])

    observing = one_server(tmp_path / "2", access=FOREIGNERS, access_mode="observe", clock=MachineClock())
    async with observing as (_, where):
        observed = await ctl(*at(where), "whoami", "-o", "json", env=env)
        shown = await ctl(*at(where), "whoami", env=env)
    identity = observed.json["servers"][0]["identity"]
    assert (identity["account"], identity["by"], identity["access"]) == (None, None, "observe")
    assert shown.cells[1][0] == "anonymous"


async def test_open_server_assigns_no_account(tmp_path: Path) -> None:
    """A server without an access file ignores signatures; an Apache server does not support the request."""
    async with one_server(tmp_path) as (_, where), one_server(tmp_path / "apache", "rocketmq") as (_, apache):
        for env in ({}, signing("reader", "new-secret")):
            done = await ctl(*at(where), "whoami", "-o", "json", env=env)
            identity = done.json["servers"][0]["identity"]
            assert (identity["access"], identity["account"]) == ("open", None)
        other = await ctl(*at(apache), "whoami")
    assert other == (1, "", f"namesrvctl: {apache}: {NOT_SUPPORTED}\n")


async def test_reserved_names_are_listed(tmp_path: Path) -> None:
    """After a broker has left, its name and address are listed with account and remaining time."""
    text = FILE.replace('may = ["route-read", "broker-control"]', 'may = ["broker-control", "admin-read"]')
    async with one_server(tmp_path, access=text, clock=MachineClock()) as (server, where):
        peer = await server.connect()
        await peer.register(Broker())
        await server.hang_up(peer)
        await until(lambda: not server.namesrv.manager.tables.broker_live_table)
        shown = await ctl(*at(where), "access", "reserved")

    assert [cells[:4] for cells in shown.cells[1:]] == [
        ["name", "broker-a", "cluster-1", "neighbours"],
        ["address", "10.0.0.1:10911", "cluster-1", "neighbours"],
    ]


async def test_certificate_of_a_network_is_the_source(tmp_path: Path) -> None:
    """Networks of an account with certificates limit where it may be used; the certificate identifies it."""
    ca = Authority(tmp_path)
    tls: dict[str, Any] = {
        "tls_mode": "enforcing",
        "tls_client_auth": "require",
        "tls_ca_file": str(ca.ca_file),
        **ca.issue("server").server_settings,
    }
    mine = ca.issue("client", "billing.example.com")
    text = (
        '[accounts.billing]\ncertificates = ["billing.example.com"]\nnetworks = ["127.0.0.0/8"]\nmay = ["route-read"]\n'
    )
    env = {
        "NAMESRV_TLS": "true",
        "NAMESRV_TLS_CA_FILE": str(ca.ca_file),
        "NAMESRV_TLS_CERT_FILE": str(mine.cert_file),
        "NAMESRV_TLS_KEY_FILE": str(mine.key_file),
    }
    async with one_server(tmp_path / "data", access=text, clock=MachineClock(), **tls) as (_, where):
        done = await ctl(*at(where), "whoami", "-o", "json", env=env)

    identity = done.json["servers"][0]["identity"]
    assert (identity["account"], identity["by"]) == ("billing", "certificate")
    assert identity["certificate_names"] == ["billing.example.com"]
