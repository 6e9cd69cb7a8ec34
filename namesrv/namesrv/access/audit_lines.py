"""The lines of the audit trail, made in the thread that writes them.

Names come from peers, and there may be very many of them: all are cut, and of many the first are named.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, NamedTuple

from namesrv.access.revocation import Revoked
from namesrv.routeinfo.records import (
    Alike,
    BrokerAddrInfo,
    BrokerLiveInfo,
    Evicted,
    QueueRow,
    Registered,
    RouteChanged,
    WriteWiped,
    queues_of,
)
from namesrv.routeinfo.tables import difference
from namesrv_remoting.access import AccessFile, Account
from namesrv_runtime.line_log import Encoder, Item, encoded

# of a line: topics, and queues of a topic
_NAMED_TOPICS: Final = 20
_NAMED_QUEUES: Final = 10
# of a change of the access file
_NAMED_ACCOUNTS: Final = 100
_SHOWN_CHARACTERS: Final = 256
# What a request may be about. Everything else in its header stays out: credentials are among it.
SUBJECTS: Final = ("clusterName", "cluster", "brokerName", "brokerAddr", "brokerId", "topic", "namespace", "key")


class Change(NamedTuple):
    """What a request changed, or the server itself for a cause."""

    request: str | None
    who: Mapping[str, Any]
    changes: Sequence[Any]
    # the account of the request, or without one the network of its peer; "" for changes of the server itself
    source: str = ""


class RepeatedChange(NamedTuple):
    """Further changes of one source to one broker: how many, their times (wall clock), and the last of them."""

    last: Change
    times: int
    first_at: float
    last_at: float


class Refusal(NamedTuple):
    """What was refused, to whom, and why; its texts are cut already, since very many may wait for a slow disk."""

    request: str
    who: Mapping[str, Any]
    reason: str
    remark: str
    # what the request named, of SUBJECTS
    about: Mapping[str, str] = {}
    # so many of the kind since the line before
    times: int = 1
    is_repeated: bool = False
    # nothing was refused: the rules are only observed
    is_observed: bool = False


class KVChanged(NamedTuple):
    """A value of the key-value configuration."""

    namespace: str
    key: str
    before: str | None
    after: str | None


class AccessFileChanged(NamedTuple):
    """The accounts that a server goes by."""

    before: AccessFile
    after: AccessFile


class SettingChanged(NamedTuple):
    """The value of a setting."""

    name: str
    before: object
    after: object


@dataclass(slots=True)
class AuditLines(Encoder):
    """Makes the lines of one boot."""

    nameserver: str
    boot_id: str
    # of the last line
    seq: int = 0

    def line(self, item: Item) -> bytes:
        """The line of an item, with its end; empty if all that changed was nothing."""
        what = item.what
        if isinstance(what, Change):
            changes = [change for each in what.changes for change in _described(each)]
            if not changes:
                return b""
            return self._line(item, {**_changed(what), "changes": changes})
        if isinstance(what, RepeatedChange):
            return self._line(item, _repeated(what))
        if isinstance(what, Refusal):
            return self._line(item, _refused(what))
        return self._line(item, what)

    def opened(self, item: Item) -> bytes:
        """The first line of every file but the first one."""
        return self._line(item, {"event": "opened"})

    def dropped(self, count: int, item: Item) -> bytes:
        """The line that says how many are missing; their numbers are missing, too."""
        self.seq += count
        return self._line(item, {"event": "dropped", "count": count})

    def _line(self, item: Item, fields: Mapping[str, Any]) -> bytes:
        self.seq += 1
        about = {"v": 1, "seq": self.seq, "ts_ms": _ms(item.wall)}
        return encoded({**about, "nameserver": self.nameserver, "boot_id": self.boot_id, **fields}) + b"\n"


def _changed(change: Change) -> dict[str, Any]:
    return {"event": "change", "request": change.request, **change.who}


def _repeated(repeated: RepeatedChange) -> dict[str, Any]:
    changes = [change for each in repeated.last.changes for change in _described(each)]
    times = {"repeated": repeated.times, "first_ms": _ms(repeated.first_at), "last_ms": _ms(repeated.last_at)}
    return {**_changed(repeated.last), "changes": changes, **times}


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _refused(refusal: Refusal) -> dict[str, Any]:
    line = {
        "event": "refusal",
        "request": refusal.request,
        **refusal.who,
        "about": refusal.about,
        "reason": refusal.reason,
        "remark": refusal.remark,
    }
    if refusal.is_observed:
        line["observed"] = True
    if refusal.is_repeated:
        line["repeated"] = refusal.times
    return line


def _described(change: Any) -> Iterator[dict[str, Any]]:
    match change:
        case Registered(key=key, live=live, before=before):
            now, was = _broker(live), None if before is None else _broker(before)
            if now != was:
                yield {"what": "broker", **_key(key), "before": was, "after": now}
        case Evicted(key=key, live=live, reason=reason):
            yield {"what": "broker", **_key(key), "before": _broker(live), "after": None, "reason": reason}
        case RouteChanged(parts=parts):
            # some routes only depend on what changed
            yield from _routes(
                [each for part in parts for each in part if queues_of(each.before) != queues_of(each.after)]
            )
        case WriteWiped(broker_name, topics, is_wiped):
            about = {"what": "write_permission", "broker_name": cut(broker_name), "topics": topics}
            yield {**about, "before": is_wiped, "after": not is_wiped}
        case KVChanged(namespace, key, before, after):
            yield {
                "what": "kv",
                "namespace": cut(namespace),
                "key": cut(key),
                "before": before if before is None else cut(before),
                "after": after if after is None else cut(after),
            }
        case AccessFileChanged(before, after):
            yield from _accounts(before, after)
        case Revoked(key=key, live=live, reason=reason):
            about = {"what": "registration", **_key(key), "broker_name": cut(live.broker_name)}
            yield {
                **about,
                "account": cut(live.account),
                "before": "allowed",
                "after": "revoked",
                "reason": cut(reason),
            }
        case SettingChanged(name, before, after):
            yield {"what": "setting", "setting": name, "before": plain(before), "after": plain(after)}


def _accounts(before: AccessFile, after: AccessFile) -> Iterator[dict[str, Any]]:
    names = before.accounts.keys() | after.accounts.keys()
    changed = [name for name in sorted(names) if before.accounts.get(name) != after.accounts.get(name)]
    for name in changed[:_NAMED_ACCOUNTS]:
        yield _account(name, before.accounts.get(name), after.accounts.get(name))
    if before.ignores_unknown_keys != after.ignores_unknown_keys or len(changed) > _NAMED_ACCOUNTS:
        ignores = {"before": before.ignores_unknown_keys, "after": after.ignores_unknown_keys}
        yield {"what": "access_file", "accounts": len(changed), "ignores_unknown_keys": ignores}


def _account(name: str, before: Account | None, after: Account | None) -> dict[str, Any]:
    was, now = (None if account is None else _rights(account) for account in (before, after))
    # which secrets is nobody's business
    is_rotated = before is not None and after is not None and before.secrets != after.secrets
    return {"what": "account", "account": cut(name), "before": was, "after": now, "rotated": is_rotated}


def _rights(account: Account) -> dict[str, Any]:
    return {
        "access_key": account.access_key,
        "secrets": len(account.secrets),
        "certificates": list(account.certificates),
        "networks": [str(network) for network in account.networks],
        "expires": account.expires and account.expires.isoformat(),
        "trust_rocketmq_signatures": account.trusts_rocketmq_signatures,
        "may": [str(rule) for rule in account.rules],
    }


def _routes(changed: Sequence[Alike]) -> Iterator[dict[str, Any]]:
    if changed:
        named = islice(((topic, each) for each in changed for topic in each.topics), _NAMED_TOPICS)
        count = sum(len(each.topics) for each in changed)
        yield {"what": "routes", "topics": count, "named": [_route(*route) for route in named]}


def _route(topic: str, alike: Alike) -> dict[str, Any]:
    gone, new = difference(queues_of(alike.before), queues_of(alike.after))
    return {"topic": cut(topic), "before": _queues(gone), "after": _queues(new)}


def _queues(row: QueueRow) -> list[dict[str, Any]]:
    return [
        {
            "broker_name": cut(queues.broker_name),
            "read": queues.read_queue_nums,
            "write": queues.write_queue_nums,
            "perm": queues.perm,
        }
        for queues in row[:_NAMED_QUEUES]
    ]


def _key(key: BrokerAddrInfo) -> dict[str, Any]:
    return {"cluster": cut(key.cluster_name), "broker_addr": cut(key.broker_addr)}


def _broker(live: BrokerLiveInfo) -> dict[str, Any]:
    """What makes one registration of a broker another one than the last."""
    return {
        "broker_name": cut(live.broker_name),
        "broker_id": live.broker_id,
        "ha_server_addr": live.ha_server_addr and cut(live.ha_server_addr),
        "expiry_ms": round(live.expiry_seconds * 1000),
        "agent_id": live.agent_id and cut(live.agent_id),
        "connection": live.connection_id,
    }


def plain(value: object) -> object:
    """A setting's value as a line shows it; a secret is stars."""
    return value if value is None or isinstance(value, bool | int | float) else cut(str(value))


def cut(text: str, most: int = _SHOWN_CHARACTERS) -> str:
    """A text as a line shows it: whole, or its beginning and its length."""
    return text if len(text) <= most else f"{text[:most]}... ({len(text)} characters)"
