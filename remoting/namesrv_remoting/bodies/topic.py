"""A broker's description of one topic, and the version of its whole table.

Each value exists in two spellings with the same attributes: the native one (snake_case, as declared) and Java's
(`Json…`, camelCase). msgspec spells per class, so the second one declares its fields again.
"""

from typing import Annotated

import msgspec

from namesrv_remoting.codes import Permission
from namesrv_remoting.headers.base import Int32, Int64

TopicName = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]

# TopicConfig.java: what a topic has when its sender leaves it out
DEFAULT_QUEUE_NUMS = 16
DEFAULT_PERM = (Permission.READ | Permission.WRITE).value

# three numbers and their names, however they are spelt and whatever a later version adds
MAX_DATA_VERSION_BYTES = 512


class TopicConfig(msgspec.Struct, frozen=True, gc=False):
    """One topic on one broker: how many queues, a `Permission`, unit flags."""

    topic_name: TopicName
    read_queue_nums: Int32 = DEFAULT_QUEUE_NUMS
    write_queue_nums: Int32 = DEFAULT_QUEUE_NUMS
    perm: Int32 = DEFAULT_PERM
    topic_sys_flag: Int32 = 0


class JsonTopicConfig(TopicConfig, frozen=True, gc=False, rename="camel"):
    """A topic as Java spells it."""

    topic_name: TopicName
    read_queue_nums: Int32 = DEFAULT_QUEUE_NUMS
    write_queue_nums: Int32 = DEFAULT_QUEUE_NUMS
    perm: Int32 = DEFAULT_PERM
    topic_sys_flag: Int32 = 0


class DataVersion(msgspec.Struct, frozen=True, gc=False):
    """The version of a broker's topic table: `state_version` grows with the master's term, `counter` with each change.

    `timestamp` is in milliseconds since 1970, taken by the broker.
    """

    counter: Int64 = 0
    state_version: Int64 = 0
    timestamp: Int64 = 0


class JsonDataVersion(DataVersion, frozen=True, gc=False, rename="camel"):
    """A DataVersion as Java spells it (4.9.x has no stateVersion)."""

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


class JsonTopicQueueMappingInfo(TopicQueueMappingInfo, frozen=True, gc=False, rename="camel"):
    """A static-topic mapping as Java spells it."""

    topic: str | None = None
    bname: str | None = None
    scope: str | None = None
    epoch: Int64 = 0
    total_queues: Int32 = 0
    dirty: bool = False
    curr_id_map: dict[Int32, Int32] | None = None

    def plain(self) -> TopicQueueMappingInfo:
        """The same value, which is equal to others and has the native spelling."""
        return TopicQueueMappingInfo(
            self.topic, self.bname, self.scope, self.epoch, self.total_queues, self.dirty, self.curr_id_map
        )
