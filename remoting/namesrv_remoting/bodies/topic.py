"""A broker's description of one topic, and the version of its whole table.

Declared as they are spelt natively; how Java spells them is in `dialects.py`.
"""

from typing import Annotated

import msgspec

from namesrv_remoting.codes import Permission
from namesrv_remoting.headers import Int32, Int64

TopicName = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]

# TopicConfig.java: what a topic has when its sender leaves it out
DEFAULT_QUEUE_NUMS = 16
DEFAULT_PERM = (Permission.READ | Permission.WRITE).value

# three numbers and their names, however they are spelt and whatever a later version adds
MAX_DATA_VERSION_BYTES = 512


class TopicConfig(msgspec.Struct, frozen=True, gc=False):
    """One topic on one broker: how many queues, a `Permission`, unit flags."""

    topic_name: TopicName
    # queues that consumers read; 16 if nothing is said
    read_queue_nums: Int32 = DEFAULT_QUEUE_NUMS
    # queues that producers write to; 16 if nothing is said
    write_queue_nums: Int32 = DEFAULT_QUEUE_NUMS
    # a sum of `Permission`: 6, read and write, if nothing is said
    perm: Int32 = DEFAULT_PERM
    # 1: a unit topic, 2: one that units subscribe to (TopicSysFlag.java)
    topic_sys_flag: Int32 = 0


class DataVersion(msgspec.Struct, frozen=True, gc=False):
    """The version of a broker's topic table: `state_version` grows with the master's term, `counter` with each change.

    `timestamp` is in milliseconds since 1970, taken by the broker; 4.9.x has no `state_version`.
    """

    counter: Int64 = 0
    state_version: Int64 = 0
    timestamp: Int64 = 0


class TopicQueueMappingInfo(msgspec.Struct, frozen=True, gc=False):
    """Which logical queues of a static topic live on broker `bname`: logical queue id -> physical queue id."""

    topic: str | None = None
    bname: str | None = None
    scope: str | None = None
    epoch: Int64 = 0
    total_queues: Int32 = 0
    dirty: bool = False
    curr_id_map: dict[Int32, Int32] | None = None
