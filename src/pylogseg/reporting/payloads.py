"""The newest records of a partition, for a report that was asked to show some."""

from __future__ import annotations

from pylogseg.catalog.disk import Partition
from pylogseg.format.escape import printable
from pylogseg.reading.stream import read
from pylogseg.reporting.facts import Payload
from pylogseg.reporting.partitions import text_of
from pylogseg.stats.listing import PartitionRow


def newest_records(partition: Partition, row: PartitionRow, count: int, limit_bytes: int) -> tuple[Payload, ...]:
    """Return the records with the last offsets of a partition, as escaped and shortened text; damage is skipped."""
    end = row.log_end_offset or 0
    first = max(row.log_start_offset, end - count)
    reader = read(partition, offset=(first, end), on_corrupt="skip", max_decompressed_bytes=limit_bytes, limit=count)
    return tuple(
        Payload(
            record.offset,
            None if record.timestamp < 0 else record.timestamp,
            None if record.key is None else printable(text_of(record.key)),
            None if record.value is None else printable(text_of(record.value)),
            len(record.key or b""),
            len(record.value or b""),
            tuple(
                (printable(name), None if value is None else printable(text_of(value)))
                for name, value in record.headers
            ),
        )
        for record in reader
    )
