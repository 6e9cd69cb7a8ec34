"""A real Prometheus finds NameServers and brokers by `/sd/prometheus`, and scrapes them."""

import json
import signal
import urllib.parse
from pathlib import Path
from typing import Any, Final

import pytest

from tests.interop.peers.broker import Broker
from tests.interop.peers.waiting import until, until_equal
from tests.support.daemon import Daemon
from tests.support.http_peer import ask
from tests.support.ports import free_port
from tests.support.printing_process import Process

pytestmark = pytest.mark.needs("java", "javac", "mvn", "prometheus")

_CONFIG: Final = """
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
  - job_name: rocketmq
    http_sd_configs:
      - {{url: "http://127.0.0.1:{port}/sd/prometheus", refresh_interval: 1s}}
    relabel_configs:
      - {{source_labels: [__meta_namesrv_role], target_label: role}}
      - {{source_labels: [__meta_namesrv_cluster], target_label: cluster}}
      - {{source_labels: [__meta_namesrv_broker_name], target_label: broker}}
      - {{source_labels: [__meta_namesrv_broker_id], target_label: id}}
"""


class Prometheus(Process):
    """Prometheus with the targets of a NameServer, as a context manager."""

    def __init__(self, home: Path, discovery_port: int) -> None:
        home.mkdir()
        config = home / "prometheus.yml"
        config.write_text(_CONFIG.format(port=discovery_port), encoding="utf-8")
        self._address = ("127.0.0.1", free_port())
        listen = "--web.listen-address={}:{}".format(*self._address)
        super().__init__(
            ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={home / 'data'}", listen], home=home
        )

    def targets(self) -> dict[str, dict[str, str]]:
        """The labels of each scraped target by its address, without the job's."""
        try:
            targets = self._get("/api/v1/targets?state=active")["activeTargets"]
        except ConnectionError:  # Prometheus does not listen yet.
            return {}
        return {
            target["labels"].pop("instance"): {**target["labels"], "health": target["health"]} for target in targets
        }

    def query(self, expression: str) -> dict[str, float]:
        """The current value of an expression by the role of its target."""
        result = self._get(f"/api/v1/query?query={urllib.parse.quote(expression)}")["result"]
        return {series["metric"]["role"]: float(series["value"][1]) for series in result}

    def _get(self, target: str) -> Any:
        response = ask(self._address, target)
        assert response.status == 200, response
        return json.loads(response.body)["data"]


def test_prometheus_scrapes_name_servers_and_brokers(tmp_path: Path) -> None:
    """The targets are the listed NameServers and the exporters of registered brokers, and follow both."""
    port, metrics_port, exporter_port = free_port(), free_port(), free_port()
    hosts = ("127.0.0.1", "127.0.0.2")
    settings = tmp_path / "namesrv.toml"
    settings.write_text(f'name_servers = "{hosts[0]}:{port}"\n', encoding="utf-8")
    flags = (f"--config={settings}", f"--listen-port={port}", f"--broker-metrics-target={{host}}:{exporter_port}")

    def daemon(host: str) -> Daemon:
        return Daemon(tmp_path / host, *flags, f"--listen-host={host}", f"--http-listen={host}:{metrics_port}")

    exporter = {
        "metricsExporterType": "PROM",
        "metricsPromExporterHost": "127.0.0.1",
        "metricsPromExporterPort": exporter_port,
    }
    name_server_up = {"job": "rocketmq", "role": "nameserver", "health": "up"}
    expected = {f"127.0.0.1:{metrics_port}": name_server_up}
    broker_up = {"job": "rocketmq", "role": "broker", "cluster": "DefaultCluster", "broker": "broker-a", "id": "0"}
    expected_broker = {f"127.0.0.1:{exporter_port}": {**broker_up, "health": "up"}}
    with (
        daemon(hosts[0]) as first,
        daemon(hosts[1]) as second,
        Broker(tmp_path / "broker", [first.listening().where], settings=exporter) as broker,
        Prometheus(tmp_path / "prometheus", metrics_port) as prometheus,
    ):
        broker.booted()
        until_equal(expected | expected_broker, prometheus.targets)
        until(lambda: prometheus.query("rocketmq_broker_permission") == {"broker": 6})
        until(lambda: prometheus.query("sum by (role) (nameserver_brokers)") == {"nameserver": 1})

        settings.write_text(f'name_servers = "{";".join(f"{host}:{port}" for host in hosts)}"\n', encoding="utf-8")
        second.listening()
        first.send_signal(signal.SIGHUP)
        expected[f"127.0.0.2:{metrics_port}"] = name_server_up
        until_equal(expected | expected_broker, prometheus.targets)

        broker.stop()
        until_equal(expected, prometheus.targets)
