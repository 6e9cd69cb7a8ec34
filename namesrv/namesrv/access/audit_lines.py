"""Encoding of audit trail lines, in the thread that writes them.

Names come from peers and may be long and numerous: all names are cut, and only the first of many are listed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple

from namesrv.routeinfo.tables.effects import Audited, Effect
from namesrv_remoting.access import AccessFile, Account
from namesrv_runtime.line_log.queue import Item
from namesrv_runtime.line_log.writer import Encoder, encoded

# Accounts listed for one change of the access file.
_NAMED_ACCOUNTS: Final = 100
_SHOWN_CHARACTERS: Final = 256
# Header fields that a refusal line shows. All other fields stay out, since credentials are among them.
SUBJECTS: Final = ("clusterName", "cluster", "brokerName", "brokerAddr", "brokerId", "topic", "namespace", "key")


class Change(NamedTuple):
    """The effects of one request, or of the server itself with a cause."""

    # The name of the request, or a cause in the server (SIGHUP). None for the silence, the closed connection or the
    # expiry of a broker, which the effects tell.
    cause: str | None
    sender: Mapping[str, Any]
    changes: Sequence[Effect]
    # The account of the request, or without an account the network of the peer; for a change of the server itself, the
    # account that registered the broker, or "".
    source: str = ""


class RepeatedChange(NamedTuple):
    """Further changes of one source to one broker: number, first and last time (wall clock), and the last change."""

    last: Change
    times: int
    first_at: float
    last_at: float


class Refusal(NamedTuple):
    """A refused request or connection; its texts are cut at once, since very many may wait for a slow disk."""

    request: str
    sender: Mapping[str, Any]
    reason: str
    remark: str
    # Fields of the request that SUBJECTS lists.
    about: Mapping[str, str] = {}
    # Number of equal refusals since the previous line.
    times: int = 1
    is_repeated: bool = False
    # True if the rule was only observed and the request was carried out.
    is_observed: bool = False


class Noted(Effect):
    """A change outside the route tables that the audit trail shows."""

    __slots__ = ()

    audited: ClassVar[Audited] = "change"


@dataclass(frozen=True, slots=True)
class KVChanged(Noted):
    """A changed value of the key-value configuration."""

    namespace: str
    key: str
    before: str | None
    after: str | None

    def changes(self) -> Iterator[dict[str, Any]]:
        """Yield the key with the value before and after."""
        about = {"what": "kv", "namespace": self.namespace, "key": self.key}
        yield {**about, "before": self.before, "after": self.after}

    def characters(self) -> int:
        """Return the length of all texts."""
        return sum(len(text or "") for text in (self.namespace, self.key, self.before, self.after))


@dataclass(frozen=True, slots=True)
class AccessFileChanged(Noted):
    """A reload that changed accounts of the access file."""

    before: AccessFile
    after: AccessFile

    def changes(self) -> Iterator[dict[str, Any]]:
        """Yield the changed accounts."""
        yield from _accounts(self.before, self.after)


@dataclass(frozen=True, slots=True)
class SettingChanged(Noted):
    """A changed setting."""

    name: str
    before: object
    after: object

    def changes(self) -> Iterator[dict[str, Any]]:
        """Yield the setting with the value before and after."""
        about = {"what": "setting", "setting": self.name}
        yield {**about, "before": plain(self.before), "after": plain(self.after)}


@dataclass(slots=True)
class AuditLines(Encoder):
    """Encodes the lines of one boot."""

    nameserver: str
    boot_id: str
    # Sequence number of the last line.
    seq: int = 0

    def line(self, item: Item) -> bytes:
        """Return the line of an item with its newline; empty for a change without visible effect."""
        what = item.what
        if isinstance(what, Change | RepeatedChange):
            fields = _changed(what) if isinstance(what, Change) else _repeated(what)
            return self._line(item, fields) if fields["changes"] else b""
        if isinstance(what, Refusal):
            return self._line(item, _refused(what))
        return self._line(item, what)

    def opened(self, item: Item) -> bytes:
        """Return the first line of every file but the first one."""
        return self._line(item, {"event": "opened"})

    def dropped(self, count: int, item: Item) -> bytes:
        """Return the line about dropped lines; the sequence skips their numbers."""
        self.seq += count
        return self._line(item, {"event": "dropped", "count": count})

    def _line(self, item: Item, fields: Mapping[str, Any]) -> bytes:
        self.seq += 1
        about = {"v": 1, "seq": self.seq, "ts_ms": round(item.wall * 1000)}
        return encoded({**about, "nameserver": self.nameserver, "boot_id": self.boot_id, **fields}) + b"\n"


def _changed(change: Change) -> dict[str, Any]:
    changes = [_cut_all(each) for effect in change.changes for each in effect.changes()]
    return {"event": "change", "request": change.cause, **change.sender, "changes": changes}


def _repeated(repeated: RepeatedChange) -> dict[str, Any]:
    times = {
        "repeated": repeated.times,
        "first_ms": round(repeated.first_at * 1000),
        "last_ms": round(repeated.last_at * 1000),
    }
    return {**_changed(repeated.last), **times}


def _cut_all(value: Any) -> Any:
    if isinstance(value, str):
        return cut(value)
    if isinstance(value, dict):
        return {name: _cut_all(inner) for name, inner in value.items()}
    return [_cut_all(inner) for inner in value] if isinstance(value, list) else value


def _refused(refusal: Refusal) -> dict[str, Any]:
    line = {
        "event": "refusal",
        "request": refusal.request,
        **refusal.sender,
        "about": refusal.about,
        "reason": refusal.reason,
        "remark": refusal.remark,
    }
    if refusal.is_observed:
        line["observed"] = True
    if refusal.is_repeated:
        line["repeated"] = refusal.times
    return line


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
    # The line shows that secrets changed, never which.
    is_rotated = before is not None and after is not None and before.secrets != after.secrets
    return {"what": "account", "account": name, "before": was, "after": now, "rotated": is_rotated}


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


def plain(value: object) -> object:
    """Return a setting's value as a line shows it; a secret appears as stars."""
    return value if value is None or isinstance(value, bool | int | float) else cut(str(value))


def cut(text: str, most: int = _SHOWN_CHARACTERS) -> str:
    """Return a text as a line shows it: whole, or its beginning with its length."""
    return text if len(text) <= most else f"{text[:most]}... ({len(text)} characters)"
