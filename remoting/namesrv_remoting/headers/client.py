"""Ext fields of clients' route questions."""

import msgspec

from namesrv_remoting.headers.base import ExtHeader, Name


class GetRouteInfoRequestHeader(ExtHeader, frozen=True, gc=False, kw_only=True, rename="camel"):
    """105. The zone fields come from brokers and clients that run with `rocketmq.zone`."""

    topic: Name
    accept_standard_json_only: str | None = None
    zone_mode: str | None = msgspec.field(default=None, name="__ZONE_MODE")
    zone_name: str | None = msgspec.field(default=None, name="__ZONE_NAME")
