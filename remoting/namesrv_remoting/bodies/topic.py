"""A broker's configuration of one topic, and the version of the broker's whole topic table.

The structs have the names of the native protocol; `dialects.py` derives Java's names.
"""

from typing import Annotated, Final

import msgspec

from namesrv_remoting.codes import Permission
from namesrv_remoting.headers import Int32, Int64

# `%RETRY%`, a consumer group of 255 characters, `_`, and a topic of 127: the longest name that a broker registers, the
# retry topic of a pop consumer (KeyBuilder.java).
MAX_TOPIC_CHARACTERS: Final = 390
TopicName = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_TOPIC_CHARACTERS)]

# the defaults of TopicConfig.java for fields that the sender leaves out
DEFAULT_QUEUE_NUMS = 16
DEFAULT_PERM = (Permission.READ | Permission.WRITE).value

# Room for three numbers and their names in any encoding, and for fields of later versions.
MAX_DATA_VERSION_BYTES = 512


class TopicConfig(msgspec.Struct, frozen=True, gc=False):
    """One topic on one broker: its numbers of queues, its `Permission` and unit flags."""

    topic_name: TopicName
    # number of queues that consumers read, 16 by default
    read_queue_nums: Int32 = DEFAULT_QUEUE_NUMS
    # number of queues that producers write to, 16 by default
    write_queue_nums: Int32 = DEFAULT_QUEUE_NUMS
    # a sum of `Permission`, by default 6 (read and write)
    perm: Int32 = DEFAULT_PERM
    # 1: a unit topic, 2: a topic that units subscribe to (TopicSysFlag.java)
    topic_sys_flag: Int32 = 0


class DataVersion(msgspec.Struct, frozen=True, gc=False):
    """The version of a broker's topic table: `state_version` grows with the master's term, `counter` with each change.

    `timestamp` is in milliseconds since 1970, taken by the broker; 4.9.x has no `state_version`.
    """

    counter: Int64 = 0
    state_version: Int64 = 0
    timestamp: Int64 = 0


class TopicQueueMappingInfo(msgspec.Struct, frozen=True, gc=False):
    """The logical queues of a static topic on broker `bname`, as logical queue id -> physical queue id."""

    topic: str | None = None
    bname: str | None = None
    scope: str | None = None
    epoch: Int64 = 0
    total_queues: Int32 = 0
    dirty: bool = False
    curr_id_map: dict[Int32, Int32] | None = None


def logical_queues(mapping: TopicQueueMappingInfo | None) -> int:
    """The number of a static topic's logical queues on one broker."""
    return 0 if mapping is None else len(mapping.curr_id_map or ())
