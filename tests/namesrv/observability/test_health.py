"""The problems that one server knows, in its own response and in /readyz?verbose."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from namesrv.certificates import CrlSeconds
from namesrv.observability.health import HealthValues, crl_text, group_problems, groups_by_health, server_problems
from namesrv_remoting.bodies.extensions import ServerProblem
from namesrv_remoting.health import LEVELS, GroupHealth
from tests.support.http_peer import ask
from tests.support.in_process import InProcess, namesrv_in_process
from tests.support.namesrv_peer import MASTER, OTHER, SLAVE, Broker, registration

MIB = 1024 * 1024


def test_revocation_list_without_an_expiry_never_expires() -> None:
    """The time at which the next list is due is optional in a list."""
    assert crl_text(CrlSeconds(float("inf"), float("inf"))) == "revocation list never expires"


@pytest.mark.parametrize(
    ("state", "problems"),
    [
        (HealthValues(), []),
        (HealthValues(certificate_days=14.0), []),
        (
            HealthValues(certificate_days=13.9),
            [("certificate_expires", "expires in 13.9 days", ["certificate expires"])],
        ),
        (
            HealthValues(certificate_days=-1.5),
            [("certificate_expires", "expired 36.0 hours ago", ["certificate expired"])],
        ),
        (
            HealthValues(certificate_days=-2.5),
            [("certificate_expires", "expired 2.5 days ago", ["certificate expired"])],
        ),
        (HealthValues(crl=CrlSeconds(1_801.0, 0.0)), []),
        (
            HealthValues(crl=CrlSeconds(1_800.0, -1.0)),
            [("certificate_expires", "revocation list expires in 0.5 hours", ["revocation list expires"])],
        ),
        (
            HealthValues(certificate_days=13.9, crl=CrlSeconds(-43_200.0, -50_000.0)),
            [
                (
                    "certificate_expires",
                    "expires in 13.9 days; revocation list expired 12.0 hours ago",
                    ["certificate expires", "revocation list expired"],
                )
            ],
        ),
        (HealthValues(memory_bytes=80 * MIB, max_memory_bytes=100 * MIB), []),
        (
            HealthValues(memory_bytes=81 * MIB, max_memory_bytes=100 * MIB),
            [("memory_budget", "81 of 100 MiB in use")],
        ),
        (
            HealthValues("draining", "none yet", {"kv": "full", "audit": "stuck"}),
            [("server_not_ready", "draining"), ("disk_failing", "kv: full; audit: stuck", ["kv", "audit"])],
        ),
    ],
)
def test_problems_of_the_server_itself(state: HealthValues, problems: list[tuple[Any, ...]]) -> None:
    """Each limit is a problem only beyond its bound."""
    assert server_problems(state) == [ServerProblem(*one) for one in problems]


def test_groups_of_one_problem_are_listed_together() -> None:
    """At most 20 groups are named, and healthy ones are not; the kinds are those of the shared model."""
    names = [f"c/b-{number:02}" for number in range(22)]
    found = group_problems({GroupHealth.HEALTHY: ["c/x"], GroupHealth.WITHOUT_MASTER: names}, ["b-01", "b-00"])

    assert found == [
        ServerProblem("without_master", ", ".join(names[:20]) + " and 2 more"),
        ServerProblem("write_removed", "b-00, b-01"),
    ]
    assert {health.value for health in GroupHealth} - LEVELS.keys() == {"healthy"}


async def test_server_without_brokers_is_ready_and_reports_it(tmp_path: Path) -> None:
    """A new server waits for no broker; one that had brokers reports their absence only after its wait."""
    async with namesrv_in_process(tmp_path) as server:
        assert await problems_of(server) == [
            "no_brokers: each broker needs this server in its list of NameServers (namesrvAddr)"
        ]
        assert server.namesrv.boot.is_serving()
        await (await server.connect()).register(MASTER)
        assert await problems_of(server) == []
    async with namesrv_in_process(tmp_path) as server:
        (waiting,) = await problems_of(server)
        assert waiting.startswith("server_not_ready: waiting")
        await server.clock.advance(45)
        assert await problems_of(server) == [
            "no_brokers: there were some before the start: check their logs and the network"
        ]


async def problems_of(server: InProcess) -> list[str]:
    """The problems in the server's own report."""
    info = (await (await server.connect()).call(20002, spelling="native")).value
    return [f"{one['kind']}: {one['why']}" for one in info["problems"]]


@pytest.mark.settings(http_listen="127.0.0.1:0")
async def test_readyz_shows_the_problems(server: InProcess) -> None:
    """A server with problems of its brokers is ready; only the verbose page lists the problems."""
    master, slave = await server.connect(), await server.connect()
    await slave.register(SLAVE, registration("T", "U"))
    await master.register(MASTER, registration("T", "U"))
    await slave.register(OTHER, registration("T", "U"))
    await slave.call(205, {"brokerName": OTHER.name})
    await master.call(104, MASTER.ext)
    (address,) = server.controller.http.pages

    verbose, short = [await asyncio.to_thread(ask, address, f"/readyz{query}") for query in ("?verbose", "")]

    assert [line for line in verbose.text.splitlines() if line.startswith("[!]")] == [
        "[!] without_master: cluster-1/broker-a",
        "[!] write_removed: broker-b",
    ]
    assert (verbose.status, short.status, short.text) == (200, 200, "ok\n")


@pytest.mark.settings(http_listen="127.0.0.1:0")
async def test_name_of_a_broker_adds_no_line_to_readyz(server: InProcess) -> None:
    """Any peer may choose the name; control characters are escaped."""
    await (await server.connect()).register(Broker("x\nfailed\x1b[2J", 1), registration("T", "U"))
    (address,) = server.controller.http.pages

    verbose = await asyncio.to_thread(ask, address, "/readyz?verbose")

    assert verbose.text.splitlines()[-2:] == ["[!] without_master: cluster-1/x\\nfailed\\x1b[2J", "ok"]


async def test_group_that_changed_its_cluster_has_its_master(server: InProcess) -> None:
    """While it always has a broker, a group keeps the name of its first cluster, although its brokers name another."""
    peer = await server.connect()
    for cluster in ("cluster-1", "cluster-2"):
        for broker in (MASTER, SLAVE):
            await peer.register(broker._replace(cluster=cluster))

    assert await groups_by_health(server.namesrv) == {
        GroupHealth.HEALTHY: ["cluster-1/broker-a"],
        GroupHealth.WITHOUT_MASTER: [],
        GroupHealth.SILENT_MASTER: [],
    }
