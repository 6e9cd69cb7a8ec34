"""Problems of broker groups, as `status` and `explain` report them."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from namesrv_client.ctl.output import lasting
from namesrv_remoting.bodies.extensions import LiveBroker
from namesrv_remoting.codes import MASTER_ID
from namesrv_remoting.group_health import GroupHealth, group_health

Severity = Literal["critical", "warning"]
# Cluster and broker name.
GroupKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem, with its consequence and the command that shows more."""

    severity: Severity
    kind: str
    # The broker group as `cluster/broker name`.
    subject: str
    # Duration of the problem, as far as the server reports it.
    since_seconds: float | None
    what: str
    consequence: str
    command: str

    def line(self) -> str:
        """The problem in a sentence, without the server's name."""
        return f"{self.severity}: {self.subject}: {self.what}; {self.consequence}; see `{self.command}`"

    def document(self) -> dict[str, Any]:
        """The members, for JSON and YAML."""
        return asdict(self)


def groups_of(brokers: Iterable[LiveBroker]) -> dict[GroupKey, list[LiveBroker]]:
    """Live brokers by their group, sorted by cluster and broker name."""
    groups: dict[GroupKey, list[LiveBroker]] = {}
    for broker in sorted(brokers, key=lambda one: (one.cluster, one.broker_name, one.broker_id)):
        groups.setdefault((broker.cluster, broker.broker_name), []).append(broker)
    return groups


def group_problem(key: GroupKey, brokers: Iterable[LiveBroker], affected: str) -> Problem | None:
    """The problem of a broker group; None for a healthy group.

    `affected` describes what depends on the group, such as "8 of 24 write queues of orders".
    """
    by_id = {broker.broker_id: broker for broker in brokers}
    health = group_health({number: _silence(broker) for number, broker in by_id.items()})
    if health is GroupHealth.HEALTHY:
        return None
    since = None
    if health is GroupHealth.WITHOUT_MASTER:
        what, effect = "no master is registered", f"producers cannot write to {affected}"
    else:
        since = by_id[MASTER_ID].age_seconds
        what = f"no heartbeat of the master for {lasting(since)}, while a slave sends them"
        effect = f"producers may fail to write to {affected}"
    cluster, name = key
    return Problem(
        "critical", health.value, f"{cluster}/{name}", since, what, effect, f"namesrvctl brokers --name {name}"
    )


def broker_problems(brokers: Iterable[LiveBroker]) -> list[Problem]:
    """The problems of the broker groups of one server, sorted by group."""
    found = []
    for key, group in groups_of(brokers).items():
        # Apache's server does not report the number of topics of a broker.
        topics = max(broker.topics or 0 for broker in group)
        problem = group_problem(key, group, f"its topics ({topics})" if topics else "its topics")
        if problem is not None:
            found.append(problem)
    return found


def lines_of(problems: Mapping[str, Iterable[Problem]]) -> list[str]:
    """A line for each problem, with the servers that have it; `problems` are by server."""
    first: dict[tuple[str, str], Problem] = {}
    servers: dict[tuple[str, str], list[str]] = {}
    for server, found in problems.items():
        for problem in found:
            key = problem.kind, problem.subject
            first.setdefault(key, problem)
            servers.setdefault(key, []).append(server)
    return [f"{', '.join(servers[key])}: {problem.line()}" for key, problem in first.items()]


def _silence(broker: LiveBroker) -> float | None:
    if broker.age_seconds is None or not broker.expiry_seconds:
        return None
    return broker.age_seconds / broker.expiry_seconds
