"""Every setting of the daemon, declared once: its type, range, default and consequence."""

import os
from pathlib import Path
from typing import Any, Literal, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from namesrv.kv.limits import KVLimits
from namesrv.settings.values import (
    checked_endpoint,
    checked_hosts,
    checked_name,
    checked_path,
    checked_path_text,
    default_data_dir,
    default_nameserver_name,
    endpoint_parts,
)

KIB = 1024
MIB = 1024 * KIB

# the headings of --help, in its order
LISTENING = "Listening and place"
LIVENESS = "Which brokers are alive"
START_STOP = "Start and stop"
ROUTES = "Topics and routes"
MESSAGES = "Limits of one message"
CONNECTIONS = "Limits of connections"
KV = "Limits of the KV configuration"
STALENESS = "Heartbeat log"
OPERATION = "Administration and log"

# empty means: not at all
_MAY_BE_EMPTY = frozenset({"heartbeat_log_dir", "http_listen"})


def _setting(topic: str, consequence: str, *, default: Any, between: tuple[float, float] | None = None) -> Any:
    """A field whose default is a value."""
    low, high = between or (None, None)
    return Field(default=default, description=consequence, ge=low, le=high, json_schema_extra={"topic": topic})


class Settings(BaseModel):
    """The effective settings of one run; `settings.sources.load` says where each came from."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    listen_host: str = _setting(
        LISTENING,
        "Address to serve on, or several separated by commas, as in 0.0.0.0,:: for IPv4 and IPv6. "
        "127.0.0.1 keeps every other machine out.",
        default="0.0.0.0",  # noqa: S104  # brokers and clients are on other machines
    )
    listen_port: int = _setting(
        LISTENING,
        "TCP port to serve on. 9876 is where brokers and clients look; 0 takes any free port, which the log names.",
        default=9876,
        between=(0, 65535),
    )
    http_listen: str = _setting(
        LISTENING,
        "Address and port for health (/livez, /readyz) and metrics (/metrics) over HTTP, as in [::1]:9877; port 0 "
        "takes any free port, which the log names. Two servers on one machine need two ports. There are no "
        "passwords: beyond 127.0.0.1, anyone who reaches the port can read both. An empty value turns both off.",
        default="127.0.0.1:9877",
    )
    data_dir: Path = Field(
        default_factory=lambda: default_data_dir(os.environ),
        description="Directory of the KV configuration and the snapshot of expected brokers, made when missing. "
        "Two servers must not share one. If it is lost, so is the KV configuration, and the next start does not "
        "wait.",
        json_schema_extra={"topic": LISTENING, "default": "$XDG_STATE_HOME/namesrv, else ~/.local/state/namesrv"},
    )
    nameserver_name: str = Field(
        default_factory=default_nameserver_name,
        description="Name of this server in its logs. Give each server its own, or their logs look alike.",
        json_schema_extra={"topic": LISTENING, "default": "the host name"},
    )
    proxy_protocol: Literal["off", "optional"] = _setting(
        LISTENING,
        "With optional, a PROXY protocol header (v1 or v2) at the start of a connection names the real peer. Anyone "
        "who reaches the port can then claim any address, so use it only behind a proxy; with off such a connection "
        "is closed.",
        default="off",
    )

    scan_interval_seconds: float = _setting(
        LIVENESS,
        "Time between two scans for silent brokers. Higher: a dead broker stays in routes for up to that much "
        "longer; lower: scanning costs more.",
        default=10.0,
        between=(0.1, 3600),
    )
    broker_expiry_seconds: float = _setting(
        LIVENESS,
        "Silence after which a broker is evicted, unless it asked for an expiry of its own. Higher: clients are "
        "sent to dead brokers for longer; lower: a healthy broker that pauses is evicted. Brokers send every 30 s: "
        "keep it above 30.",
        default=120.0,
        between=(0.1, 86400),
    )
    evict_on_disconnect: bool = _setting(
        LIVENESS,
        "Evict the brokers of a connection the moment it closes. If off, a crashed broker stays in routes until it "
        "expires, but a broken connection alone evicts no broker.",
        default=True,
    )
    notify_min_broker_id_changed: bool = _setting(
        LIVENESS,
        "Tell the brokers of a group when its lowest broker id changes (request 905); if off, they find out at "
        "their next poll.",
        default=False,
    )
    support_acting_master: bool = _setting(
        LIVENESS,
        "When a group has lost its master, show the slave with the lowest id in its place, without write "
        "permission, if the group asked for that. If off, consumers that need a master stop until it is back.",
        default=False,
    )

    wait_for_service_seconds: float = _setting(
        START_STOP,
        "After a restart, refuse route questions for up to this long while brokers of the last run are missing; "
        "clients keep the routes they have. Lower: clients may get incomplete routes; 0 answers at once.",
        default=45.0,
        between=(0, 3600),
    )
    drain_seconds: float = _setting(
        START_STOP,
        "Time over which connections are closed after SIGTERM. Higher: clients move to the other servers more "
        "gently; lower: the process ends sooner and they all move at once.",
        default=5.0,
        between=(0, 600),
    )

    order_message_enable: bool = _setting(
        ROUTES,
        "Put the order configuration of a topic into its route; if off, clients of ordered topics do not see it.",
        default=False,
    )
    return_order_topic_config_to_broker: bool = _setting(
        ROUTES,
        "Answer a registration with the order configuration of all topics; if off, brokers do not learn it from here.",
        default=True,
    )
    delete_topic_with_broker_registration: bool = _setting(
        ROUTES,
        "Drop a broker's topic as soon as its full registration no longer has it. If off, deleted topics stay in "
        "routes until they are deleted here too; if on, every full registration costs a look at all topics of that "
        "broker.",
        default=False,
    )
    enable_topic_list: bool = _setting(
        ROUTES,
        "Answer the lists of topics by cluster and of unit topics; if off, consoles and tools that need them fail.",
        default=True,
    )
    enable_all_topic_list: bool = _setting(
        ROUTES,
        "Answer the list of all topics; if off, consoles lose it, and nobody can make the server build a very large "
        "one.",
        default=True,
    )
    max_topics_per_broker: int = _setting(
        ROUTES,
        "Topics of one broker, in one registration or in several; a registration that would exceed it is refused. "
        "Higher: one broker can take more memory and time; lower: large brokers cannot register.",
        default=100_000,
        between=(1, 10_000_000),
    )
    max_brokers_per_connection: int = _setting(
        ROUTES,
        "Brokers that register over one connection; one more is refused. Real brokers have a connection each, or "
        "share one within a process.",
        default=1_000,
        between=(1, 1_000_000),
    )
    max_topics_per_connection: int = _setting(
        ROUTES,
        "Topics of all brokers that register over one connection; a registration that would exceed it is refused.",
        default=200_000,
        between=(1, 100_000_000),
    )
    max_clusters: int = _setting(
        ROUTES,
        "Clusters in all; a registration that names one more is refused. The largest deployments have tens.",
        default=1_000,
        between=(1, 100_000),
    )
    max_brokers: int = _setting(
        ROUTES,
        "Live brokers in all, slaves included; one more is refused. Higher: strangers can take more memory and the "
        "snapshot grows; lower: brokers that come back may be refused.",
        default=10_000,
        between=(1, 1_000_000),
    )
    max_topics: int = _setting(
        ROUTES,
        "Topics in all; a registration that would exceed it is refused. A million take 0.3 to 0.6 GB with their "
        "answers. Higher: strangers can take more memory; lower: brokers with new topics are refused.",
        default=1_000_000,
        between=(1, 100_000_000),
    )
    max_routes: int = _setting(
        ROUTES,
        "Routes in all: a topic on three brokers has three. A registration that would exceed it is refused. This "
        "bounds the memory of many brokers with the same topics.",
        default=4_000_000,
        between=(1, 1_000_000_000),
    )

    max_frame_bytes: int = _setting(
        MESSAGES,
        "Largest frame, both ways; the connection of a larger one is closed. Higher: one peer can take more memory, "
        "and Java peers still refuse over 16 MiB; one of more than a twelfth of max-memory-bytes is never received. "
        "Lower: brokers with many topics cannot register.",
        default=16 * MIB,
        between=(64 * KIB, 64 * MIB),
    )
    max_header_bytes: int = _setting(
        MESSAGES,
        "Largest header of a frame. Real ones stay below 2 KiB. Higher: a peer can make the server decode more at "
        "once.",
        default=64 * KIB,
        between=(1 * KIB, 16 * MIB - 1),  # its length is 24 bits wide
    )
    max_inflated_bytes: int = _setting(
        MESSAGES,
        "Largest registration after decompression. Higher: a small frame can take more memory; lower: brokers with "
        "many topics cannot register compressed.",
        default=64 * MIB,
        between=(64 * KIB, 1024 * MIB),
    )
    max_inflate_ratio: int = _setting(
        MESSAGES,
        "How many times its size a registration may have after decompression. Higher: a small frame can cost more; "
        "lower: real ones are refused, which grow about 40-fold. 1032, the most that zlib can do, means no limit.",
        default=200,
        between=(2, 1032),
    )
    first_frame_timeout_seconds: float = _setting(
        MESSAGES,
        "Time from the first byte of a connection's first frame to its last; later the connection is closed. Lower: "
        "slow links fail; higher: strangers hold connections for longer.",
        default=10.0,
        between=(0.1, 3600),
    )
    silent_timeout_seconds: float = _setting(
        MESSAGES,
        "Time after which a new connection that has sent nothing is closed, without a warning. RocketMQ 5.x "
        "connects to every server in advance and may be silent for two minutes. Lower: its first request can meet a "
        "closed connection; higher: useless connections stay open for longer.",
        default=120.0,
        between=(1, 3600),
    )
    whole_frame_timeout_seconds: float = _setting(
        MESSAGES,
        "Time from the first byte of a frame to its last; later the connection is closed. Lower: large "
        "registrations over slow links fail; higher: a peer that trickles bytes holds memory for longer.",
        default=30.0,
        between=(0.1, 3600),
    )

    max_connections: int = _setting(
        CONNECTIONS,
        "Open connections; one more is closed at once. Keep it below the limit of open files (ulimit -n), or nobody "
        "can connect when that is reached. Each takes a few KiB.",
        default=10_000,
        between=(1, 1_000_000),
    )
    reserved_broker_connections: int = _setting(
        CONNECTIONS,
        "Part of max-connections that is reserved for brokers, at most a tenth: a peer that takes one of these must "
        "begin like a broker within first-frame-timeout-seconds, or is closed. 0 reserves none, and a crowd of "
        "clients can keep brokers out.",
        default=1000,
        between=(0, 1_000_000),
    )
    max_connections_per_ip: int = _setting(
        CONNECTIONS,
        "Open connections from one address; 0 is no limit. It keeps one machine from using up all connections; "
        "too low, peers behind one NAT address or proxy are refused.",
        default=1024,
        between=(0, 1_000_000),
    )
    max_watched_topics_per_connection: int = _setting(
        CONNECTIONS,
        "Topics that one connection may wait for at the same time, in all its watches; one more is refused with "
        "code 2. Higher: one peer can take more memory, about 500 bytes for each; lower: clients of many topics "
        "have to poll.",
        default=100_000,
        between=(1, 10_000_000),
    )
    max_watched_topics: int = _setting(
        CONNECTIONS,
        "Topics that all connections together may wait for. They count towards max-memory-bytes as well.",
        default=1_000_000,
        between=(1, 100_000_000),
    )
    max_in_flight_per_connection: int = _setting(
        CONNECTIONS,
        "Requests of one connection processed at the same time; more wait in its socket. Higher: one peer can take "
        "more of the server; lower: pipelining clients slow down.",
        default=256,
        between=(1, 65535),
    )
    write_buffer_bytes: int = _setting(
        CONNECTIONS,
        "Bytes that may wait for a peer that does not read its answers; when notices or watches exceed this, its "
        "connection is closed. It gets no further answer to an ordinary request before it has read the last, which "
        "may be larger. Higher: slow peers take more memory; lower: they are cut off sooner.",
        default=4 * MIB,
        between=(64 * KIB, 1024 * MIB),
    )
    idle_timeout_seconds: float = _setting(
        CONNECTIONS,
        "Close a connection that has registered no broker and on which nothing was sent for this long; 0 never "
        "does. Clients ask every 30 s. Below 120, RocketMQ clients lose connections that they keep in reserve; "
        "higher: those of vanished clients stay open for longer.",
        default=600.0,
        between=(0, 86400),
    )
    max_memory_bytes: int = _setting(
        CONNECTIONS,
        "Memory for routes and peers together: what the tables leave of it, and an eighth in any case, is for "
        "frames being received, answers not yet read and watches, an eighth of that for one address. When it is "
        "used up, new connections and large frames are refused and connected peers notice nothing. Higher: the "
        "process may grow; lower: many large registrations at once have to wait.",
        default=512 * MIB,
        between=(64 * MIB, 1 << 40),
    )
    tcp_user_timeout_seconds: float = _setting(
        CONNECTIONS,
        "Time after which the kernel gives up a connection whose peer acknowledges nothing (TCP_USER_TIMEOUT); 0 "
        "leaves it to the kernel, about 15 minutes. Lower: vanished peers free memory sooner; too low, a short "
        "network failure closes connections.",
        default=30.0,
        between=(0, 3600),
    )

    kv_max_value_bytes: int = _setting(
        KV,
        "Largest value; a larger one is refused. Higher: every change takes longer, since it writes all values "
        "again. A value travels in a header; one of more than 32 KiB closes the connection before it can be "
        "refused.",
        default=KVLimits.max_value_bytes,
        between=(1, 32 * KIB),
    )
    kv_max_keys_per_namespace: int = _setting(
        KV,
        "Keys in one namespace; one more is refused. Higher: every change takes longer.",
        default=KVLimits.max_keys_per_namespace,
        between=(1, 1_000_000),
    )
    kv_max_namespaces: int = _setting(
        KV,
        "Namespaces; one more is refused. Higher: every change takes longer.",
        default=KVLimits.max_namespaces,
        between=(1, 100_000),
    )

    heartbeat_log_dir: str = _setting(
        STALENESS,
        "Directory of the heartbeat log, which namesrv-staleness reads: heartbeats, evictions, and which client got "
        "which route. A relative path is below data-dir. An empty value turns it off, and nobody can say afterwards "
        "how long stale routes lasted.",
        default="heartbeats",
    )
    heartbeat_log_keep_days: float = _setting(
        STALENESS,
        "Days for which files of the heartbeat log are kept. Lower: reports reach back less far.",
        default=14.0,
        between=(0.01, 3650),
    )
    heartbeat_log_max_bytes: int = _setting(
        STALENESS,
        "Total size of the heartbeat log's files; the oldest are deleted first. A hundred brokers write about 100 "
        "MB a day, and a tenth of that once it is compressed.",
        default=2 * 1024 * MIB,
        between=(1 * MIB, 1 << 50),
    )

    admin_enabled: bool = _setting(
        OPERATION,
        "Allow UPDATE_NAMESRV_CONFIG (318) to change settings of the running server. The protocol has no passwords: "
        "if on, anyone who reaches the port can do so; if off, the request is refused.",
        default=False,
    )
    log_level: Literal["debug", "info", "warning", "error"] = _setting(
        OPERATION, "Lowest level that is logged; debug costs time on every request.", default="info"
    )
    log_format: Literal["auto", "text", "json"] = _setting(
        OPERATION,
        "One event per line, as text for people or as JSON for collectors; auto is text on a terminal and JSON "
        "otherwise.",
        default="auto",
    )

    @property
    def listen_hosts(self) -> tuple[str, ...]:
        """The addresses of `listen_host`, one by one."""
        return tuple(self.listen_host.split(","))

    @property
    def heartbeat_log_path(self) -> Path | None:
        """The directory of `heartbeat_log_dir`; None when it is off."""
        return self.data_dir / checked_path(Path(self.heartbeat_log_dir)) if self.heartbeat_log_dir else None

    @property
    def http_address(self) -> tuple[str, int] | None:
        """Host and port of `http_listen`; None when it is off."""
        return endpoint_parts(self.http_listen)

    @field_validator("*", mode="before")
    @classmethod
    def _read(cls, value: Any, info: ValidationInfo) -> Any:
        """What pydantic would let through or complain about in its own words."""
        kind = cls.model_fields[info.field_name or ""].annotation
        if value == "" and info.field_name not in _MAY_BE_EMPTY:
            raise ValueError("is empty")
        if isinstance(value, bool) and kind in {int, float}:  # pydantic takes true for 1
            raise ValueError("is not a number")
        if isinstance(value, str) and get_origin(kind) is Literal:
            return value.lower()
        return value

    _hosts = field_validator("listen_host")(checked_hosts)
    _endpoint = field_validator("http_listen")(checked_endpoint)
    _name = field_validator("nameserver_name")(checked_name)
    _place = field_validator("data_dir")(checked_path)
    _log_place = field_validator("heartbeat_log_dir")(checked_path_text)
