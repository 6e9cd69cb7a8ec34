"""Every setting of the daemon, declared once: its type, default, range, and (as its docstring) its consequence.

A new setting stands below the heading of --help to which it belongs, see `HEADINGS`. Its name also goes into `PATHS` if
it is a path, and into `_MAY_BE_EMPTY` if it may be empty. flags.py has names for the values in --help.
`python -m tests.docs.generated` writes docs/operating.md, with the first sentence of the docstring.

A changed setting takes effect in one of these ways:

- `NEEDS_RESTART` in its type: after a restart.
- a limit (`Limits.of` in settings/limits.py, which makes `ServerLimits` of net/limits.py, `TableLimits` and others): a
  reload changes it in the objects that enforce it; `BOUNDS` in tests/namesrv/server/test_reload.py has a row for it.
- a field of `LiveSettings` (live.py): a reload or a request changes it there.
- all others: their readers read `RunningSettings.current` each time, or the reload (server/reload.py) calls them.
"""

import os
import re
import socket
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_origin

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationInfo, field_validator

from namesrv_remoting.address_views import DEFAULT_LISTENER
from namesrv_remoting.addresses import HOST_NAME, MAX_PORT, is_endpoint, is_host
from namesrv_remoting.aio.tls import TlsFiles
from namesrv_remoting.zones import read_zone_fallback
from namesrv_runtime.log import quoted
from namesrv_runtime.state_dir import state_dir

KIB: Final = 1024
MIB: Final = 1024 * KIB

# The first setting below each heading of --help; all settings up to the next one stand below the same heading.
HEADINGS: Final = {
    "listen_host": "Listening and data directory",
    "tls_mode": "TLS",
    "scan_interval_seconds": "Which brokers are alive",
    "wait_for_service_seconds": "Start and stop",
    "order_message_enable": "Topics and routes",
    "max_connections": "Limits of connections",
    "heartbeat_log_dir": "Heartbeat log",
    "access": "Who may do what",
    "quotas": "Quotas",
    "audit_log_dir": "Audit trail",
    "admin_enabled": "Administration and log",
}
# Descriptions of defaults that depend on the machine.
DEFAULTS_IN_WORDS: Final = {
    "data_dir": "$XDG_STATE_HOME/namesrv, else ~/.local/state/namesrv",
    "nameserver_name": "the host name",
}
# Marks a setting that keeps its value from the start: a reload logs its change as `setting_needs_restart`, and a change
# of any other setting as `setting_changed`, even if the reader keeps the old value. The settings for staleness stay as
# the `start` line of the heartbeat log has them, because the report relies on that line.
NEEDS_RESTART: Final = "needs a restart"
# Settings that are paths of files.
PATHS: Final = (
    *("access", "address_views", "data_dir", "heartbeat_log_dir", "audit_log_dir"),
    *("tls_cert_file", "tls_key_file", "tls_ca_file", "tls_crl_file"),
)
# Settings whose empty value switches something off.
_MAY_BE_EMPTY: Final = frozenset(
    {
        *("access", "address_views", "audit_log_dir", "heartbeat_log_dir", "http_hosts", "http_listen", "listeners"),
        *("name_servers", "name_servers_listen", "broker_metrics_target", "zone_fallback"),
        *("tls_cert_file", "tls_key_file", "tls_key_password", "tls_ca_file", "tls_crl_file"),
    }
)
# The files of the heartbeat log carry the server's name, so it must be valid in a file name.
_FILE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
# Example values of what `broker_metrics_target` may contain, and its syntax.
_TARGET_FIELDS: Final = {"host": "h", "cluster": "c", "broker_name": "b", "broker_id": "0"}
_TARGET: Final = re.compile(r"([^{}]|\{(host|cluster|broker_name|broker_id)\})*")


def default_nameserver_name() -> str:
    """Return the name of this host, without characters that a file name cannot have."""
    name = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname()).lstrip("-._")
    return name[:64] or "namesrv"


