"""Values by key on several servers: settings and the key-value configuration, and where they differ."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

# Settings with a value for each server: its addresses, and the paths of its files. A difference in another setting is a
# mistake.
OWN_SETTINGS: Final = frozenset(
    {
        *("bindAddress", "listenPort", "httpListen", "nameServersListen", "nameserverName"),
        *(
            "dataDir",
            "heartbeatLogDir",
            "auditLogDir",
            "tlsCrlFile",
            "access",
            "addressViews",
            "rocketmqHome",
            "kvConfigPath",
            "configStorePath",
        ),
        *("tls.server.certPath", "tls.server.keyPath", "tls.server.keyPassword", "tls.server.trustCertPath"),
    }
)


@dataclass(frozen=True, slots=True)
class ValueRow:
    """One key with its value on each server that answered; None where the server lacks the key."""

    key: str
    values: Mapping[str, str | None]
    # True if each server has its own value, so that values may differ.
    is_own: bool = False

    @property
    def drifts(self) -> bool:
        """True if the values differ, and should not."""
        return not self.is_own and len(set(self.values.values())) > 1


def value_rows(given: Mapping[str, Mapping[str, str]], own: Collection[str] = ()) -> list[ValueRow]:
    """A row for each key of any server, sorted by key; a key that one server lacks drifts, too."""
    keys = sorted(frozenset[str]().union(*given.values()), key=str.casefold)
    return [ValueRow(key, {server: values.get(key) for server, values in given.items()}, key in own) for key in keys]
