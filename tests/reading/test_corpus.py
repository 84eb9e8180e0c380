"""Tests of walker/batch_search.py. Files that other brokers wrote, from 0.10 to 4.2: the counts of an independent
reader, through our functions.
"""

import hashlib
import json
from collections import Counter

import numpy as np
import pytest

import pylogseg
from pylogseg.env.filesystem import LocalFiles
from pylogseg.errors import CorruptionError, Ending, Verdict
from pylogseg.format.batches import scan
from pylogseg.format.codecs import CODEC_NAMES
from pylogseg.format.control import decode_control_key
from pylogseg.format.records import decode
from pylogseg.walker.gaps import GapKind
from pylogseg.walker.windows import walk

KAFKA = ("log", "kraft_checkpoint", "wire_record_set")
TIMES = {-1: "none", 0: "create", 1: "log_append"}
#: A JavaScript client's sample whose batch says that it is not compressed, but is.
NOT_WHAT_IT_SAYS = "wire/tulios__kafkajs/derived/v0_recordbatch_zstd.json.recordset.bin"


@pytest.fixture(scope="module")
def expected(corpus):
    return json.loads((corpus / "expected.json").read_text(encoding="utf-8"))


def of_kinds(expected, *kinds):
    rows = [row for row in expected if row["kind"] in kinds]
    assert rows
    return rows


def counted(values):
    return {str(value): count for value, count in Counter(values).items()}


def summary(data):
    """What expected.json says of a file of batches, as we see it."""
    found = scan(data)
    table = found.batches
    columns, damage = decode(table, data)
    out = {
        "batches": len(table),
        "records": len(columns),
        "crc_bad": int((table.verdict == Verdict.CRC_BAD).sum()),
        "producers": len(np.unique(table.producer_id[table.producer_id >= 0])),
        "tail_bytes": len(data) - found.position,
        "size": len(data),
        "sha1": hashlib.sha1(data).hexdigest(),
        "offset_gaps": offset_gaps(table, columns),
    }
    if not len(table):
        return out, found.ending, damage
    out["codecs"] = counted(CODEC_NAMES[codec] for codec in table.codec.tolist())
    out["magic"] = counted(table.magic.tolist())
    out["timestamp_types"] = counted(TIMES[kind] for kind in table.timestamp_type.tolist())
    out |= extent(table, columns)
    epochs = table.leader_epoch[table.magic == 2].tolist()
    if epochs:
        # As there: of more than a dozen epochs only the extent.
        some = {"distinct": len(set(epochs)), "max": max(epochs), "min": min(epochs)}
        out["leader_epochs"] = counted(epochs) if len(set(epochs)) <= 12 else some
    out["counters"] = {name: count for name, count in counters(table, columns).items() if count}
    return out, found.ending, damage


def extent(table, columns):
    """Lowest and highest offset and timestamp; only records tell the lowest of a compressed legacy wrapper."""
    firsts = [*columns.offset.tolist(), *table.base_offset[table.magic == 2].tolist()]
    out = {"max_offset": int(table.last_offset.max()), "min_offset": min(firsts)}
    # As there: those in headers, but not a delete horizon that stands in the place of a base timestamp.
    plain = ~table.has_delete_horizon
    moments = [moment for moment in table.base_timestamp[plain].tolist() if moment >= 0]
    if moments:
        out |= {"min_ts": min(moments), "max_ts": int(table.max_timestamp[plain].max())}
    return out


def offset_gaps(table, columns):
    """How often a batch does not begin behind the one before."""
    firsts = np.array([columns.offset[columns.batch == row].min(initial=2**63 - 1) for row in range(len(table))])
    firsts[table.magic == 2] = table.base_offset[table.magic == 2]
    return int((firsts[1:] != table.last_offset[:-1] + 1).sum())


def counters(table, columns):
    """What is special about batches and records."""
    control = table.is_control[columns.batch]
    nulls, null_keys = columns.value_size < 0, columns.key_size < 0
    modern, span = table.magic == 2, table.last_offset - table.base_offset + 1
    legacy = (table.magic[columns.batch] < 2) & (table.codec[columns.batch] > 0)
    out = Counter(
        headers=int(columns.header_count.sum()),
        records_with_headers=int((columns.header_count > 0).sum()),
        null_keys=int(null_keys.sum()),
        null_values=int((nulls & ~control).sum()),
        tombstones=int((nulls & ~null_keys & ~control).sum()),
        empty_values=int((columns.value_size == 0).sum()),
        inner_messages=int(legacy.sum()),
        control_batches=int(table.is_control.sum()),
        transactional_batches=int(table.is_transactional.sum()),
        idempotent_batches=int((table.producer_id >= 0).sum()),
        delete_horizon_batches=int(table.has_delete_horizon.sum()),
        batches_with_inner_gaps=int((table.count[modern] < span[modern]).sum()),
    )
    for i in np.flatnonzero(control).tolist():
        out[f"ctrl_{decode_control_key(columns.key(i)).kind.name}"] += 1
    return out


