"""Commands on our pages that need more than being run, and those that are run elsewhere.

A command of our own that is not named here is run as it stands and has to end with 0.
"""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True, slots=True)
class Run:
    """How one command is run, and what it has to do."""

    code: int = 0
    # what it has to say; a command with `is_lasting` is ended when it has said it
    says: str = ""
    is_lasting: bool = False


# -- what stands on the pages -> what is there when the tests run ---------------------------------------------------

# The values in braces are known when the servers run.
STAND_INS: Final = MappingProxyType(
    {
        "ns1:9876": "{ns1}",
        "ns2:9876": "{ns2}",
        "ns3:9876": "{ns3}",
        "ns4:9876": "{ns3}",
        "ns1,ns2": "{ns1},{ns2}",
        "127.0.0.1:9877": "{http}",
        "/path/to/": "",
        "/etc/namesrv/": "",
        "/etc/rocketmq/": "",
        "19876": "0",
    }
)

# -- commands that are run here ---------------------------------------------------------------------------------------

# programs whose commands are run: ours, and those that only read
OWN: Final = ("namesrv ", "namesrvctl ", "namesrv-broker-agent ", "curl ", "python -m namesrv ", ".venv/bin/namesrv ")
_LISTENS: Final = '"event":"listening"'
RUNS: Final = MappingProxyType(
    {
        "namesrvctl status": Run(says="ready"),
        "namesrvctl watch orders bills": Run(says="bills", is_lasting=True),
        "namesrvctl brokers --watch 2s": Run(says="broker-a", is_lasting=True),
        "namesrvctl explain orders": Run(says="fine"),
        "namesrvctl route orders -o json | jq '.servers[0].routes.orders.queues'": Run(says='"readQueueNums"|read'),
        "namesrvctl -s 'ns1:9876;ns2:9876;ns3:9876' diff": Run(),
        "namesrvctl kv list NAMESPACE": Run(says="KEY"),
        "namesrv-broker-agent --config agent.toml": Run(says="registered", is_lasting=True),
        "namesrv-broker-agent --config /etc/namesrv/agent.toml": Run(says="registered", is_lasting=True),
        "python -m namesrv": Run(says=_LISTENS, is_lasting=True),
        "namesrv -c /path/to/namesrv.properties": Run(says=_LISTENS, is_lasting=True),
        "namesrv -c namesrv.properties": Run(says=_LISTENS, is_lasting=True),
        "namesrv --config namesrv.toml": Run(says=_LISTENS, is_lasting=True),
        "namesrv --print-config": Run(says="listen_port"),
        "namesrv --check-config": Run(says="configuration is valid"),
        "namesrv --help": Run(says="--listen-port"),
        ".venv/bin/namesrv --help": Run(says="--listen-port"),
        "curl -s http://127.0.0.1:9877/readyz?verbose": Run(says="ok|ready"),
        "curl -s http://127.0.0.1:9877/metrics": Run(says="nameserver_brokers"),
        # what make does after setting up
        "make run": Run(says=_LISTENS, is_lasting=True),
        "make run ARGS='--listen-port 19876'": Run(says=_LISTENS, is_lasting=True),
    }
)
# what the last line of a make target runs, as make says it
OF_MAKE: Final = ("make run",)

# -- commands that are run elsewhere: by this file, which has to be there ---------------------------------------------

