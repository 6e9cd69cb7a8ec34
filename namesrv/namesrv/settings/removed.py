"""Settings of earlier versions, for messages to operators who still have them."""

from collections.abc import Iterable
from typing import Final

from namesrv_runtime.suggestions import did_you_mean

_NO_HOLD: Final = "many brokers that fall silent together are evicted like any other"
_QUOTA_BROKERS: Final = "see quota-brokers"
_QUOTA_TOPICS: Final = "see quota-topics"
# Removed setting -> the text about its replacement.
_REPLACEMENTS: Final = {
    "first_frame_timeout_seconds": "always a third of whole-frame-timeout-seconds",
    "kv_max_keys_per_namespace": "always 10,000",
    "kv_max_namespaces": "always 256",
    "kv_max_value_bytes": "always 16 KiB",
    "mass_silence_brokers": _NO_HOLD,
    "mass_silence_evictions_per_scan": _NO_HOLD,
    "mass_silence_hold_seconds": _NO_HOLD,
    "mass_silence_percent": _NO_HOLD,
    "max_brokers_per_connection": "see max-brokers",
    "max_clusters": "always 1,000",
    "max_connections_per_ip": "see share-per-ip-percent",
    "max_header_bytes": "always 64 KiB",
    "max_in_flight_per_connection": "always 256",
    "max_inflate_ratio": "always 200",
    "max_inflated_bytes": "always four times max-frame-bytes",
    "max_routes": "always four times max-topics",
    "max_topics_per_connection": "see max-topics",
    "max_watched_topics": "see max-memory-bytes",
    "max_watched_topics_per_connection": "see max-memory-bytes",
    "quota_brokers_per_account": _QUOTA_BROKERS,
    "quota_brokers_per_cluster": _QUOTA_BROKERS,
    "quota_bytes_in_flight_per_ip": "always an eighth of max-memory-bytes",
    "quota_requests_per_second_per_ip": "see share-per-ip-percent",
    "quota_topics_per_account": _QUOTA_TOPICS,
    "quota_topics_per_cluster": _QUOTA_TOPICS,
    "reserved_broker_connections": "always a tenth of max-connections",
    "silent_timeout_seconds": "always 120 s",
    "tcp_user_timeout_seconds": "always 30 s",
    "tls_handshake_timeout_seconds": "always a sixth of whole-frame-timeout-seconds",
    "write_buffer_bytes": "always 4 MiB",
}


def hint(word: str, known: Iterable[str], *, prefix: str = "") -> str:
    """Return the end of a message about an unknown setting: its replacement, or the most similar known setting."""
    name = word.removeprefix(prefix).lower().replace("-", "_")
    if name in _REPLACEMENTS:
        return f" (removed: {_REPLACEMENTS[name]})"
    return did_you_mean(word, known, prefix=prefix)
