"""Typed values, and tables of what brokers write for themselves; for ratios see `asv_benchmarks/table.py`."""

from __future__ import annotations

import json
import shutil
import tempfile
from itertools import islice
from pathlib import Path

import cluster_state
import pyarrow as pa
import typed
from memory import page_faults

import pylogseg
from pylogseg.values.decoding import Decoder, Decoding
from pylogseg.values.internal.image import Image
from pylogseg.values.schemas.schema import Schema
from pylogseg.values.schemas.store import Schemas

RECORDS = 100_000


class Typed:
    """Payloads of 32,768 records at a time to Arrow arrays."""

    params = ("avro_flat", "avro_nested", "protobuf_flat", "json_flat")
    param_names = ("of",)

    def setup(self, of: str) -> None:
        """The payloads and what decodes them."""
        self.folder = Path(tempfile.mkdtemp())
        schemas = {
            "avro_flat": Schema(json.dumps(typed.record(typed.FLAT))),
            "avro_nested": Schema(json.dumps(typed.record(typed.NESTED))),
            "protobuf_flat": Schema(typed.PROTO, "PROTOBUF"),
            "json_flat": Schema(json.dumps(typed.JSON), "JSON"),
        }
        self.pieces = typed.pieces(getattr(typed, of), RECORDS)
        self.decoder = Decoder(Schemas(), schemas[of], Decoding(frame="plain"), "value")

    def teardown(self, of: str) -> None:
        """Nothing is left."""
        shutil.rmtree(self.folder)

    def time_decode(self, of: str) -> None:
        """To nested columns."""
        for piece in self.pieces:
            self.decoder.decode(piece)

    def track_page_faults(self, of: str) -> float:
        """Pages that the system clears anew for columns: what was freed is kept."""
        return page_faults(lambda: self.time_decode(of))

    track_page_faults.unit = "faults"


class ClusterState:
    """Commits of 400 groups, and a metadata log with changes of partitions."""

    def setup(self) -> None:
        """Both logs."""
        self.folder = Path(tempfile.mkdtemp())
        some = list(islice(cluster_state.commits(20_000), RECORDS))
        self.offsets = cluster_state.written(self.folder / f"{cluster_state.TOPIC}-0", RECORDS, some)
        changes = list(cluster_state.metadata(RECORDS))
        self.cluster = cluster_state.written(self.folder / "__cluster_metadata-0", RECORDS, changes)

    def teardown(self) -> None:
        """Remove them."""
        shutil.rmtree(self.folder)

    def time_records_by_type(self) -> None:
        """A table for each type of record."""
        cluster_state.to_columns(self.offsets)

    def time_records_as_columns(self) -> None:
        """Keys and values as structs."""
        self._decode("__consumer_offsets")

    def time_metadata_as_columns(self) -> None:
        """Values of one type after the other as structs."""
        self._decode("__cluster_metadata")

    def time_groups(self) -> None:
        """Offsets of groups: the last of each key."""
        pylogseg.cluster_state(self.folder).table("group_offsets")

    def time_state_of_the_cluster(self) -> None:
        """The metadata log, applied."""
        Image.read(str(self.cluster.parent))

    def _decode(self, topic: str) -> None:
        found: pa.RecordBatchReader = pylogseg.read_arrow(self.folder, topic, decoding=("key", "value"))
        for _ in found:
            pass
