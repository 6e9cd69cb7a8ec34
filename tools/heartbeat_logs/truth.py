"""The truth about a log: a line for each death, with its removal on each server and the exposed clients."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from tools.heartbeat_logs.boots import Boot
from tools.heartbeat_logs.lines import milliseconds
from tools.heartbeat_logs.routes import Removal
from tools.heartbeat_logs.world import Broker, World


def removal_record(boot: Boot, nameserver: str, removal: Removal) -> dict[str, Any]:
    """The record of one server's removal; all times are true wall time."""
    eviction = removal.eviction
    return {
        "death": None if eviction.death is None else eviction.death.number,
        **_names(eviction.broker),
        "nameserver": nameserver,
        "boot_id": boot.boot_id,
        "reason": eviction.reason,
        "last_ok_ms": milliseconds(eviction.last_ok),
        "removed_ms": milliseconds(eviction.at),
        "clients": [
            {
                "client": exposure.client,
                "topic": exposure.topic,
                "outcome": exposure.outcome,
                "at_ms": None if exposure.at is None else milliseconds(exposure.at),
            }
            for exposure in removal.exposures
        ],
    }


def truth_lines(world: World, removals: Iterable[dict[str, Any]]) -> Iterator[str]:
    """The lines of _truth.jsonl: deaths in order, then removals without a death."""
    by_death: dict[int | None, list[dict[str, Any]]] = defaultdict(list)
    for removal in removals:
        by_death[removal["death"]].append(removal)
    for broker, death in world.deaths():
        agents = [process.agent_id for process in broker.processes if process.start <= death.at <= process.end]
        record = {
            "death": death.number,
            "kind": death.kind.value,
            "at_ms": milliseconds(death.at),
            "back_ms": milliseconds(death.back),
            **_names(broker),
            "agent_id": agents[0] if agents else None,
            "removals": by_death[death.number],
        }
        yield json.dumps(record) + "\n"
    for removal in by_death[None]:
        yield json.dumps({"death": None, "kind": "missed_beats", "removals": [removal]}) + "\n"


def _names(broker: Broker) -> dict[str, Any]:
    return {
        "cluster": broker.cluster,
        "broker_name": broker.name,
        "broker_id": broker.broker_id,
        "broker_addr": broker.addr,
    }
