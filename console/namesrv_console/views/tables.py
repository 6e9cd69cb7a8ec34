"""Values by key on several servers: settings and the key-value configuration, and where they differ."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

# Settings with a value for each server: its addresses, ports and names, and the paths of its files. A difference in
# another setting is a mistake.
OWN_SETTINGS: Final = frozenset(
    {
        *("bindAddress", "listenPort", "listeners", "httpListen", "httpHosts", "nameServersListen", "nameserverName"),
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


# Settings in milliseconds, as on Apache's server; the names of all others say their unit.
_MILLISECONDS: Final = frozenset({"scanNotActiveBrokerInterval"})
_BYTES: Final = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


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


def with_unit(key: str, value: str) -> str:
    """The value of a setting with the unit that its key implies; empty if the key implies none."""
    if not value.isascii() or not value.replace(".", "", 1).isdigit():
        return ""
    if key in _MILLISECONDS:
        return f"{float(value) / 1000:g} s"
    if "Seconds" in key:
        return f"{float(value):g} s"
    if key.endswith("Bytes") and value.isdigit():
        return next((f"{int(value) / size:.4g} {unit}" for size, unit in _BYTES if int(value) >= size), f"{value} B")
    return ""
