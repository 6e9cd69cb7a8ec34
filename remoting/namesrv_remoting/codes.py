"""Numbers of the wire: request, response and language codes, versions.

The numbers are RocketMQ's (`RequestCode`, `ResponseCode`, `LanguageCode`, `MQVersion`), except the extension codes
20001 and above and serialize type 77, which are ours.
"""

from enum import IntEnum, IntFlag
from typing import Final


class RequestCode(IntEnum):
    """Request codes."""

    PUT_KV_CONFIG = 100
    GET_KV_CONFIG = 101
    DELETE_KV_CONFIG = 102
    REGISTER_BROKER = 103
    UNREGISTER_BROKER = 104
    GET_ROUTEINFO_BY_TOPIC = 105
    GET_BROKER_CLUSTER_INFO = 106
    WIPE_WRITE_PERM_OF_BROKER = 205
    GET_ALL_TOPIC_LIST_FROM_NAMESERVER = 206
    DELETE_TOPIC_IN_NAMESRV = 216
    REGISTER_TOPIC_IN_NAMESRV = 217
    GET_KVLIST_BY_NAMESPACE = 219
    GET_TOPICS_BY_CLUSTER = 224
    GET_SYSTEM_TOPIC_LIST_FROM_NS = 304
    GET_UNIT_TOPIC_LIST = 311
    GET_HAS_UNIT_SUB_TOPIC_LIST = 312
    GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST = 313
    UPDATE_NAMESRV_CONFIG = 318
    GET_NAMESRV_CONFIG = 319
    QUERY_DATA_VERSION = 322
    ADD_WRITE_PERM_OF_BROKER = 327
    GET_BROKER_MEMBER_GROUP = 901
    BROKER_HEARTBEAT = 904
    NOTIFY_MIN_BROKER_ID_CHANGE = 905
    # extensions, native protocol
    PULL_ROUTES = 20001
    SERVER_INFO = 20002
    RECENT_EVENTS = 20003
    LIST_CONNECTIONS = 20004
    LIST_BROKERS = 20005
    WHO_AM_I = 20006
    LIST_SETTINGS = 20007
    LIST_KV_NAMESPACES = 20008


class ResponseCode(IntEnum):
    """Response codes."""

    SUCCESS = 0
    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    REQUEST_CODE_NOT_SUPPORTED = 3
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17
    QUERY_NOT_FOUND = 22
    GO_AWAY = 1500


class SerializeType(IntEnum):
    """Encoding of a header; the byte before the header length in every frame."""

    JSON = 0
    ROCKETMQ = 1
    MSGPACK = 77


LanguageCode = IntEnum(
    "LanguageCode", "JAVA CPP DOTNET PYTHON DELPHI ERLANG RUBY OTHER HTTP GO PHP OMS RUST NODE_JS", start=0
)
LanguageCode.__doc__ = "The language of a peer's library; a value is the position of its name in RocketMQ's enum."

# Request codes from this one on are extensions of this project, which exist only in the native protocol.
FIRST_EXTENSION: Final = 20001

FLAG_RESPONSE: Final = 1
FLAG_ONEWAY: Final = 2

# V5_3_3, the version that Apache's current server sends; the Go client reads the version as an int16
CURRENT_VERSION: Final = 479
# From V3_0_11 on, REGISTER_BROKER has a RegisterBrokerBody; before, the body was the bare topic wrapper.
VERSION_REGISTER_BODY: Final = 37
# From V5_0_0 on, a compressed registration ends with the mappings of static topics.
VERSION_MAPPING_TAIL: Final = 413


class Permission(IntFlag):
    """Permissions of a topic on a broker (PermName.java)."""

    INHERIT = 1
    WRITE = 2
    READ = 4
    PRIORITY = 8


# The permissions as plain numbers, for loops over ten thousand topics: the operators of a flag take ten times as long.
PERM_READ: Final = Permission.READ.value
PERM_WRITE: Final = Permission.WRITE.value

# bits of topicSysFlag
UNIT_FLAG: Final = 1
UNIT_SUB_FLAG: Final = 2

MASTER_ID: Final = 0
# the interval at which RocketMQ's brokers send registrations and heartbeats
HEARTBEAT_SECONDS: Final = 30.0
# Ext field of the refusal of a registration that is older than the registered one: its agent has to connect again.
STALE_FIELD: Final = "stale"
ORDER_TOPIC_CONFIG: Final = "ORDER_TOPIC_CONFIG"
# The topic of brokers with autoCreateTopicEnable: messages for a topic without a route go to its brokers.
AUTO_CREATE_TOPIC: Final = "TBW102"
SYNC_BROKER_MEMBER_PREFIX: Final = "rmq_sys_SYNC_BROKER_MEMBER_"
