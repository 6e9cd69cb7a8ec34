"""Values by key on several servers: settings and the key-value configuration, and where they are not the same."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

# Settings that are each server's own: where it is, and where its files are. Others that differ are a mistake.
OWN_SETTINGS: Final = frozenset(
    {
        *("bindAddress", "listenPort", "httpListen", "nameserverName"),
        *(
            "dataDir",
            "heartbeatLogDir",
            "auditLogDir",
            "tlsCrlFile",
            "access",
            "rocketmqHome",
            "kvConfigPath",
            "configStorePath",
        ),
        *("tls.server.certPath", "tls.server.keyPath", "tls.server.keyPassword", "tls.server.trustCertPath"),
    }
)


@dataclass(frozen=True, slots=True)
class ValueRow:
    """One key, with its value on each server that answered; None where it has none."""

    key: str
    values: Mapping[str, str | None]
    # whether it may differ, since each server has its own
    is_own: bool = False

    @property
    def drifts(self) -> bool:
        """Whether values differ that should not."""
        return not self.is_own and len(set(self.values.values())) > 1


def value_rows(said: Mapping[str, Mapping[str, str]], own: Collection[str] = ()) -> list[ValueRow]:
    """A row for each key that any server has, by its name; a key that one server lacks drifts, too."""
    keys = sorted(frozenset[str]().union(*said.values()), key=str.casefold)
    return [ValueRow(key, {server: values.get(key) for server, values in said.items()}, key in own) for key in keys]
