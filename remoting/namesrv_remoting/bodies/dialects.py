"""Encoding of bodies that exist in both protocols: JSON or native, as the question's header is."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from namesrv_remoting.bodies import route, tables
from namesrv_remoting.bodies.route import BrokerData, QueueData, TopicRouteData
from namesrv_remoting.bodies.topic import DataVersion
from namesrv_remoting.command import RemotingCommand


@dataclass(frozen=True, slots=True)
class Dialect:
    """The bodies in one spelling. What is read raises BadRequestError when it is none."""

    route: Callable[[TopicRouteData], bytes]
    cluster_info: Callable[[Iterable[BrokerData], Mapping[str, Iterable[str]]], bytes]
    # cluster, broker name, addresses
    member_group: Callable[[str, str, Mapping[int, str]], bytes]
    # topics, a broker's address
    topic_list: Callable[[Iterable[str], str | None], bytes]
    kv_table: Callable[[Mapping[str, str]], bytes]
    data_version: Callable[[DataVersion], bytes]
    read_data_version: Callable[[bytes], DataVersion | None]
    read_queue_datas: Callable[[bytes], list[QueueData]]


JSON: Final = Dialect(
    route=route.route_to_json,
    cluster_info=route.cluster_info_to_json,
    member_group=route.member_group_to_json,
    topic_list=tables.topic_list_to_json,
    kv_table=tables.kv_table_to_json,
    data_version=tables.data_version_to_json,
    read_data_version=tables.data_version_from_json,
    read_queue_datas=route.queue_datas_from_json,
)
NATIVE: Final = Dialect(
    route=route.route_to_native,
    cluster_info=route.cluster_info_to_native,
    member_group=route.member_group_to_native,
    topic_list=tables.topic_list_to_native,
    kv_table=tables.kv_table_to_native,
    data_version=tables.data_version_to_native,
    read_data_version=tables.data_version_from_native,
    read_queue_datas=route.queue_datas_from_native,
)


def dialect_of(question: RemotingCommand) -> Dialect:
    """The spelling of a question's body and of its answer's; a binary header goes with JSON bodies."""
    return NATIVE if question.is_native else JSON
