"""Rows as the report has them, with names and milliseconds."""

from datetime import UTC, datetime
from typing import Any

from tests.spark_jobs.reference.boots import Boot
from tests.spark_jobs.reference.exposure import ClientStaleness
from tests.spark_jobs.reference.lives import Life
from tests.spark_jobs.reference.numbers import milliseconds, whole_milliseconds
from tests.spark_jobs.reference.replay import Eviction

Row = dict[str, Any]


def interval_row(life: Life, clients: list[ClientStaleness], pulls: int) -> Row:
    """One life that was ended by an eviction."""
    evict = life.evict
    assert evict is not None
    removed_ms = wall_ms(life.boot, evict.at)
    return {
        "date": f"{datetime.fromtimestamp(removed_ms // 1000, UTC):%Y-%m-%d}",
        **_names(life),
        "agent_id": life.agent_id,
        "reason": life.reason,
        "first_ok_ms": None if life.first_ok is None else wall_ms(life.boot, life.first_ok),
        "last_ok_ms": wall_ms(life.boot, life.last_ok),
        "removed_ms": removed_ms,
        "beats": len(life.beats),
        "period_ms": milliseconds(life.period),
        "expiry_ms": None if life.expiry is None else milliseconds(life.expiry),
        "upper_ms": milliseconds(life.upper),
        "lower_ms": milliseconds(life.lower),
        "over_bound": life.is_over_bound,
        "false_eviction": life.is_false_eviction,
        "scan": evict.get("scan"),
        "evict_seq": evict.seq,
        "clients_exposed": len(clients),
        "clients_seen": sum(client.outcome == "seen" for client in clients),
        "exposed_pulls": pulls,
    }


def client_row(client: ClientStaleness) -> Row:
    """What one client saw of one eviction."""
    evict = client.life.evict
    assert evict is not None
    return {
        **_names(client.life),
        "reason": client.life.reason,
        "evict_seq": evict.seq,
        "client": client.client,
        "topic": client.topic,
        "outcome": client.outcome,
        "staleness_ms": milliseconds(client.staleness),
    }


def replayed_row(eviction: Eviction) -> Row:
    """One eviction of the replay under the logged settings."""
    beat = eviction.beat
    return {
        "boot_id": eviction.boot.boot,
        "cluster": beat.get("cluster"),
        "broker_name": beat.get("broker_name"),
        "broker_id": beat.get("broker_id"),
        "broker_addr": beat.get("broker_addr"),
        "scan": eviction.scan,
        "staleness_ms": milliseconds(eviction.staleness),
    }


def wall_ms(boot: Boot, at: int) -> int:
    """A moment as people know it."""
    return whole_milliseconds(boot.wall(at))


def _names(life: Life) -> Row:
    return {
        "nameserver": life.boot.nameserver,
        "boot_id": life.boot.boot,
        "cluster": life.broker.cluster,
        "broker_name": life.broker.broker_name,
        "broker_id": life.broker.broker_id,
        "broker_addr": life.broker.broker_addr,
    }
