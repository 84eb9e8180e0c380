"""The table of schemas, from a registry's topic `_schemas`."""

from __future__ import annotations

import pyarrow as pa

from pylogseg.disk.disk import Disk
from pylogseg.values.internal.cut_off import CutOff
from pylogseg.values.internal.notes import Notes
from pylogseg.values.internal.state_columns import SCHEMAS, state_table
from pylogseg.values.schemas.topic import TOPIC, SchemaTopic


def schemas_table(disk: Disk, cut_off: CutOff, notes: Notes) -> pa.Table:
    """The schemas of a disk; those deleted for good, whose text the log still has, come last."""
    topic = SchemaTopic.of_disk(disk, cut_off.ends.get(f"{TOPIC}-0"), cut_off.until_ms)
    if topic is None:
        return state_table((), SCHEMAS)
    notes += [note for note in topic.notes if note not in notes]
    notes.add_damage(*topic.damage)
    notes.has_left_out = notes.has_left_out or bool(topic.left_out)
    rows = [
        {
            "context": schema.context,
            "subject": schema.subject,
            "version": schema.version,
            "id": schema.id,
            "type": schema.type,
            "deleted": schema.deleted,
            "references": [reference._asdict() for reference in schema.references],
            "guid": schema.guid,
            "schema": schema.text,
        }
        for schema in (*topic, *topic.gone)
    ]
    return state_table(rows, SCHEMAS)
