"""Tests of lakehouse/lake.py. Tables of logs that are wrong: the ledger covers only offsets that were read, and a high
watermark is a proof.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.depth import some_of
from helpers.harmed_batches import RECORDS, Harm, files_of, harms, put, write_log
from helpers.lake_tables import rows_of

import pylogseg
from pylogseg.errors import PylogsegError
from pylogseg.format.files.checkpoint import encode_offset_checkpoint
from pylogseg.lakehouse import lake

pytest.importorskip("deltalake")

PARTS = 4


def is_of_the_end(harm: Harm) -> bool:
    """Whether the high watermark can show a harm: what a cleaning leaves of a closed segment looks like one."""
    return not harm.is_hidden or (harm.name.startswith("130.log") and not harm.name.endswith(" 0 records"))


@pytest.mark.parametrize("on_corrupt", ["raise", "skip"])
@pytest.mark.parametrize("part", range(PARTS))
def test_no_record_below_the_high_watermark_is_left_out_without_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_corrupt: str, part: int
) -> None:
    monkeypatch.setattr(lake, "_LEAST_TASK_BYTES", 700)
    monkeypatch.setattr("pylogseg.reading.state._log.disabled", True)
    sound, wrong = files_of(write_log(tmp_path / "sound" / "t-0")), []
    checkpoint = encode_offset_checkpoint({("t", 0): RECORDS})
    for number, harm in list(enumerate(some_of(filter(is_of_the_end, harms(sound)), 48)))[part::PARTS]:
        disk, table = tmp_path / f"d{number}", f"delta:{tmp_path}/out{number}/t"
        put(harm.files, disk / "t-0")
        (disk / "replication-offset-checkpoint").write_bytes(checkpoint)
        try:
            (done,) = pylogseg.lake(disk, table, "t", on_corrupt=on_corrupt, jobs=1 + number % 2)  # type: ignore[arg-type]
        except PylogsegError:
            continue
        offsets = rows_of(table)["offset"].to_pylist()
        lost = sorted(set(range(RECORDS)) - set(offsets))
        if set(offsets) - set(range(RECORDS)) or (lost and (on_corrupt == "raise" or not done.problems)):
            wrong.append(f"{harm.name}: {len(lost)} lost, the ledger has {done.offsets}, {done.problems}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("harm", ["cut before", "cut inside", "base offset 209", "base offset 17"])
def test_a_log_that_ends_below_the_high_watermark_is_refused_each_time(tmp_path: Path, harm: str) -> None:
    """Also where the table has all that is left of the log."""
    sound = files_of(write_log(tmp_path / "sound" / "t-0"))
    disk, table = tmp_path / "d", f"delta:{tmp_path}/out/t"
    (found,) = (each for each in harms(sound) if each.name == f"130.log, batch 3: {harm}")
    put(found.files, disk / "t-0")
    mark = disk / "replication-offset-checkpoint"
    for committed in (RECORDS - 5, RECORDS):
        mark.write_bytes(encode_offset_checkpoint({("t", 0): committed}))
        if committed < RECORDS:
            assert pylogseg.lake(disk, table, "t")[0].offsets == {0: (0, committed)}
            continue
        for _ in range(2):
            with pytest.raises(PylogsegError):
                pylogseg.lake(disk, table, "t")
    assert rows_of(table).num_rows == RECORDS - 5
