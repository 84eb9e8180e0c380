"""Tests of disk/choice.py. A name that is a topic's and a partition's of another topic: commands that read take both,
and say so.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.internal_logs import write_log
from helpers.shell import expect, pylogseg

COMMANDS = {
    "cat": "cat DIR NAME",
    "grep": "grep v DIR NAME",
    "stats": "stats DIR NAME",
    "ls": "ls DIR NAME",
    "export": "export DIR NAME --out OUT",
    "report": "report DIR NAME -o OUT.html",
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_both_are_read_and_reported(tmp_path: Path, command: str) -> None:
    log_dir = tmp_path / "d"
    write_log(log_dir / "orders-0", [(b"k", b"v")] * 6)
    write_log(log_dir / "orders-0-0", [(b"k", b"v")] * 4)

    def err_of(*names: str) -> str:
        words = [name for word in command.split() for name in (names if word == "NAME" else [word])]
        out = str(tmp_path / f"out{len(names)}-{names[-1]}")
        words = [word.replace("DIR", str(log_dir)).replace("OUT", out) for word in words]
        return expect(pylogseg(*words), 0).err

    both = "orders-0 is a topic, and a partition of orders: the name means both; --topic orders-0 means the topic"
    assert err_of("orders-0").count(f"pylogseg: {both}\n") == 1
    for names in (["--topic", "orders-0"], ["orders"], ["orders-0-0"]):
        assert "means both" not in err_of(*names)
