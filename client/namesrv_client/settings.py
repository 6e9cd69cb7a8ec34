"""The settings of a route client."""

import os
import re
import socket
from collections.abc import Iterable
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from namesrv_remoting.aio.credentials import SigningSettings
from namesrv_remoting.aio.tls import TlsClientSettings
from namesrv_remoting.bodies.topic import MAX_TOPIC_CHARACTERS
from namesrv_remoting.codes import AUTO_CREATE_TOPIC
from namesrv_runtime.name_servers import REFRESH_SECONDS, check_source
from namesrv_runtime.settings import PathArgument

Seconds = Annotated[float, Field(gt=0, le=86_400)]


def default_client_name() -> str:
    """The name of the host and the id of this process."""
    host = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname()).lstrip("-._")
    return f"{host[:40] or 'client'}-{os.getpid()}"


class ClientSettings(SigningSettings, TlsClientSettings):
    """The settings of a route client. The constructor raises a ValueError that names each wrong value."""

    # "a:9876;b:9876", "env:NAME", "file:PATH", "dns:HOST:PORT" or an http(s) URL; empty is "env:NAMESRV_ADDR"
    name_servers: Annotated[str, AfterValidator(check_source)] = ""
    # "auto" finds out what each server speaks; "rocketmq" is for Apache's server
    protocol: Literal["native", "rocketmq", "auto"] = "auto"
    # The time without a response after which the next server gets the request, too. The time is at most half of
    # `call_timeout_seconds` divided by the number of servers, so that all are tried in the first half of a call.
    attempt_timeout_seconds: Seconds = 1.0
    # the longest time of a whole call, over all servers; of each request in a poll or refresh of many topics
    call_timeout_seconds: Seconds = 3.0
    # the longest time of one attempt to connect
    connect_timeout_seconds: Seconds = 1.0
    # the interval at which the routes of the topics in use are polled; the first poll comes after a random part of it
    poll_seconds: Seconds = 30.0
    # True: native servers report changes at once; polls continue
    watch: bool = False
    # the time for which a route is served without being confirmed by a server; None is for ever
    cache_ttl_seconds: Seconds | None = None
    # Responses of a server that has been up for a shorter time remove only brokers that this server has sent before,
    # because its brokers may not all have registered again.
    warm_up_seconds: Annotated[float, Field(ge=0, le=3600)] = 45.0
    # a file that keeps routes for a process that starts while all servers are down
    snapshot_file: PathArgument | None = None
    # directory of a log of route changes and failed sends, for namesrv-staleness; None writes no log
    heartbeat_log_dir: PathArgument | None = None
    # the name of this client in that log and in its file names; several clients of one process need a name each, since
    # the default is the same for all of them
    client_name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")] = Field(
        default_factory=default_client_name
    )
    # messages for topics that do not exist yet go to the brokers of this topic
    default_topic: Annotated[str, Field(max_length=MAX_TOPIC_CHARACTERS)] = AUTO_CREATE_TOPIC
    # the largest number of queues of such a topic
    default_topic_queue_nums: Annotated[int, Field(ge=1, le=65_535)] = 4
    # True: a broker gets no messages for a while after slow or failed sends
    fault_tolerance: bool = False
    # the table of latencies and pauses: that of RocketMQ 5.1.4 and later, or that of earlier versions
    fault_table: Literal["5", "4"] = "5"
    # the way in which a broker becomes reachable again: by time only, when a connection succeeds, or by `reached`
    probe: Literal["off", "connect", "own"] = "off"
    # the interval at which the list of NameServers is read again
    refresh_seconds: Seconds = REFRESH_SECONDS
    # Routes contain only brokers of this zone and groups without a master; None: all brokers. Servers refuse a name of
    # more than 255 characters. Pydantic's check of a length also refuses text that is not valid Unicode.
    zone_name: Annotated[str, Field(max_length=255)] | None = None

    @classmethod
    def of(cls, settings: "ClientSettings | str | Iterable[str]") -> "ClientSettings":
        """The settings themselves, or the defaults for these NameServers. Raises ValueError or TypeError."""
        if isinstance(settings, ClientSettings):
            return settings
        if isinstance(settings, str):
            return cls(name_servers=settings)
        try:
            addresses = ";".join(settings)
        except TypeError:
            problem = f"{settings!r} is neither ClientSettings nor an address or a list of addresses"
            raise TypeError(problem) from None
        if not addresses:
            raise ValueError("empty list of name servers")
        return cls(name_servers=addresses)

    @model_validator(mode="after")
    def _attempts_fit(self) -> Self:
        if self.attempt_timeout_seconds > self.call_timeout_seconds:
            raise ValueError(
                f"attempt_timeout_seconds {self.attempt_timeout_seconds:g} is more than "
                f"call_timeout_seconds {self.call_timeout_seconds:g}"
            )
        return self
