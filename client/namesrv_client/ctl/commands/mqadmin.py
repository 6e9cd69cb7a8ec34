"""Commands with the names and options of mqadmin.

They are mqadmin's commands that send requests to NameServers only. Changes must be confirmed here, too; --yes confirms
them.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, Literal

import typer

from namesrv_client.ctl.commands import brokers, config, topics
from namesrv_client.ctl.completing import broker_names, cluster_names, topic_names
from namesrv_client.ctl.nameserver import NameServer
from namesrv_client.ctl.options import Options
from namesrv_client.ctl.running import show_list
from namesrv_remoting.codes import ORDER_TOPIC_CONFIG


def _option(*names: str, help: str, names_of: Callable[..., list[str]] | None = None) -> Any:  # noqa: A002 - as typer
    return typer.Option(*names, help=help, show_default=False, autocompletion=names_of)


_TOPIC: Final = _option("--topic", "-t", help="Name of a topic.", names_of=topic_names)
_KEY: Final = _option("--key", "-k", help="Key in the namespace, or name of a setting.")
_VALUE: Final = _option("--value", "-v", help="New value.")
_NAMESPACE: Final = _option("--namespace", "-s", help="Namespace, such as ORDER_TOPIC_CONFIG.")
_BROKER: Final = {
    "broker": Annotated[str, _option("--brokerName", "-b", help="Name of a broker group.", names_of=broker_names)]
}
_CLUSTER: Final = {
    "cluster": Annotated[str | None, _option("--clusterName", "-c", help="Only this cluster.", names_of=cluster_names)]
}
_ENTRY: Final = {"namespace": Annotated[str, _NAMESPACE], "key": Annotated[str, _KEY]}


def topic_cluster_list(options: Options, topic: str) -> None:
    """List the clusters that have a topic. Exits with 1 if a server does not know the topic."""

    def clusters(routes: topics.Routes) -> list[str]:
        return sorted({group.cluster for data in routes.values() if data is not None for group in data.broker_datas})

    show_list(
        options,
        lambda server: server.routes([topic]),
        "clusters",
        {"cluster": lambda name: name},
        clusters,
        document=clusters,
        absent=topics.absent_topics,
    )


def topic_list(options: Options, *, by_cluster: bool = False) -> None:
    """List all topics; with -c by cluster. mqadmin adds consumer groups, which only brokers know."""
    if not by_cluster:
        topics.topics(options)

    async def by_clusters(server: NameServer) -> list[tuple[str, str]]:
        names = sorted((await server.cluster_info()).cluster_addr_table)
        return [(name, topic) for name in names for topic in await server.topics(name)]

    show_list(
        options,
        by_clusters,
        "topics",
        {"cluster": lambda it: it[0], "topic": lambda it: it[1]},
        lambda rows: rows,
        document=lambda rows: [{"cluster": cluster, "topic": topic} for cluster, topic in rows],
    )


def get_namesrv_config(options: Options) -> None:
    """Show all settings of each server; the same as config show --all."""
    config.show_config(options, shows_all=True)


def update_namesrv_config(options: Options, key: str, value: str) -> None:
    """Change a setting of each server; the same as config set."""
    config.set_config(options, [f"{key}={value}"])


def update_order_conf(options: Options, topic: str, method: str, value: str | None = None) -> None:
    """Read or change the order configuration of a topic; the same as kv in the namespace ORDER_TOPIC_CONFIG."""
    if method == "get":
        config.kv_get(options, ORDER_TOPIC_CONFIG, topic)
    elif method == "delete":
        config.kv_delete(options, ORDER_TOPIC_CONFIG, topic)
    elif not value:
        raise typer.BadParameter("required with --method put", param_hint="--orderConf")
    else:
        config.kv_put(options, ORDER_TOPIC_CONFIG, topic, value)


# mqadmin's name -> the function, and its parameters with mqadmin's options; other parameters have their defaults.
COMMANDS: Final[Mapping[str, tuple[Callable[..., None], Mapping[str, Any]]]] = {
    "clusterList": (brokers.clusters, _CLUSTER),
    "topicList": (
        topic_list,
        {"by_cluster": Annotated[bool, _option("--clusterModel", "-c", help="List the topics of each cluster.")]},
    ),
    "topicRoute": (topics.route, {"topics": Annotated[list[str], _TOPIC]}),
    "topicClusterList": (topic_cluster_list, {"topic": Annotated[str, _TOPIC]}),
    "wipeWritePerm": (brokers.wipe_write_perm, _BROKER),
    "addWritePerm": (brokers.add_write_perm, _BROKER),
    "deleteTopic": (topics.delete_topic, {"topic": Annotated[str, _TOPIC], **_CLUSTER}),
    "updateKvConfig": (config.kv_put, {**_ENTRY, "value": Annotated[str, _VALUE]}),
    "deleteKvConfig": (config.kv_delete, _ENTRY),
    "getNamesrvConfig": (get_namesrv_config, {}),
    "updateNamesrvConfig": (update_namesrv_config, {"key": Annotated[str, _KEY], "value": Annotated[str, _VALUE]}),
    "updateOrderConf": (
        update_order_conf,
        {
            "topic": Annotated[str, _TOPIC],
            "method": Annotated[
                Literal["get", "put", "delete"],
                _option("--method", "-m", help="Action on the order configuration."),
            ],
            "value": Annotated[str | None, _option("--orderConf", "-v", help="Such as broker-a:4;broker-b:4.")],
        },
    ),
}
