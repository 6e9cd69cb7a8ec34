"""The dashboard and the alerts use existing metrics."""

import asyncio
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from namesrv.counters import Counters
from namesrv.settings.model import Settings
from namesrv_remoting.health import LEVELS, Kind
from tests.support.certificates import Authority
from tests.support.fake_clock import GUARD_SECONDS, until
from tests.support.http_peer import Scrape, scrape
from tests.support.in_process import namesrv_in_process
from tests.support.namesrv_peer import Broker

ROOT = Path(__file__).parents[2]
OPERATING = ROOT / "docs" / "operating.md"
DOCKER = ROOT / "docker"
DASHBOARD = DOCKER / "grafana" / "namesrv.json"
ALERTS = DOCKER / "prometheus" / "alerts.yml"
ALERT_TESTS = DOCKER / "prometheus" / "alerts.test.yml"

# labels added by Prometheus
ADDED_METRICS = {"up"}
ADDED_LABELS = {"job", "cluster", "namespace", "service", "instance", "le"}
VARIABLES = {"$job": "namesrv", "$instance": ".*", "$__rate_interval": "1m"}

needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")


def alert_expressions() -> Iterator[str]:
    """Expressions of the alerts."""
    for group in yaml.safe_load(ALERTS.read_text())["groups"]:
        for rule in group["rules"]:
            yield rule["expr"]


# Problems that only a client of several servers can see.
OF_CLIENTS: set[Kind] = {
    *("server_refuses", "tls_failed", "not_reported", "server_asked"),
    # An alert on a server that cannot be scraped covers one that hangs, and an alert on lost brokers a whole group.
    *("server_frozen", "group_gone"),
    # Alerts compare the number of brokers only.
    "disagreement",
}


def test_every_problem_has_an_alert() -> None:
    """Alerts carry the names and the levels of the shared health model."""
    rules = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
    found = [rule["labels"] for rule in rules if "problem" in rule["labels"]]

    assert {labels["problem"]: labels["severity"] for labels in found} == {
        kind: level for kind, level in LEVELS.items() if kind not in OF_CLIENTS
    }


def panels() -> list[dict[str, Any]]:
    """Panels of the dashboard with a query."""
    return [panel for panel in json.loads(DASHBOARD.read_text())["panels"] if panel["type"] != "row"]


def dashboard_expressions() -> Iterator[str]:
    """Expressions of the dashboard with its variables filled in."""
    dashboard = json.loads(DASHBOARD.read_text())
    found = [target["expr"] for panel in panels() for target in panel["targets"]]
    found += [annotation["expr"] for annotation in dashboard["annotations"]["list"]]
    for text in found:
        for name, value in VARIABLES.items():
            text = text.replace(name, value)  # noqa: PLW2901 - step by step
        yield text


def asked_for(expression: str) -> Iterator[tuple[str, set[str]]]:
    """(metric, selected labels) of an expression."""
    for name, selector in re.findall(r"\b((?:nameserver|process)_[a-z_]+|up)\b(?:\{([^}]*)\})?", expression):
        yield name, set(re.findall(r"([a-z_]+)\s*(?:=~|!=|!~|=)", selector))


def grouped_by(expression: str) -> set[str]:
    """Labels in an expression's `by`."""
    return {label.strip() for labels in re.findall(r"by \(([^)]*)\)", expression) for label in labels.split(",")}


@pytest.fixture
async def shown(tmp_path: Path) -> Scrape:
    """Metrics of a server after every event with a label of its own."""
    settings: dict[str, Any] = {"heartbeat_log_dir": str(tmp_path / "log"), "http_listen": "127.0.0.1:0"}
    quotas: dict[str, Any] = {"quotas": "observe", "quota_topics": 1}
    access = tmp_path / "access.toml"
    access.write_text("accounts = {}")
    settings |= {"access": str(access), "access_mode": "observe"}
    ca = Authority(tmp_path)
    tls: dict[str, Any] = {"tls_mode": "permissive", "tls_client_auth": "require", **ca.issue("server").server_settings}
    tls |= {"tls_ca_file": str(ca.ca_file), "tls_crl_file": str(ca.revocation_list())}
    async with namesrv_in_process(tmp_path / "data", **settings, **quotas, **tls) as server:
        peer, stranger = await server.connect(), await server.connect()
        await peer.register(Broker())
        stranger.send(b"GET / HTTP/1.1\r\n\r\n")
        await until(lambda: server.namesrv.counters.refusals)
        await asyncio.to_thread(scrape, server.controller.http.pages[0])
        # the first one is counted, and visible for a moment
        await server.clock.advance(1)
        return await asyncio.to_thread(scrape, server.controller.http.pages[0])


