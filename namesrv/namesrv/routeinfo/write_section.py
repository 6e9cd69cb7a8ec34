"""A write section: the tables and rules of a change, and the publication of new routes and removed permissions."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from namesrv.routeinfo.rules import Rules
from namesrv.routeinfo.shares import Holdings
from namesrv.routeinfo.tables.effects import Effect, RouteChanged, WritePermissionChanged
from namesrv.routeinfo.tables.route_tables import Prepared, RouteTables
from namesrv.routeinfo.tables.rows import RowChanges
from namesrv.routeinfo.tables.write_removal import WriteRemoval


@dataclass(slots=True)
class WriteSection:
    """The tables and rules for changes under the write lock, or for one change that never yields.

    The manager performs the effects when the section has ended.
    """

    tables: RouteTables
    rules: Rules
    # Sizes by owner, kept from section to section.
    holdings: Holdings
    # Receives new rows and their revision before the rows get the revision; the callee may only record them.
    on_publish: Callable[[int, RowChanges], None] | None
    # The changes and refusals so far.
    effects: list[Effect] = field(default_factory=list)

    def apply(self, prepared: Prepared, broker_name: str | None = None) -> int:
        """Apply prepared changes in one step, and publish the new routes; return their revision, 0 without any.

        `broker_name` is the group that caused the changes, if a group did.
        """
        self.tables.apply(prepared)
        return self.publish(prepared.topics.row_changes, broker_name)

    def publish(self, row_changes: RowChanges, broker_name: str | None = None) -> int:
        """Publish the new rows, if there are any, under a new revision, without a step per topic; return it, or 0."""
        topics = row_changes.rows.keys()
        if not topics:
            return 0
        revisions = self.tables.revisions
        if self.on_publish is not None:
            self.on_publish(revisions.revision + 1, row_changes)
        revision = revisions.changed(row_changes)
        topics_lost = bool(row_changes.gone)
        self.effects.append(RouteChanged(topics, revision, row_changes.chunks, broker_name, topics_lost))
        return revision

    def set_write_removal(
        self, broker_name: str, removal: WriteRemoval | None, reason: Literal["operator", "unregistered", "expired"]
    ) -> None:
        """Set the removal of a group's write permission, or end it (None); a start and an end are effects."""
        removed = self.tables.write_removed
        was_removed, is_removed = broker_name in removed, removal is not None
        if removal is None:
            removed.pop(broker_name, None)
        else:
            removed[broker_name] = removal
        if was_removed != is_removed:
            self.tables.versions.membership += 1
            topics = len(self.tables.topics.of_broker.get(broker_name, ()))
            self.effects.append(WritePermissionChanged(broker_name, topics, is_removed=is_removed, reason=reason))
