"""Tests of cli/cluster_state.py and env/urls.py. Each command takes kafka://, or names the reason and the remedy: by
one rule, for all of them.
"""

from __future__ import annotations

import inspect
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.shell import expect
from helpers.shell import pylogseg as shell

import pylogseg.offline
from pylogseg.cli import _COMMANDS
from pylogseg.errors import PylogsegError, RequestError

#: Nobody listens there.
URL = "kafka://127.0.0.1:1/orders"
#: Arguments of each command that changes files, or needs them; `{to}` is a folder.
CHANGES = {
    "recover": [URL],
    "compact": [URL, "orders"],
    "retain": [URL, "orders", "--ms", "1"],
    "delete-records": [URL, "orders-0", "--offset", "1"],
    "merge": [URL, "--into", "{to}/new"],
    "move": [URL, "{to}", "orders"],
    "truncate": [URL, "orders-0", "--to", "1"],
    "reindex": [URL, "orders"],
    "redact": [URL, "orders", "--key", "a"],
    "recode": [URL, "orders", "--compression", "zstd"],
    "repair": [URL, "orders"],
    "quorum": ["rescue", URL, "--voter", "1@h:1", "--into", "{to}/new"],
}
READS = {
    "ls": [URL],
    "cat": [URL],
    "latest": [URL],
    "grep": ["a", URL],
    "sql": [URL, "select 1"],
    "dump": [URL],
    "verify": [URL],
    "copy": [URL, "{to}/new"],
    "diff": [URL, URL],
    "stats": [URL],
    "report": [URL, "-o", "{to}/report.html"],
    "groups": [URL],
    "transactions": [URL],
    "cluster": [URL],
    "schemas": [URL],
    "serve": [URL],
    "export": [URL, "-O", "{to}/out"],
    "audit": [URL, "{to}"],
    "lake": [URL, "delta:{to}/table"],
}
#: `archive` and `restore` say themselves which URLs they take; these have no source, or an archive.
OTHERS = {"broker", "archive", "restore", "drill"}
REMEDY = f"copy the topics first, by `pylogseg copy {URL} DIR`"


def test_every_command_is_here() -> None:
    assert {*CHANGES, *READS, *OTHERS} == {*_COMMANDS}


@pytest.mark.parametrize("command", CHANGES)
def test_a_command_that_changes_files(command: str, tmp_path: Path) -> None:
    done = expect(shell(command, *(word.format(to=tmp_path) for word in CHANGES[command])), 2)
    assert REMEDY in " ".join(done.err.split())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", READS)
def test_a_command_that_reads(command: str, tmp_path: Path) -> None:
    if command == "audit":
        pq.write_table(
            pa.table({"offset": [1], "partition": [0], "key": [b""], "value": [b""]}), tmp_path / "t.parquet"
        )
    expect(shell(command, *(word.format(to=tmp_path) for word in READS[command])), 2, "127.0.0.1:1: cannot connect")


@pytest.mark.parametrize(
    "words",
    [
        ["compact", "{data}", "cmp-short", "--into", URL],
        ["merge", "{data}", "--into", URL],
        ["copy", "{data}", URL],
        ["recover", "{data}", "--keep", URL],
        ["report", "{data}", "-o", URL],
    ],
)
def test_files_are_not_written_into_a_cluster(words: list[str], examples: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = expect(shell(*(word.format(data=examples) for word in words)), 2)
    assert "this is a running cluster: name a folder" in " ".join(done.err.split())
    assert not list(tmp_path.iterdir())


CALLS = {
    "delete_records": {"topic": "orders", "offsets": 1},
    "merge": {"into": "new"},
    "move": {"target": "new", "topic": "orders"},
    "recode": {"compression": "zstd"},
    "redact": {"keys": [b"a"]},
    "truncate": {"topic": "orders", "to": 1},
    "retain": {"ms": 1},
}
FUNCTIONS = [
    name
    for name in pylogseg.offline.__all__
    if inspect.isfunction(getattr(pylogseg.offline, name))
    and name not in ("copy", "diff", "diff_by_content", "restore", "restore_to_cluster")
]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_that_changes_files(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    function = getattr(pylogseg.offline, name)
    given = [URL] if name in ("merge", "rescue_quorum") else URL
    with pytest.raises(RequestError, match="copy the topics first"):
        function(given, **CALLS.get(name, {}))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["copy", "merge", "move", "restore"])
def test_a_function_does_not_write_into_a_cluster(name: str, examples: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    more = {"topic": "txn-a"} if name == "move" else {}
    with pytest.raises(PylogsegError):
        getattr(pylogseg.offline, name)([examples] if name == "merge" else examples, URL, **more)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", ["ls", "archive", "sql"])
def test_an_option_of_all_commands_behind_one(command: str, tmp_path: Path) -> None:
    expect(shell(command, URL, "--cluster", tmp_path), 2, f"before the command: pylogseg --cluster FILE {command}")
