"""Handlers of the key-value configuration (100, 101, 102, 219)."""

from collections.abc import Mapping

from namesrv.context import Namesrv
from namesrv.kv.store import KVLimitError, KVWriteError
from namesrv_remoting.aio.dispatch import SUCCESS, Handler, Reply, Request
from namesrv_remoting.bodies.dialects import dialect_of
from namesrv_remoting.codes import ORDER_TOPIC_CONFIG, RequestCode
from namesrv_remoting.errors import BadRequestError, QueryNotFoundError, SystemError_
from namesrv_remoting.headers.admin import (
    GetKVConfigResponseHeader,
    KVConfigKeyRequestHeader,
    NamespaceRequestHeader,
    PutKVConfigRequestHeader,
)


def handlers(namesrv: Namesrv) -> Mapping[RequestCode, Handler]:
    """The handlers of KV requests."""
    processor = KVConfigProcessor(namesrv)
    return {
        RequestCode.PUT_KV_CONFIG: processor.put,
        RequestCode.GET_KV_CONFIG: processor.get,
        RequestCode.DELETE_KV_CONFIG: processor.delete,
        RequestCode.GET_KVLIST_BY_NAMESPACE: processor.namespace,
    }


class KVConfigProcessor:
    """Reads and changes the configuration; a change is answered when it is on disk."""

    def __init__(self, namesrv: Namesrv) -> None:
        self._namesrv = namesrv

    async def put(self, request: Request) -> Reply:
        """100."""
        fields = request.command.ext_fields or {}
        if "namespace" not in fields or "key" not in fields:
            # Java's own words
            raise BadRequestError("namespace or key is null")
        header = PutKVConfigRequestHeader.from_ext(fields)
        try:
            await self._namesrv.kv.put(header.namespace, header.key, header.value)
        except KVLimitError as error:
            raise BadRequestError(f"field {error.field}: {error}") from error
        except KVWriteError as error:
            raise SystemError_(error.strerror) from error
        self._changed(header.namespace, header.key)
        return SUCCESS

    async def get(self, request: Request) -> Reply:
        """101."""
        header = KVConfigKeyRequestHeader.from_ext(request.command.ext_fields)
        value = self._namesrv.kv.get(header.namespace, header.key)
        if value is None:
            raise QueryNotFoundError(f"No config item, Namespace: {header.namespace} Key: {header.key}", ext_fields={})
        return Reply(ext_fields=GetKVConfigResponseHeader(value=value).to_ext())

    async def delete(self, request: Request) -> Reply:
        """102: also succeeds when there was nothing to delete."""
        header = KVConfigKeyRequestHeader.from_ext(request.command.ext_fields)
        try:
            if await self._namesrv.kv.delete(header.namespace, header.key):
                self._changed(header.namespace, header.key)
        except KVWriteError as error:
            raise SystemError_(error.strerror) from error
        return SUCCESS

    async def namespace(self, request: Request) -> Reply:
        """219."""
        header = NamespaceRequestHeader.from_ext(request.command.ext_fields)
        table = self._namesrv.kv.namespace(header.namespace)
        if table is None:
            raise QueryNotFoundError(f"No config item, Namespace: {header.namespace}")
        return Reply(dialect_of(request.command).kv_table(table))

    def _changed(self, namespace: str, key: str) -> None:
        # order configuration is part of the topic's route
        if namespace == ORDER_TOPIC_CONFIG and self._namesrv.live.order_message_enable:
            self._namesrv.manager.routes_may_differ((key,))
