"""The log line of an operator's change: who, and what."""

import logging
from typing import Final

from namesrv_remoting.aio.dispatch import Request
from namesrv_remoting.codes import RequestCode
from namesrv_runtime.log import event

logger: Final = logging.getLogger(__name__)

# of a field, and of a body that is text; values of the KV configuration may be long
_SHOWN_CHARACTERS: Final = 200


def log_change(request: Request) -> None:
    """Log a change that has been made."""
    command, connection = request.command, request.connection
    asked = {name: str(value)[:_SHOWN_CHARACTERS] for name, value in (command.ext_fields or {}).items()}
    if command.code == RequestCode.UPDATE_NAMESRV_CONFIG:
        asked["settings"] = command.body[:_SHOWN_CHARACTERS].decode(errors="replace")
    event(
        logger,
        logging.INFO,
        "operator_changed",
        request=RequestCode(command.code).name,
        peer=connection.peer,
        proxied=connection.proxied,
        role=connection.role,
        asked=asked,
    )
