"""Handlers that change (318) and show (319) the settings of a running server.

The handler uses an allow-list, not a deny-list, and never writes a file: Apache's server let an unauthenticated peer
choose a path and its content (CVE-2023-37582), and its first fix was incomplete because it listed the forbidden keys.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from namesrv.access.audit_lines import SettingChanged
from namesrv.context import Namesrv
from namesrv.settings.apache_properties import JAVA_NAMES, as_properties
from namesrv.settings.catalog import SETTINGS
from namesrv.settings.model import PATHS
from namesrv_remoting.bodies.base import check_size
from namesrv_remoting.bodies.extensions import Setting
from namesrv_remoting.bodies.properties import PropertiesError, parse_properties
from namesrv_remoting.errors import BadRequestError, NoPermissionError, SystemError_

logger: Final = logging.getLogger(__name__)

# Java's key -> our setting, for all settings that can change while the server runs; each of them is a boolean.
LIVE_KEYS: Final = {key: name for name, key in JAVA_NAMES.items() if SETTINGS[name].changed_by == "request"}
# Apache's server refuses these keys with the same message.
BLACK_LIST: Final = frozenset({"configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"})
# Keys of all other settings, with the reason why a request does not change them.
_OTHER_KEYS: Final = {
    key: "is read at start and cannot be changed while running"
    if SETTINGS[name].changed_by == "restart"
    else "is changed by a reload of the settings (SIGHUP), not by a request"
    for name, key in JAVA_NAMES.items()
    if key not in LIVE_KEYS
}
# A text with every known key on a line of its own is under 2 KiB.
_MAX_UPDATE_BYTES: Final = 16 * 1024
_BOOLEANS: Final = {"true": True, "false": False}


def apply_update(namesrv: Namesrv, body: bytes) -> list[SettingChanged]:
    """Apply a properties text to the live settings and return the changes; one refused key refuses the whole text.

    Unknown keys are ignored, as in Apache's server, and logged.

    Raises:
        NoPermissionError: administration is off, or a key is not to be changed.
        SystemError_: the text is not in properties syntax.
        BadRequestError: a value is neither true nor false, or the text is too long.
    """
    if not namesrv.may_be_administered():
        raise NoPermissionError("administration is disabled on this server, see its setting admin-enabled")
    check_size(body, "UPDATE_NAMESRV_CONFIG", _MAX_UPDATE_BYTES)
    try:
        properties = parse_properties(body.decode())
    except (PropertiesError, UnicodeDecodeError) as error:
        raise SystemError_("string2Properties error") from error
    update: dict[str, bool] = {}
    for key, value in properties.items():
        if key in BLACK_LIST:
            raise NoPermissionError("Can not update config in black list.")
        if key in _OTHER_KEYS:
            raise NoPermissionError(f"{key} {_OTHER_KEYS[key]}")
        if key not in LIVE_KEYS:
            continue
        if value.strip().lower() not in _BOOLEANS:
            raise BadRequestError(f"{key}: {value[:64]!r} is neither true nor false")
        update[LIVE_KEYS[key]] = _BOOLEANS[value.strip().lower()]
    _log_unknown(namesrv, [key for key in properties if key not in LIVE_KEYS])
    before = namesrv.settings.effective()
    changed = [SettingChanged(name, before[name], value) for name, value in update.items() if before[name] != value]
    for each in changed:
        namesrv.settings.change_by_request(each.name, each.after)
        namesrv.limited_log.event(logger, logging.WARNING, "setting_changed", setting=each.name, value=each.after)
    if changed:
        # All cached routes are dropped: settings change so rarely that tracking which option shapes which route is not
        # worth it.
        namesrv.manager.routes_may_differ()
    return changed


def _log_unknown(namesrv: Namesrv, keys: Sequence[str]) -> None:
    if keys:
        # One line for all keys: a request may have thousands of them.
        namesrv.limited_log.event(logger, logging.WARNING, "setting_unknown", keys=keys)


def effective_properties(namesrv: Namesrv) -> str:
    """Return all current settings as sorted `key=value` lines; without paths unless `admin_enabled` is on."""
    return as_properties(_shown(namesrv))


def settings_list(namesrv: Namesrv) -> list[Setting]:
    """Return the settings with origin and way to change them; without names of files unless `admin_enabled` is on."""
    values = _shown(namesrv)
    properties = parse_properties(as_properties(values))
    origins = namesrv.settings.origins
    if not namesrv.settings.current.admin_enabled:
        origins = _without_names(origins)
    return [
        Setting(
            key,
            SETTINGS[name].title,
            properties[key],
            origins.get(name),
            SETTINGS[name].changed_by,
        )
        for name in values
        if (key := JAVA_NAMES[name]) in properties
    ]


def _without_names(origins: Mapping[str, str]) -> dict[str, str]:
    return {name: origin.partition(" ")[0] for name, origin in origins.items()}


def _shown(namesrv: Namesrv) -> dict[str, Any]:
    values = namesrv.settings.effective()
    if namesrv.boot.addresses:
        # A configured port of 0 means any free port; the bound port is shown.
        values["listen_port"] = namesrv.boot.addresses[0][1]
    if not namesrv.settings.current.admin_enabled:
        # Paths are hidden: they help an intruder, and are useless without administration.
        for name in PATHS:
            del values[name]
    return values