class Settings(BaseModel):
    """The effective settings of one boot; `settings.sources.load` gives the source of each."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    listen_host: Annotated[str, NEEDS_RESTART] = "0.0.0.0"  # noqa: S104  # brokers and clients are on other machines
    """Address to serve on, or several separated by commas, as in 0.0.0.0,:: for IPv4 and IPv6. 127.0.0.1 keeps every
    other machine out."""

    listen_port: Annotated[int, NEEDS_RESTART] = Field(default=9876, ge=0, le=MAX_PORT)
    """TCP port to serve on. 9876 is where brokers and clients look; 0 takes any free port, which the log names."""

    listeners: Annotated[str, NEEDS_RESTART] = ""
    """Further TCP ports to serve on at the addresses of listen-host, each with a name that an address view can match,
    as in outside=9886,partner=9896. So a view can be for all peers that come through a load balancer."""

    http_listen: Annotated[str, NEEDS_RESTART] = "127.0.0.1:9877"
    """Address and port for health (/livez, /readyz) and metrics (/metrics) over HTTP, as in [::1]:9877; port 0 takes
    any free port, which the log names. Two servers on one machine need two ports. There are no passwords: beyond
    127.0.0.1, anyone who reaches the port can read both. An empty value turns both off."""

    http_hosts: str = ""
    """Further names of this server in requests to its HTTP port, separated by commas; `*.example.com` is every name
    below, `*` every name. Addresses, names without a dot, the host name and the name of this server always count;
    other names get 421, so that no web page can read the port by having its own name resolved to this address."""

    name_servers: str = ""
    """All NameServers, this one included, as host:port separated by semicolons. Brokers and clients that are configured
    with an address server (`rocketmq.namesrv.domain`) get the list from `/rocketmq/nsaddr` and ask for it again every
    two minutes, so that a new NameServer needs no restart. A host name stands for all of its addresses, and is resolved
    again. An empty value turns the page off."""

    name_servers_listen: Annotated[str, NEEDS_RESTART] = ""
    """Address and port of a further HTTP port that serves `/rocketmq/nsaddr` and no other page, as in 0.0.0.0:8080, so
    that brokers and clients reach the list without reaching health and metrics. Empty: the page is only on
    http-listen."""

    address_views: str = ""
    """File (TOML) of address views: for peers on other networks it maps the addresses of brokers in routes to addresses
    that these peers can reach; see docs/reach.md. Empty: every peer gets the addresses that the brokers register."""

    broker_metrics_target: str = "{host}:5557"
    """Address of a broker's metrics in `/sd/prometheus` on http-listen, from which Prometheus learns what to scrape
    (http_sd). {host}, {cluster}, {broker_name} and {broker_id} are filled in; 5557 is the port of RocketMQ 5's own
    exporter. Empty: the page names only NameServers."""

    data_dir: Annotated[Path, NEEDS_RESTART] = Field(default_factory=lambda: state_dir(os.environ, "namesrv"))
    """Directory of the KV configuration and the snapshot of expected brokers, made when missing. Two servers must not
    share one. If it is lost, so is the KV configuration, and the next start does not wait."""

    nameserver_name: Annotated[str, NEEDS_RESTART] = Field(default_factory=default_nameserver_name)
    """Name of this server in its logs. Give each server its own, or their logs look alike."""

    proxy_protocol: Literal["off", "optional"] = "off"
    """With optional, a PROXY protocol header (v1 or v2) at the start of a connection names the real peer. Anyone who
    reaches the port can then claim any address, so use it only behind a proxy; with off such a connection is closed."""

    tls_mode: Literal["off", "permissive", "enforcing"] = "off"
    """Whether connections are encrypted. With permissive the first byte of a connection says whether it is, for the
    time in which some peers are not there yet; it protects only those that insist on TLS themselves. With enforcing
    plain text is refused."""

    tls_client_auth: Literal["none", "optional", "require"] = "none"
    """Whether clients must present a certificate issued by tls-ca-file. With require, a TLS handshake without one
    fails; with optional one that is presented has to be valid."""

    tls_cert_file: str = ""
    """File (PEM) of the server's certificate, followed by any intermediate ones. It is read again when
    it changes: new connections get the new one, open ones keep theirs. If the new one cannot be used, the old one
    stays, and the log and /readyz?verbose say so."""

    tls_key_file: str = ""
    """File (PEM) of the certificate's private key, read again like tls-cert-file. Empty: it is in that file, too."""

    tls_key_password: SecretStr = SecretStr("")
    """Passphrase of the private key. It has no flag, since every user of the machine can read flags."""

    tls_ca_file: str = ""
    """File (PEM) of the CAs that issue clients' certificates, read again like tls-cert-file."""

    tls_crl_file: str = ""
    """File (PEM) of the revocation lists of those CAs, one of each, read again like tls-cert-file. Clients whose
    certificate is in one are refused, and so are all when a CA has none there or it has expired."""

    http_tls: Annotated[bool, NEEDS_RESTART] = False
    """Serve HTTPS on http-listen, with the certificate of tls-cert-file. If off, health and metrics are plain text."""

    http_tls_client_auth: Literal["none", "require"] = "none"
    """Whether HTTPS clients must present a certificate issued by tls-ca-file, independent of tls-client-auth. With
    require, health checks and collectors need one, too."""

    scan_interval_seconds: Annotated[float, NEEDS_RESTART] = Field(default=10.0, ge=0.1, le=3600)
    """Time between two scans for silent brokers. Higher: a dead broker stays in routes for up to that much longer;
    lower: scanning costs more."""

    broker_expiry_seconds: Annotated[float, NEEDS_RESTART] = Field(default=120.0, ge=0.1, le=86400)
    """Silence after which a broker is evicted, unless it registered with an expiry of its own. Higher: clients are sent
    to dead brokers for longer; lower: a healthy broker that pauses is evicted. Brokers send every 30 s: keep it above
    30."""

    evict_on_disconnect: Annotated[bool, NEEDS_RESTART] = True
    """Evict the brokers of a connection the moment it closes. If off, a crashed broker stays in routes until it
    expires, but a broken connection alone evicts no broker."""

    notify_min_broker_id_changed: bool = False
    """Notify the brokers of a group when its lowest broker id changes (request 905); if off, they learn it at their
    next poll."""

    support_acting_master: bool = False
    """When a group has lost its master, show the slave with the lowest id in its place, without write permission, if
    the group asked for that. If off, consumers that need a master stop until it is back."""

    wait_for_service_seconds: Annotated[float, NEEDS_RESTART] = Field(default=45.0, ge=0, le=3600)
    """After a restart, refuse route requests for up to this long while brokers that were registered before are missing;
    clients keep the routes they have. Lower: clients may get incomplete routes; 0 answers them at once."""

    drain_seconds: float = Field(default=5.0, ge=0, le=600)
    """Time over which connections are closed after SIGTERM. Higher: clients move to the other servers more gently;
    lower: the process ends sooner and they all move at once."""

    order_message_enable: bool = False
    """Put the order configuration of a topic into its route; if off, clients of ordered topics do not see it."""

    zone_fallback: str = ""
    """Which brokers clients of a zone (`rocketmq.zone`) get when their zone has too few masters or write queues of a
    topic: those of the neighbours in order, as in zone-1>zone-2>zone-3, then all. Rules are separated by semicolons;
    `*` is for all zones, and masters=2 or write-queues=8 raise the minimum from one. Empty: none, as from Apache's
    server, so that such clients stop sending."""

    delete_topic_with_broker_registration: bool = False
    """Drop a broker's topic as soon as its full registration no longer has it. If off, deleted topics stay in routes
    until they are deleted here too; if on, every full registration costs a look at all topics of that broker."""

    enable_topic_list: bool = True
    """Answer the lists of topics by cluster and of unit topics; if off, consoles and tools that need them fail."""

    enable_all_topic_list: bool = True
    """Answer the list of all topics; if off, consoles lose it, and no peer can make the server build a very large
    one."""

    max_brokers: int = Field(default=10_000, ge=1, le=1_000_000)
    """Live brokers in all, slaves included; one more is refused. Higher: unknown peers can take more memory and the
    snapshot grows; lower: brokers that come back may be refused."""

    max_topics: int = Field(default=1_000_000, ge=1, le=100_000_000)
    """Topics in all; a registration that would exceed it is refused. A million take 0.3 to 0.6 GB with their responses.
    Routes may be four times as many: a topic on three brokers has three. Logical queues of static topics may be as many
    as topics. One broker may have 100,000, or a tenth of this number if that is more. Higher: unknown peers can take
    more memory; lower: brokers with new topics are refused."""

    max_connections: int = Field(default=10_000, ge=1, le=1_000_000)
    """Open connections; one more is closed at once. Keep it below the limit of open files (ulimit -Hn), or no peer can
    connect when that is reached. Each takes a few KiB. The last tenth is reserved for brokers: a peer that takes one of
    these must begin like a broker, and the access file has to allow that; until a broker has registered over it, such a
    connection makes room for a newer one."""

    share_per_ip_percent: float = Field(default=10.0, ge=0.1, le=100)
    """Part of max-connections and of quota-requests-per-second that one address may have, in percent; of IPv6, one /64
    network. It keeps one machine from using up what all share. With 100 one address may have everything; too low, peers
    behind one NAT address or proxy are refused."""

    client_connection_max_age: float = Field(default=0.0, ge=0, le=604800)
    """Seconds after which the connection of a client is closed, give or take a fifth, once no request is under way; a
    watch is answered first. A client that requests all the time is interrupted after as long again. RocketMQ's clients
    then connect to the next server of their list, so that a server that was added gets its share. Connections of
    brokers stay. 0 closes none."""

    max_memory_bytes: Annotated[int, NEEDS_RESTART] = Field(default=512 * MIB, ge=64 * MIB, le=1 << 40)
    """Memory for routes and peers together: what the tables leave of it, and an eighth in any case, is for frames being
    received, responses not yet read and watches, an eighth of that for one address. When it is used up, new connections
    and large frames are refused and connected peers notice nothing. Higher: the process may grow; lower: many large
    registrations at once have to wait, and one of more than an eighth is never received."""

    heartbeat_log_dir: Annotated[str, NEEDS_RESTART] = "heartbeats"
    """Directory of the heartbeat log, which namesrv-staleness reads: heartbeats, evictions, and which client got which
    route. A relative path is below data-dir. An empty value turns it off, and with it every figure of how long stale
    routes lasted."""

    heartbeat_log_keep_days: float = Field(default=14.0, ge=0.01, le=3650)
    """Days for which files of the heartbeat log are kept. Lower: reports reach back less far."""

    heartbeat_log_max_bytes: int = Field(default=2 * 1024 * MIB, ge=MIB, le=1 << 50)
    """Total size of the heartbeat log's files; the oldest are deleted first. A hundred brokers write about 100 MB a
    day, and a tenth of that once it is compressed."""

    heartbeat_log_compact: Annotated[Literal["off", "keep", "drop"], NEEDS_RESTART] = "off"
    """Whether closed files of the heartbeat log become Parquet (namesrv-staleness compact), a seventh of their size, in
    a process of its own: with keep beside the compressed lines, with drop in their place. It needs namesrv-report."""

    # A server has access rules from its start, or never.
    access: Annotated[str, NEEDS_RESTART] = ""
    """TOML file of accounts and what each may do; it is read again on SIGHUP. With it, nothing is allowed that it does
    not grant. An empty value means none: anyone who reaches the port may do all that an Apache NameServer allows."""

    access_mode: Literal["enforce", "observe"] = "enforce"
    """With observe, what the access file does not grant is logged and counted, and allowed all the same: to find out
    who would be refused before they are."""

    takeover: Literal["allow", "warn", "refuse"] = "allow"
    """What becomes of a request over another connection that would take the place of a live broker, or remove it: one
    that was last seen in time, on an open connection. With refuse, a broker that comes back at another address before
    its old connection has ended has to wait until that one is late; with allow, as with Apache's server, anyone may
    displace a broker."""

    quotas: Literal["off", "observe", "enforce"] = "observe"
    """Whether the quotas below hold. With observe, requests that exceed one are counted and written to the audit trail,
    and served: to find out which peers would be refused before they are."""

    quota_requests_per_second: int = Field(default=50_000, ge=1, le=10_000_000)
    """Requests a second from all addresses together, after a burst of ten seconds' worth; one address may have its
    share of them, see share-per-ip-percent. What comes faster waits for up to a second, and is then refused with
    SYSTEM_BUSY: administration first, then requests of clients, and registrations and heartbeats of brokers last."""

    quota_brokers: int = Field(default=0, ge=0, le=1_000_000)
    """Brokers of one cluster, and of one account of the access file, slaves included; one more is refused. 0 leaves
    only max-brokers."""

    quota_topics: int = Field(default=0, ge=0, le=100_000_000)
    """Topics of all brokers of one cluster, and of one account, each counted for every broker name that has it; a
    registration that would exceed it is refused, and its broker stays as it was. 0 leaves only max-topics."""

    audit_log_dir: Annotated[str, NEEDS_RESTART] = "audit"
    """Directory of the audit trail, which `namesrvctl audit` reads: who changed what, and who was refused what. A
    relative path is below data-dir. An empty value turns it off, and no record of who did what remains."""

    audit_log_keep_days: float = Field(default=90.0, ge=0.01, le=3650)
    """Days for which files of the audit trail are kept, or until they take 256 MiB together."""

    admin_enabled: bool = False
    """Allow UPDATE_NAMESRV_CONFIG (318) to change settings of the running server without an access file: anyone who
    reaches the port can do so then. If off, only accounts that the access file lets do it can."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest level that is logged; debug also logs connections, registrations, route changes and snapshots."""

    log_format: Literal["auto", "text", "json"] = "auto"
    """One event per line, as text for people or as JSON for collectors; auto is text on a terminal and JSON
    otherwise."""

    @property
    def listen_hosts(self) -> tuple[str, ...]:
        """The addresses of `listen_host`, one by one."""
        return tuple(self.listen_host.split(","))

    @property
    def further_listeners(self) -> dict[str, int]:
        """The port of each of `listeners`, by its name."""
        return {name: int(port) for name, port in _named_ports(self.listeners)}

    @property
    def access_path(self) -> Path | None:
        """The access file; None without a file."""
        return _resolved(Path(self.access)) if self.access else None

    @property
    def heartbeat_log_path(self) -> Path | None:
        """The directory of `heartbeat_log_dir`; None if it is off."""
        return self.data_dir / _resolved(Path(self.heartbeat_log_dir)) if self.heartbeat_log_dir else None

    @property
    def tls_files(self) -> TlsFiles:
        """The files of `tls_cert_file` and the related settings."""
        given = (self.tls_cert_file, self.tls_key_file, self.tls_ca_file, self.tls_crl_file)
        cert, key, ca, crl = (_resolved(Path(it)) if it else None for it in given)
        return TlsFiles(cert, key, self.tls_key_password, ca, crl)

    @property
    def needs_certificate(self) -> bool:
        """True if a port of the server needs a certificate."""
        return self.tls_mode != "off" or self.http_tls

    @property
    def wants_client_certificates(self) -> bool:
        """True if a port of the server requests certificates of clients."""
        is_wanted = self.tls_mode != "off" and self.tls_client_auth != "none"
        return is_wanted or (self.http_tls and self.http_tls_client_auth != "none")

    @property
    def audit_log_path(self) -> Path | None:
        """The directory of `audit_log_dir`; None if it is off."""
        return self.data_dir / _resolved(Path(self.audit_log_dir)) if self.audit_log_dir else None

    @property
    def http_address(self) -> tuple[str, int] | None:
        """Host and port of `http_listen`; None if it is off."""
        return _host_and_port(self.http_listen) if self.http_listen else None

    @property
    def name_servers_address(self) -> tuple[str, int] | None:
        """Host and port of `name_servers_listen`; None if it is off."""
        return _host_and_port(self.name_servers_listen) if self.name_servers_listen else None

    @property
    def name_server_list(self) -> tuple[tuple[str, int], ...]:
        """Host and port of each NameServer in `name_servers`."""
        return tuple(_host_and_port(text) for text in self.name_servers.split(";") if text)

    # The functions below check values that pydantic would accept, or refuse in its own words. All messages are read
    # after the value.

    @field_validator("*", mode="before")
    @classmethod
    def _read(cls, value: Any, info: ValidationInfo) -> Any:
        kind = cls.model_fields[info.field_name or ""].annotation
        if value == "" and info.field_name not in _MAY_BE_EMPTY:
            raise ValueError("is empty")
        if isinstance(value, bool) and kind in {int, float}:  # pydantic takes true for 1
            raise ValueError("is not a number")
        if isinstance(value, str) and get_origin(kind) is Literal:
            return value.lower()
        return value

    @field_validator("listen_host")
    @classmethod
    def _check_hosts(cls, text: str) -> str:
        hosts = [host.strip() for host in text.split(",")]
        if any(host.startswith("[") for host in hosts):
            raise ValueError("is not a valid address or host name: write an IPv6 address without brackets here")
        if not all(is_host(host) for host in hosts):
            raise ValueError("is not a valid address or host name (separate several with commas)")
        if len(hosts) != len(set(hosts)):
            raise ValueError("contains the same address twice")
        return ",".join(hosts)

    @field_validator("listeners")
    @classmethod
    def _check_listeners(cls, text: str) -> str:
        listeners = _named_ports(text)
        for name, port in listeners:
            if not (_FILE_NAME.fullmatch(name) and port.isascii() and port.isdecimal() and int(port) <= MAX_PORT):
                raise ValueError(f"has no valid name and port in {quoted(f'{name}={port}')}, for example outside=9886")
        names = [name for name, _ in listeners] + [DEFAULT_LISTENER]
        if len(names) != len(set(names)):
            raise ValueError(f"contains a name twice, or {DEFAULT_LISTENER!r}, the name of the listener on listen-port")
        return ",".join(f"{name}={port}" for name, port in listeners)

    @field_validator("http_listen", "name_servers_listen")
    @classmethod
    def _check_endpoint(cls, text: str) -> str:
        if text and not is_endpoint(text):
            raise ValueError("is not a valid address and port, for example 127.0.0.1:9877 or [::1]:9877")
        return text

    @field_validator("name_servers")
    @classmethod
    def _check_name_servers(cls, text: str) -> str:
        servers = [server.strip() for server in text.split(";")] if text else []
        for server in servers:
            if not is_endpoint(server):
                raise ValueError(f"has no valid host and port in {quoted(server)}, for example ns1:9876;ns2:9876")
        if len(servers) != len(set(servers)):
            raise ValueError("contains the same NameServer twice")
        return ";".join(servers)

    @field_validator("zone_fallback")
    @classmethod
    def _check_zone_fallback(cls, text: str) -> str:
        read_zone_fallback(text)
        return text

    @field_validator("broker_metrics_target")
    @classmethod
    def _check_target(cls, text: str) -> str:
        example = text.format_map(_TARGET_FIELDS) if _TARGET.fullmatch(text) else ""
        if text and not is_endpoint(example):
            names = ", ".join(f"{{{name}}}" for name in _TARGET_FIELDS)
            raise ValueError(f"is not a valid host and port, for example {{host}}:5557 (with {names})")
        return text

    @field_validator("http_hosts")
    @classmethod
    def _check_host_names(cls, text: str) -> str:
        names = [name.strip() for name in text.split(",")] if text else []
        if not all(name == "*" or HOST_NAME.fullmatch(name.removeprefix("*.")) for name in names):
            raise ValueError("is not a valid list of host names, for example ns1.example.com,*.svc.cluster.local")
        return ",".join(names)

    @field_validator("nameserver_name")
    @classmethod
    def _check_name(cls, text: str) -> str:
        if not _FILE_NAME.fullmatch(text):
            raise ValueError("is not a valid name (1 to 64 letters, digits, dots, dashes and underscores)")
        return text

    @field_validator(*PATHS)
    @classmethod
    def _resolve_path(cls, path: Path | str) -> Path | str:
        resolved = _resolved(Path(path))
        return resolved if isinstance(path, Path) else path


def _named_ports(text: str) -> list[tuple[str, str]]:
    """Name and port of each listener in a list such as `outside=9886, partner=9896`."""
    listeners = (listener.partition("=") for listener in text.split(",")) if text else ()
    return [(name.strip(), port.strip()) for name, _, port in listeners]


def _host_and_port(endpoint: str) -> tuple[str, int]:
    host, _, port = endpoint.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _resolved(path: Path) -> Path:
    if "\0" in str(path):
        raise ValueError("is not a path")
    try:
        return path.expanduser()
    except RuntimeError:
        raise ValueError("begins with the home directory of an unknown user") from None