def differences(row, got):
    """Fields of both rows that differ; what is said of the contents of records is not ours to say."""
    wanted = {name: value for name, value in row.items() if name not in ("kind", "path", "semantics", "tail", "errors")}
    wanted.get("counters", {}).pop("relative_inner_offsets", None)  # the offsets that they become are compared
    names = wanted.keys() | got.keys()
    return {name: (wanted.get(name), got.get(name)) for name in names if wanted.get(name, {}) != got.get(name, {})}


def test_counts(corpus, expected):
    """Batches, records, codecs, magic, CRCs, offsets, timestamps, epochs, counters, tails."""
    codecs, magics = Counter(), Counter()
    for row in of_kinds(expected, *KAFKA):
        got, ending, damage = summary((corpus / row["path"]).read_bytes())
        if row["path"] == NOT_WHAT_IT_SAYS:
            assert [bad.row for bad in damage] == [0]
            continue
        assert not damage, row["path"]
        assert differences(row, got) == {}, row["path"]
        assert ending is (Ending.TORN if row["tail_bytes"] else Ending.COMPLETE), row["path"]
        codecs.update(got.get("codecs"))
        magics.update(got.get("magic"))
    assert set(codecs) == set(CODEC_NAMES)
    assert set(magics) == {"0", "1", "2"}


def test_walk_and_read_see_the_same(corpus, expected):
    """The reader gives every record that is under a good CRC; the one bad CRC is told, and where it is."""
    for row in of_kinds(expected, *KAFKA):
        path = corpus / row["path"]
        if row["path"] == NOT_WHAT_IT_SAYS:
            with pytest.raises(CorruptionError, match="fields run past its end"):
                list(pylogseg.read(path, from_log_start=False))
            continue
        reader = pylogseg.read(path, control=True, on_corrupt="skip", from_log_start=False)
        offsets = [record.offset for record in reader]
        assert len(offsets) == row["records"] - row["crc_bad"], path
        kinds = [GapKind.CRC_BAD] * row["crc_bad"] + [GapKind.TORN] * bool(row["tail_bytes"])
        assert [gap.kind for gap in reader.gaps] == kinds, path
        if offsets and not row["crc_bad"]:
            assert min(offsets) >= row["min_offset"]
            assert max(offsets) <= row["max_offset"]


def test_redpanda_is_named_and_refused(corpus, expected):
    for row in of_kinds(expected, "redpanda_log"):
        data = (corpus / row["path"]).read_bytes()
        found = scan(data)
        assert (len(found.batches), found.ending) == (0, Ending.FOREIGN), row["path"]
        with LocalFiles().open(str(corpus / row["path"]), sealed=True) as view:
            items = list(walk(view))
        assert [item[1:4] for item in items] == [(GapKind.FOREIGN, 0, len(data))], row["path"]
        with pytest.raises(CorruptionError, match="Redpanda"):
            list(pylogseg.read(corpus / row["path"]))


@pytest.mark.parametrize("isolation_level", ["read_uncommitted", "read_committed"])
def test_whole_disks(corpus, expected, isolation_level):
    """Partitions by their folders: what the live segments hold, transactions decided from the files."""
    broker = "kraft-3.7-transactions/server-1"
    disk = pylogseg.open_dir(corpus / broker)
    live = {segment.path for partition in disk.partitions if not partition.state for segment in partition.segments}
    rows = [row for row in of_kinds(expected, "log") if str(corpus / row["path"]) in live]
    assert len(rows) == len(live) > 40
    control = sum(count for row in rows for name, count in row.get("counters", {}).items() if name.startswith("ctrl_"))
    records = list(pylogseg.read(disk, isolation_level=isolation_level, from_log_start=False))
    total = sum(row["records"] for row in rows) - control
    aborted = sum(row.get("counters", {}).get("ctrl_ABORT", 0) for row in rows)
    assert aborted > 0
    assert (
        len(records) == total if isolation_level == "read_uncommitted" else total - 10 * aborted < len(records) < total
    )
