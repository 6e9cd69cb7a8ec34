"""The commands that are understood as mqadmin spells them.

Those that ask NameServers and nobody else, with mqadmin's own options. What changes something asks first here, too:
--yes says that it is meant.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Final, Literal

import typer

from namesrv_client.ctl.commands import brokers, changes, configuration, topics
from namesrv_client.ctl.listing import absences_in, listing
from namesrv_client.ctl.options import Options
from namesrv_client.ctl.output import Report
from namesrv_client.ctl.running import show
from namesrv_client.ctl.servers import Servers
from namesrv_remoting.codes import ORDER_TOPIC_CONFIG

Topic = Annotated[str, typer.Option("--topic", "-t", help="Name of a topic.", show_default=False)]
Broker = Annotated[str, typer.Option("--brokerName", "-b", help="Name of a broker group.", show_default=False)]
Cluster = Annotated[str | None, typer.Option("--clusterName", "-c", help="Only this cluster.", show_default=False)]
Namespace = Annotated[
    str, typer.Option("--namespace", "-s", help="Namespace, such as ORDER_TOPIC_CONFIG.", show_default=False)
]
Key = Annotated[str, typer.Option("--key", "-k", help="Key in the namespace.", show_default=False)]
Value = Annotated[str, typer.Option("--value", "-v", help="New value.", show_default=False)]


def cluster_list(options: Options, cluster: Cluster = None) -> None:
    """As clusters."""
    brokers.clusters(options, cluster)


def topic_list(options: Options) -> None:
    """As topics."""
    topics.topics(options)


def topic_route(options: Options, topic: Topic) -> None:
    """As route."""
    topics.route(options, [topic])


def topic_cluster_list(options: Options, topic: Topic) -> None:
    """The clusters that have a topic. Exits with 1 if a server does not know it."""

    async def ask(servers: Servers) -> Report:
        answers = await servers.ask(lambda server: server.routes([topic]))
        return listing(
            answers,
            "clusters",
            document=_clusters,
            columns=("cluster",),
            rows=lambda found: ((name,) for name in _clusters(found)),
            absences=absences_in(answers, topics.absent_topics),
        )

    show(options, ask)


def _clusters(found: topics.Routes) -> list[str]:
    return sorted({group.cluster for data in found.values() if data is not None for group in data.broker_datas})


def wipe_write_perm(options: Options, broker: Broker) -> None:
    """As wipe-write-perm."""
    changes.wipe_write_perm(options, broker)


def add_write_perm(options: Options, broker: Broker) -> None:
    """As add-write-perm."""
    changes.add_write_perm(options, broker)


def delete_topic(options: Options, topic: Topic, cluster: Cluster = None) -> None:
    """As delete-topic: on NameServers only, where mqadmin deletes on the cluster's brokers, too."""
    changes.delete_topic(options, topic, cluster)


def update_kv_config(options: Options, namespace: Namespace, key: Key, value: Value) -> None:
    """As kv put."""
    configuration.kv_put(options, namespace, key, value)


def delete_kv_config(options: Options, namespace: Namespace, key: Key) -> None:
    """As kv delete."""
    configuration.kv_delete(options, namespace, key)


def get_namesrv_config(options: Options) -> None:
    """As config show."""
    configuration.show_config(options)


def update_namesrv_config(options: Options, key: Key, value: Value) -> None:
    """As config set."""
    configuration.change_settings(options, {key: value})


def update_order_conf(
    options: Options,
    topic: Topic,
    method: Annotated[
        Literal["get", "put", "delete"], typer.Option("--method", "-m", help="What to do with the order configuration.")
    ],
    value: Annotated[
        str | None, typer.Option("--orderConf", "-v", help="Such as broker-a:4;broker-b:4.", show_default=False)
    ] = None,
) -> None:
    """As kv, in the namespace ORDER_TOPIC_CONFIG."""
    if method == "get":
        configuration.kv_get(options, ORDER_TOPIC_CONFIG, topic)
    elif method == "delete":
        configuration.kv_delete(options, ORDER_TOPIC_CONFIG, topic)
    elif not value:
        raise typer.BadParameter("required with --method put", param_hint="--orderConf")
    else:
        configuration.kv_put(options, ORDER_TOPIC_CONFIG, topic, value)


COMMANDS: Final[Mapping[str, Callable[..., None]]] = {
    "clusterList": cluster_list,
    "topicList": topic_list,
    "topicRoute": topic_route,
    "topicClusterList": topic_cluster_list,
    "wipeWritePerm": wipe_write_perm,
    "addWritePerm": add_write_perm,
    "deleteTopic": delete_topic,
    "updateKvConfig": update_kv_config,
    "deleteKvConfig": delete_kv_config,
    "getNamesrvConfig": get_namesrv_config,
    "updateNamesrvConfig": update_namesrv_config,
    "updateOrderConf": update_order_conf,
}
