"""The limits of the key-value configuration, and their defaults, which are those of the settings, too."""

from dataclasses import dataclass


@dataclass(frozen=True)
class KVLimits:
    """How much may be put. What the file already holds at start is kept, whatever its size."""

    max_value_bytes: int = 16 * 1024
    max_keys_per_namespace: int = 10_000
    max_namespaces: int = 256
    max_name_characters: int = 255
    # The file is rewritten by every change, and one namespace travels whole, in one frame of at most 16 MiB: to who
    # lists it, and ORDER_TOPIC_CONFIG to every broker that registers.
    max_file_bytes: int = 8 * 1024 * 1024
