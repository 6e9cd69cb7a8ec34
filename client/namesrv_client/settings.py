"""The settings of a route client."""

import os
import re
import socket
from collections.abc import Iterable
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from namesrv_remoting.aio.credentials import SigningSettings
from namesrv_remoting.aio.tls import TlsClientSettings
from namesrv_runtime.name_servers import REFRESH_SECONDS, check_source
from namesrv_runtime.settings import PathArgument

Seconds = Annotated[float, Field(gt=0, le=86_400)]


def _default_client_name() -> str:
    host = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname()).lstrip("-._")
    return f"{host[:40] or 'client'}-{os.getpid()}"


class ClientSettings(SigningSettings, TlsClientSettings):
    """How routes are found and kept. Checked when made: a wrong value is a ValueError that names it."""

    # "a:9876;b:9876", "env:NAME", "file:PATH", "dns:HOST:PORT" or an http(s) URL; empty is "env:NAMESRV_ADDR"
    name_servers: Annotated[str, AfterValidator(check_source)] = ""
    # "auto" asks each server; "rocketmq" is for Apache's
    protocol: Literal["native", "rocketmq", "auto"] = "auto"
    # how long a server may be silent before the next one is asked as well; sooner when there are many
    attempt_timeout_seconds: Seconds = 1.0
    # how long a whole call may take, over all servers
    call_timeout_seconds: Seconds = 3.0
    # one attempt to connect
    connect_timeout_seconds: Seconds = 1.0
    # how often the routes of the topics in use are asked for; the first time after a random part of it
    poll_seconds: Seconds = 30.0
    # be told of changes at once, with the poll kept as the net under it; native servers only
    watch: bool = False
    # how long a route is served without a server confirming it; None: for ever
    cache_ttl_seconds: Seconds | None = None
    # a server that has run for less than this does not make a known route smaller: its brokers may not be back yet
    warm_up_seconds: Annotated[float, Field(ge=0, le=3600)] = 45.0
    # routes on disk, for a process that starts while all servers are down
    snapshot_file: PathArgument | None = None
    # what this client learns of routes, and sends that fail, for namesrv-staleness; None: nothing is written
    heartbeat_log_dir: PathArgument | None = None
    # who writes that log: part of its files' names, so that two clients must not share one
    client_name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")] = Field(
        default_factory=_default_client_name
    )
    # its brokers take messages for topics that do not exist yet
    default_topic: str = "TBW102"
    # how many of its queues such a topic has at most
    default_topic_queue_nums: Annotated[int, Field(ge=1, le=65_535)] = 4
    # a broker whose sends were slow or failed is left out for a while
    fault_tolerance: bool = False
    # the table of latencies and pauses: that of RocketMQ from 5.1.4 on, or the one before
    fault_table: Literal["5", "4"] = "5"
    # who finds out whether a broker can be reached again: nobody, this client, or the application, by calling `reached`
    probe: Literal["off", "connect", "own"] = "off"
    # how often the list of NameServers is read again
    refresh_seconds: Seconds = REFRESH_SECONDS
    # routes have the brokers of this zone, and those without a master; None: all
    zone_name: str | None = None

    @classmethod
    def of(cls, settings: "ClientSettings | str | Iterable[str]") -> "ClientSettings":
        """The settings themselves, or the defaults for these NameServers. Raises ValueError."""
        if isinstance(settings, ClientSettings):
            return settings
        return cls(name_servers=settings if isinstance(settings, str) else ";".join(settings))

    @model_validator(mode="after")
    def _attempts_fit(self) -> Self:
        if self.attempt_timeout_seconds > self.call_timeout_seconds:
            raise ValueError(
                f"attempt_timeout_seconds {self.attempt_timeout_seconds:g} is more than "
                f"call_timeout_seconds {self.call_timeout_seconds:g}"
            )
        return self
