"""Ext fields of operators' requests and of the answers to them."""

from namesrv_remoting.headers.base import ExtHeader, Int32, Name


class PutKVConfigRequestHeader(ExtHeader, frozen=True, gc=False, kw_only=True, rename="camel"):
    """100."""

    namespace: Name
    key: Name
    value: str


class KVConfigKeyRequestHeader(ExtHeader, frozen=True, gc=False, kw_only=True, rename="camel"):
    """101 and 102."""

    namespace: Name
    key: Name


class GetKVConfigResponseHeader(ExtHeader, frozen=True, gc=False, kw_only=True, rename="camel"):
    """101's answer."""

    value: str | None = None


class NamespaceRequestHeader(ExtHeader, frozen=True, gc=False, kw_only=True, rename="camel"):
    """219."""

    namespace: Name


class BrokerNameRequestHeader(ExtHeader, frozen=True, gc=False, kw_only=True, rename="camel"):
    """205 and 327."""

    broker_name: Name


class WipeWritePermResponseHeader(ExtHeader, frozen=True, gc=False, kw_only=True, rename="camel"):
    """205's answer: how many topics the broker has."""

    wipe_topic_count: Int32


class AddWritePermResponseHeader(ExtHeader, frozen=True, gc=False, kw_only=True, rename="camel"):
    """327's answer."""

    add_topic_count: Int32


class DeleteTopicRequestHeader(ExtHeader, frozen=True, gc=False, kw_only=True, rename="camel"):
    """216. With a cluster, only that cluster's brokers lose the topic."""

    topic: Name
    cluster_name: str | None = None


class RegisterTopicRequestHeader(ExtHeader, frozen=True, gc=False, kw_only=True, rename="camel"):
    """217."""

    topic: Name


class ClusterRequestHeader(ExtHeader, frozen=True, gc=False, kw_only=True, rename="camel"):
    """224."""

    cluster: Name
