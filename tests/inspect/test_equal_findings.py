"""Tests of inspect/verify/findings.py. Findings that are the same of many files: people read one with a count, programs
each.
"""

from __future__ import annotations

from pathlib import Path

from helpers.damaged_logs import change_byte
from helpers.shell import pylogseg as shell

import pylogseg


def test_equal_findings_are_one_for_people(tmp_path: Path) -> None:
    """Damaged batches stay apart."""
    disk = tmp_path / "disk"
    for number in range(6):
        with pylogseg.open_log(disk / f"t-{number}") as log:
            for value in (b"a", b"b"):
                log.append([(None, None, value)])
        (disk / f"t-{number}" / "00000000000000000000.timeindex").unlink()
        change_byte(disk / f"t-{number}" / "00000000000000000000.log", 100)
    done, rows = shell("verify", disk), shell("verify", disk, "--json").rows
    assert (done.code, done.text.count("DAMAGE")) == (1, 6)
    assert (done.text.count("missing-index"), done.text.count("also: ")) == (1, 4)
    assert "and 5 more with the same reason" in done.text
    assert sum(row.get("kind") == "missing-index" for row in rows) == 6
    quiet = shell("verify", disk, "--quiet").text
    assert (quiet.count("DAMAGE"), "missing-index" in quiet) == (6, False)