_QUICK_START: Final = "tests/journeys/test_quick_start.py"
_PACKAGING: Final = "tests/test_packaging.py"
_REPORT: Final = "tests/spark_jobs/test_report.py"
_CLUSTER: Final = "tests/spark_jobs/test_standalone_cluster.py"
_IMAGES: Final = "docker/check/buildah.sh"
_ON_HOSTS: Final = "docker/check/hosts.sh"
_COMPOSE: Final = "tests/docker/test_compose.py"
_UNITS: Final = "docker/check/systemd.sh"
_MIGRATION: Final = "tests/interop/test_java_client_migration.py"
_RESTART: Final = "tests/netns/test_rolling_restart.py"
ELSEWHERE: Final = MappingProxyType(
    {
        ".venv/bin/namesrv-broker-agent --config broker_agent/examples/agent.toml": _QUICK_START,
        ".venv/bin/namesrvctl brokers": _QUICK_START,
        ".venv/bin/namesrvctl route orders": _QUICK_START,
        ".venv/bin/namesrvctl watch orders": _QUICK_START,
        "make test": ".ci/run",
        "make test ARGS='-k eviction'": "Makefile",
        ".venv/bin/python -m pytest tests/netns": "tests/netns/conftest.py",
        "make test-all": "Makefile",
        "make test PYTHON=python3.12": "locks/install.sh",
        "make mutation": "tools/mutation.sh",
        "make mutation MUTANTS=6000": "tools/mutation.sh",
        "make test-rest": ".ci/run",
        "make lint": ".ci/run",
        "make check": ".ci/run",
        # each measures for minutes; that their arguments are understood is seen here
        "make bench": "benchmarks/__main__.py",
        "make bench ARGS=--quick": "benchmarks/__main__.py",
        "make bench ARGS='--only pulls heartbeats'": "benchmarks/__main__.py",
        "make bench ARGS=--list": "tests/benchmarks/test_main.py",
        "make bench ARGS='--json figures.json'": "benchmarks/__main__.py",
        "make bench ARGS='--write docs/benchmarks.md'": "benchmarks/__main__.py",
        "python -m benchmarks --only client": "benchmarks/__main__.py",
        "python -m benchmarks --write": "tests/benchmarks/test_figures.py",
        "make abuse": "benchmarks/abuse/__main__.py",
        "make abuse ARGS=--short": "tests/abuse/test_abuse.py",
        "make abuse ARGS='--only lists watches'": "benchmarks/abuse/__main__.py",
        "make abuse ARGS=--list": "tests/benchmarks/test_abuse.py",
        "make abuse ARGS='--json abuse.json'": "benchmarks/abuse/__main__.py",
        "make abuse ARGS='--write docs/abuse.md'": "benchmarks/abuse/__main__.py",
        "make fuzz": "tests/fuzz/test_pure_layers.py",
        "make lock": _PACKAGING,
        "make setup": _PACKAGING,
        "make demo": "tests/demo/test_demo.py",
        "pip install '.[server]'": _PACKAGING,
        "pip install 'namesrv[ctl]'": _PACKAGING,
        "pip wheel --no-deps .": _PACKAGING,
        "python -m tests.docs.generated": "tests/docs/test_operating.py",
        "make interop": ".ci/run",
        "make interop ARGS='-k migration'": _MIGRATION,
        "mqadmin clusterList -n ns1:9876": _MIGRATION,
        "mqadmin updateNamesrvConfig": "tests/interop/test_mqadmin.py",
        "mqadmin getNamesrvConfig": "tests/interop/test_mqadmin.py",
        # it takes ten minutes; that its arguments are understood is seen here
        "make bench-peers": "benchmarks/peers/__main__.py",
        "make bench-peers ARGS=--quick": "benchmarks/peers/__main__.py",
        "make bench-peers ARGS='--only pulls'": "benchmarks/peers/__main__.py",
        "make bench-peers ARGS='--write docs/benchmarks-peers.md'": "benchmarks/peers/__main__.py",
        "systemctl restart namesrv": _RESTART,
        "systemctl stop namesrv": _RESTART,
        "systemctl reload namesrv": "tests/namesrv/server/test_reload.py",
        # Spark takes a minute for each; that their arguments are understood is seen here
        "namesrv-staleness heartbeats/ --out report": _REPORT,
        "namesrv-staleness 'heartbeats/dt=2026-03-*' --since 2026-03-01T07:00 --cluster c1 --out report": _REPORT,
        "namesrv-staleness heartbeats/ --out report --what-if 'expiry=20,40 scan=5 poll=10,30 phi=8'": _REPORT,
        "namesrv-staleness heartbeats/ --out report --fail-if 'p99>170' --fail-if 'false>0' --max-bad-ratio 0.001": (
            "tests/spark_jobs/test_gates.py"
        ),
        "namesrv-staleness heartbeats/ --out report --redact -o json": _REPORT,
        "namesrv-staleness heartbeats/ --out report --follow": "tests/spark_jobs/test_follow.py",
        "namesrv-staleness heartbeats/ --out /shared/report --master spark://host:7077 "
        "--conf spark.executor.memory=4g": _CLUSTER,
        "spark-submit --master spark://host:7077 --py-files dist/namesrv_spark_jobs.zip spark_jobs/stale_routes.py "
        "heartbeats/ --out /shared/report": _CLUSTER,
        "namesrv-staleness --help": "tests/spark_jobs/test_cli.py",
        "make spark-zip": _CLUSTER,
        "python -m namesrv_spark_jobs.command.submit": _CLUSTER,
        "make setup-spark": "spark_jobs/setup_spark.sh",
        "make spark-data": "tests/spark_jobs/test_generate.py",
        "pip install 'namesrv[spark]'": _PACKAGING,
        # a machine without a Docker engine builds, starts and checks all of it another way
        "make docker-check": "docker/check/all.sh",
        "docker build --file docker/namesrv.Dockerfile --tag namesrv:local .": _IMAGES,
        "docker build --file docker/broker-agent.Dockerfile --tag namesrv-broker-agent:local .": _IMAGES,
        "docker build --file docker/spark.Dockerfile --tag namesrv-staleness:local .": _IMAGES,
        "docker run --detach --name namesrv --read-only --tmpfs /tmp --cap-drop ALL --security-opt no-new-privileges "
        "--volume namesrv-data:/var/lib/namesrv --publish 9876:9876 --stop-timeout 30 namesrv:local": _ON_HOSTS,
        "docker stop": _ON_HOSTS,
        "docker compose config": _COMPOSE,
        "docker compose --file docker/compose.yml up --build --detach": _COMPOSE,
        "docker compose --file docker/compose.yml ps": _COMPOSE,
        "docker compose --file docker/compose.yml logs --follow consumer": _COMPOSE,
        "docker compose --file docker/compose.yml kill broker-a": _COMPOSE,
        "docker compose --file docker/compose.yml --profile report run --rm report": _COMPOSE,
        "docker compose --file docker/compose.yml cp spark-master:/report/latest report": _COMPOSE,
        "docker compose --file docker/compose.yml down --volumes": _COMPOSE,
        "python3 -m venv /opt/namesrv-0.1.0": _UNITS,
        "ln -sfn /opt/namesrv-0.1.0 /opt/namesrv": _UNITS,
        "/opt/namesrv/bin/python -m pip install --require-hashes --requirement locks/run.txt": _UNITS,
        "/opt/namesrv/bin/python -m pip install --no-deps --no-build-isolation .": _UNITS,
        "install -D -m 644 docker/systemd/namesrv.sysusers /usr/lib/sysusers.d/namesrv.conf": _UNITS,
        "install -D -m 644 docker/systemd/namesrv.tmpfiles /usr/lib/tmpfiles.d/namesrv.conf": _UNITS,
        "systemd-sysusers namesrv.conf": _UNITS,
        "systemd-tmpfiles --create namesrv.conf": _UNITS,
        "install -m 640 -g namesrv docker/systemd/namesrv.env docker/systemd/staleness.env docker/systemd/agent.toml "
        "/etc/namesrv/": _UNITS,
        "install -m 644 docker/systemd/*.service docker/systemd/*.timer /etc/systemd/system/": _UNITS,
        "systemctl daemon-reload": _UNITS,
        "systemctl enable --now namesrv.service": _UNITS,
        "systemctl start": _UNITS,
        "systemctl reload": _UNITS,
    }
)