@pytest.mark.parametrize("source", [alert_expressions, dashboard_expressions])
async def test_queried_metrics_and_labels_exist(source: Any, shown: Scrape) -> None:
    """An alert on an unknown metric would never fire."""
    labels: dict[str, set[str]] = {}
    for name in shown.names:
        labels[name] = {label for found in shown.labels(name) for label in found}
    for expression in source():
        known: set[str] = set()
        asked = list(asked_for(expression))
        assert asked, expression
        for name, selected in asked:
            assert name in labels.keys() | ADDED_METRICS, expression
            assert selected <= labels.get(name, set()) | ADDED_LABELS, expression
            known |= labels.get(name, set())
        assert grouped_by(expression) <= known | ADDED_LABELS, expression


@pytest.mark.parametrize("source", [alert_expressions, dashboard_expressions])
def test_queried_reasons_exist(source: Any) -> None:
    """A query for an unknown reason would select nothing."""
    for expression in source():
        for selected in re.findall(r'reason=~?"([^"]*)"', expression):
            assert set(selected.split("|")) <= set(Counters().staleness)


def test_documented_metrics_exist(shown: Scrape) -> None:
    """The server shows every metric that the operators' manual names."""
    named = set(re.findall(r"`(nameserver_\w+)", OPERATING.read_text())) - set(Settings.model_fields)

    assert len(named) > 10
    assert named - shown.names - set(shown.families) == set()


def test_every_metric_is_on_the_dashboard(shown: Scrape) -> None:
    """Every counted metric is visible."""
    asked = {name for expression in dashboard_expressions() for name, _ in asked_for(expression)}
    seen = {name.removesuffix("_bucket").removesuffix("_total") for name in asked}

    # parts of a ratio, or useless in a graph
    assert {name for name in shown.families if name not in seen} == {
        "process_start_time_seconds",
        "process_virtual_memory_bytes",
    }


def test_tiles_have_values_of_now() -> None:
    """Over a range of time, a tile would show the last value of a server that is down, such as a green `ready`."""
    tiles = [panel for panel in panels() if panel["type"] == "stat"]

    assert len(tiles) == 4
    assert all(target.get("instant") and not target.get("range") for tile in tiles for target in tile["targets"])


def promtool(*words: object) -> None:
    """Run promtool, which must succeed."""
    command = ["promtool", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=GUARD_SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@needs_promtool
def test_rules_and_queries_are_valid(tmp_path: Path) -> None:
    """Generated series raise the expected alerts and no others, and the dashboard's expressions are valid PromQL."""
    rules = [{"record": f"panel:{number}", "expr": text} for number, text in enumerate(dashboard_expressions())]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))

    promtool("check", "rules", ALERTS)
    promtool("test", "rules", ALERT_TESTS)
    promtool("check", "rules", tmp_path / "rules.yml")


@pytest.mark.slow
@needs_promtool
def test_tile_of_a_server_that_is_down_is_red(tmp_path: Path) -> None:
    """The first tile is 1 for a ready server, and 0 once a scrape fails, when the metrics of the server end."""
    series = {"up": "1x4 0x4", "nameserver_ready": "1x4 stale", "nameserver_ready_without_brokers": "0x4 stale"}
    labels = '{instance="a", job="namesrv"}'
    tile = next(dashboard_expressions())
    tests = {
        "interval": "30s",
        "input_series": [{"series": f"{name}{labels}", "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {"expr": tile, "eval_time": at, "exp_samples": [{"labels": labels, "value": value}]}
            for at, value in (("1m", 1), ("4m", 0))
        ],
    }
    (tmp_path / "tile.yml").write_text(yaml.safe_dump({"evaluation_interval": "30s", "tests": [tests]}))

    promtool("test", "rules", tmp_path / "tile.yml")
