"""Tests of cli/dump.py, inspect/dump/batches.py, inspect/dump/entries.py, inspect/dump/kafka_index.py,
inspect/dump/kafka_options.py, inspect/dump/kafka_style.py, inspect/dump/native.py and walker/broker_windows.py.
`pylogseg dump`: the lines of Kafka's tool, rows of every file, and damage.
"""

from __future__ import annotations

import gzip
import inspect
import io
import json
import os
import re
import shutil
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import pylogseg
from pylogseg import _codec
from pylogseg.cli import shell
from pylogseg.errors import CorruptionError, RequestError
from pylogseg.format.names import parse_file_name
from pylogseg.inspect.dump.kafka_options import KafkaOptions
from pylogseg.inspect.dump.kafka_style import kafka_dump
from pylogseg.inspect.dump.native import dump_file, expand_paths

DEEP = KafkaOptions(deep_iteration=True, print_data_log=True)


def as_kafka(files: Iterable[str | Path], options: KafkaOptions = DEEP) -> tuple[str, list[str], bool]:
    """Stdout, lines of stderr, and whether the tool would not have died."""
    out, errors = io.BytesIO(), list[str]()
    good = kafka_dump([str(file) for file in files], out.write, errors.append, options)
    return out.getvalue().decode(), errors, good


def rows(path: Path, records: bool = False) -> list[dict[str, Any]]:
    """What ``--json`` gives for a file."""
    out = io.BytesIO()
    dump_file(str(path), out.write, records=records, as_json=True)
    return [json.loads(line) for line in out.getvalue().splitlines()]


# ---- Kafka's lines ----


def test_replays_give_the_lines_of_kafka(golden: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every dump.txt line by line, every dump.err as a set; one call has many files, as the tool was called."""
    compared = 0
    for expected in sorted(golden.glob("replay/*/dump.txt")):
        folder = expected.parent
        monkeypatch.chdir(folder)
        want = expected.read_bytes().decode()
        errors = folder / "dump.err"
        wanted_errors = set(errors.read_text().splitlines()) if errors.is_file() else set()
        out, got_errors, good = as_kafka(re.findall(r"^Dumping (final/.*)$", want, re.MULTILINE))
        assert out.split("\n") == want.split("\n"), folder.name
        assert {line.replace(f"{folder}/", "") for line in got_errors} == wanted_errors, folder.name
        assert good
        compared += 1
    assert compared > 60


def test_broker_folders_give_the_lines_of_kafka(golden: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files one by one, both streams in one; the data of internal topics, which a decoder printed, left out."""
    compared = 0
    for expected in sorted(golden.glob("broker-4.3/*/dump/*/*.txt.gz")):
        case, _, data_dir, name = expected.relative_to(golden / "broker-4.3").parts
        monkeypatch.chdir(golden / "broker-4.3" / case)
        folder = name.removesuffix(".txt.gz")
        if not Path(data_dir, folder).is_dir():
            continue
        want = gzip.decompress(expected.read_bytes()).decode()
        got = ""
        for path in re.findall(r"^Dumping (.*)$", want, re.MULTILINE):
            out, errors, _ = as_kafka([path], _options_of_broker_dump(folder, path))
            got += out + "".join(line.replace(f"{os.getcwd()}/", "") + "\n" for line in errors)
        got = got.replace('Exception in thread "main"', "DumpLogSegments fails:")
        assert _without_decoded(got, folder) == _without_decoded(want, folder), expected
        compared += 1
    assert compared > 0


def _options_of_broker_dump(folder: str, path: str) -> KafkaOptions:
    if not path.endswith((".log", ".checkpoint")):
        return KafkaOptions()
    plain = not folder.startswith(("__", "large-", "crash-")) and not path.endswith(".checkpoint")
    return KafkaOptions(deep_iteration=True, print_data_log=plain)


def _without_decoded(text: str, folder: str) -> list[str]:
    if folder.startswith("__"):
        text = re.sub(r"(headerKeys: \[[^\]]*\]) (key|payload): .*", r"\1", text)
    return text.split("\n")


@pytest.fixture
def producers(golden: Path, tmp_path: Path) -> Path:
    """A copy of a partition with several segments."""
    (source,) = golden.glob("broker-4.3/damage/intact/in")
    return Path(shutil.copytree(source, tmp_path / "producers-0"))


def files_in(folder: Path) -> list[Path]:
    """Segment files, sorted."""
    return sorted(file for file in folder.iterdir() if parse_file_name(file.name).kind.is_segment_file)


OPTIONS = [
    {},
    {"deep_iteration": True},
    {"print_data_log": True, "skip_record_metadata": True},
    {"deep_iteration": True, "skip_record_metadata": True},
    {"verify_index_only": True},
    {"index_sanity_check": True},
    {"print_data_log": True, "max_bytes": 1000},
    {"max_message_size": 100},
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: "-".join(o) or "plain")
def test_options_as_kafka(kafka: Any, producers: Path, options: dict[str, Any]) -> None:
    check_against_kafka(kafka, files_in(producers), options)


DAMAGE = ["bad-magic", "bit-second", "huge-length", "garbage-tail", "zero-tail", "torn-tail", "misnamed-segment",
          "repeated-batch", "bad-snapshot-clean", "bad-timeindex-clean"]  # fmt: skip


@pytest.mark.parametrize("case", DAMAGE)
def test_damage_as_kafka(kafka: Any, golden: Path, tmp_path: Path, case: str) -> None:
    folder = Path(shutil.copytree(golden / "broker-4.3" / "damage" / case / "in", tmp_path / "in"))
    check_against_kafka(kafka, files_in(folder), {"print_data_log": True})


def test_indexes_with_zero_tails_and_changed_entries_as_kafka(kafka: Any, producers: Path) -> None:
    index, times, *_ = sorted([*producers.glob("*.index"), *producers.glob("*.timeindex")])
    index.write_bytes(index.read_bytes() + bytes(8 * 3000))
    data = bytearray(times.read_bytes())
    data[5] ^= 1
    times.write_bytes(data + bytes(1200))
    check_against_kafka(kafka, [index, times], {})


def check_against_kafka(kafka: Any, files: list[Path], options: dict[str, Any]) -> None:
    """Our lines and those of the tool, which may trim the indexes it opens: so ours come first."""
    out, errors, good = as_kafka(files, KafkaOptions(**options))
    args = []
    for name, value in options.items():
        args += [f"--{name.replace('_', '-')}"] + ([] if value is True else [str(value)])
    done = kafka.run("dump", *args, "--files", ",".join(map(str, files)))
    assert out.split("\n") == done.stdout.split("\n")
    trace = ("\tat ", "\t... ", "Caused by")
    assert set(errors) == {line for line in done.stderr.splitlines() if not line.startswith(trace)}
    assert good == (done.returncode == 0)


def test_an_unknown_magic_is_read_as_magic_2(golden: Path) -> None:
    """As Kafka does: only consumers refuse it."""
    (path,) = golden.glob("broker-4.3/damage/bad-magic/in/*180.log")
    out, _, good = as_kafka([path])
    assert good
    assert " magic: 3 compresscodec: none" in out


def test_the_tool_dies_at_the_first_bad_file(golden: Path) -> None:
    zeros, whole = (next(golden.glob(f"broker-4.3/damage/{c}/in/*180.log")) for c in ("zero-tail", "intact"))
    out, errors, good = as_kafka([zeros, whole])
    assert not good
    assert str(whole) not in out
    assert errors == [
        'Exception in thread "main" org.apache.kafka.common.errors.CorruptRecordException: Found record size 0 '
        f"smaller than minimum record overhead (14) in file {zeros}."
    ]


def test_damaged_records_end_the_dump_behind_their_batch(producers: Path) -> None:
    path = min(producers.glob("*.log"))
    data = bytearray(path.read_bytes())
    size = 12 + struct.unpack_from(">i", data, 8)[0]
    data[size + 61] ^= 0x80  # the length of the second batch's first record
    path.write_bytes(data)
    out, errors, good = as_kafka([path])
    assert not good
    assert out.count("baseOffset: ") == 2
    assert out.splitlines()[-1].endswith("isvalid: false")
    assert errors[-1].startswith('Exception in thread "main" org.apache.kafka.common.InvalidRecordException: ')


def test_names_that_the_tool_does_not_know(tmp_path: Path) -> None:
    for name in ("foo.txt", "noext"):
        (tmp_path / name).write_bytes(b"x")
    out, errors, good = as_kafka([tmp_path / "foo.txt", tmp_path / "noext"])
    assert good
    assert out == f"Dumping {tmp_path}/foo.txt\nDumping {tmp_path}/noext\n"
    assert errors == [f"Ignoring unknown file {tmp_path}/{name}" for name in ("foo.txt", "noext")]
    assert as_kafka([tmp_path / "nothere.log"])[1] == [
        'Exception in thread "main" java.lang.NumberFormatException: For input string: "nothere"'
    ]


# ---- rows ----


def test_batches_and_records_are_those_of_kafka(golden: Path, decoded: Any) -> None:
    """Rows of every golden log against Kafka's own reader."""
    seen = 0
    for path in sorted(golden.glob("replay/*/final/*.log"))[::5]:
        want = decoded(path)["batches"]
        got = rows(path, records=True)
        batches = [row for row in got if row["type"] == "batch"]
        assert [_as_decoded(b) for b in batches] == [{name: b[name] for name in _SAME} for b in want]
        records = [row["offset"] for row in got if row["type"] in ("record", "controlRecord")]
        assert records == [r["offset"] for b in want for r in b["records"]]
        seen += len(batches)
    assert seen


_SAME = {
    "position": "position",
    "size": "size",
    "magic": "magic",
    "last_offset": "lastOffset",
    "compression": "codec",
    "crc": "crc",
    "valid": "isValid",
}


def _as_decoded(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[ours] for name, ours in _SAME.items()}


def test_every_file_of_a_broker_has_rows(golden: Path) -> None:
    kinds: dict[str, set[str]] = {}
    for path in expand_paths([str(f) for f in golden.glob("broker-4.3/txn/data?/*") if f.is_dir()]):
        for row in rows(Path(path)):
            assert row.pop("file") == path
            kinds.setdefault(row["type"], set()).add(Path(path).suffix)
    assert {"batch", "offsetIndexEntry", "timeIndexEntry", "abortedTransaction", "producer", "leaderEpoch"} <= set(
        kinds
    )


def test_entries_of_small_files(golden: Path) -> None:
    data = golden / "broker-4.3" / "txn" / "data0"
    properties = {row["key"]: row["value"] for row in rows(data / "meta.properties")}
    assert properties["node.id"] == "1"
    assert all(row["type"] == "checkpointEntry" for row in rows(data / "recovery-point-offset-checkpoint"))
    (metadata,) = rows(next(data.glob("*/partition.metadata")))
    assert metadata["type"] == "partitionMetadata"
    assert len(metadata["topicId"]) == 22


def test_control_records_are_decoded(golden: Path) -> None:
    (path,) = golden.glob("broker-4.3/txn/data?/txn-a-0/00000000000000000000.log")
    control = [row for row in rows(path, records=True) if row["type"] == "controlRecord"]
    assert control[0]["kind"] == "COMMIT"
    assert control[0]["fields"] == {"version": 0, "coordinatorEpoch": 0}
    assert {row["kind"] for row in control} == {"COMMIT", "ABORT"}


def test_a_damaged_batch_is_a_row_and_a_gap(golden: Path) -> None:
    (path,) = golden.glob("broker-4.3/damage/bit-second/in/*045.log")
    out = io.BytesIO()
    assert not dump_file(str(path), out.write, as_json=True)
    got = [json.loads(line) for line in out.getvalue().splitlines()]
    bad = [i for i, row in enumerate(got) if row["type"] == "batch" and not row["isValid"]]
    assert len(bad) == 1
    gap = got[bad[0] + 1]
    assert (gap["type"], gap["kind"], gap["isDamage"]) == ("gap", "crc", True)
    assert gap["position"] == got[bad[0]]["position"]


def test_a_record_that_cannot_be_decoded_is_a_gap(producers: Path) -> None:
    path = min(producers.glob("*.log"))
    data = bytearray(path.read_bytes())
    size = 12 + struct.unpack_from(">i", data, 8)[0]
    data[61] = 0x7F
    data[17:21] = struct.pack(">I", _codec.crc32c(bytes(data[21:size])))
    path.write_bytes(data)
    batch, gap, *_ = rows(path, records=True)
    assert batch["isValid"]  # the CRC holds
    assert (gap["kind"], gap["position"], gap["endPosition"]) == ("records", 0, size)


def test_text_has_a_heading_and_a_line_for_each_row(golden: Path) -> None:
    (path,) = golden.glob("broker-4.3/txn/data?/txn-a-0/00000000000000000000.log")
    out = io.BytesIO()
    assert dump_file(str(path), out.write)
    title, heading, *lines = out.getvalue().decode().splitlines()
    assert title == f"# {path}"
    assert heading.split()[:5] == ["POSITION", "SIZE", "BASE", "LAST", "COUNT"]
    assert len(lines) == len(rows(path))


def test_a_suffix_and_another_name_change_nothing(producers: Path) -> None:
    path = min(producers.glob("*.log"))
    want = [{**row, "file": ""} for row in rows(path)]
    for name in (path.name + ".deleted", "renamed.bin"):
        copy = path.with_name(name)
        shutil.copy(path, copy)
        assert [{**row, "file": ""} for row in rows(copy)] == want


def test_what_is_no_file_of_kafka(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("something else")
    with pytest.raises(RequestError, match="not a Kafka file"):
        rows(tmp_path / "notes.txt")
    with pytest.raises(RequestError, match="no Kafka files in this folder"):
        list(expand_paths([str(tmp_path)]))


def test_a_damaged_small_file_is_an_error(golden: Path) -> None:
    (path,) = golden.glob("broker-4.3/damage/bad-epochs-clean/in/leader-epoch-checkpoint")
    with pytest.raises(CorruptionError, match="line 1 is malformed"):
        rows(path)


# ---- the shell ----


def run(*arguments: str | Path) -> Any:
    """Run the shell in this process."""
    mixes = {"mix_stderr": False} if "mix_stderr" in inspect.signature(CliRunner).parameters else {}
    return CliRunner(**mixes).invoke(shell, ["dump", *map(str, arguments)])


def test_shell_prints_kafkas_lines(golden: Path) -> None:
    (path,) = golden.glob("broker-4.3/damage/intact/in/*180.log")
    done = run("--style", "kafka", "--print-data-log", "--files", path)
    assert done.exit_code == 0
    assert done.stdout == as_kafka([path])[0]


def test_shell_exit_codes(golden: Path, tmp_path: Path) -> None:
    good, bad = (next(golden.glob(f"broker-4.3/damage/{c}/in/*045.log")) for c in ("intact", "bit-second"))
    assert run(good, "--json").exit_code == 0
    assert run(bad, "--json").exit_code == 1
    assert run(good, "--print-data-log").exit_code == 2
    assert run(good, "--style", "kafka", "--json").exit_code == 2
    assert run(tmp_path / "missing.log").exit_code == 2
    assert run().exit_code == 2


def test_shell_goes_on_behind_a_damaged_file(golden: Path) -> None:
    folder = golden / "broker-4.3" / "damage" / "bad-epochs-clean" / "in"
    done = run(folder / "leader-epoch-checkpoint", folder / "partition.metadata")
    assert done.exit_code == 1
    assert "topicId" in done.stdout


def test_a_time_index_of_a_large_batch(tmp_path: Path) -> None:
    """Of a batch above the limit its greatest timestamp is not known: that is said, with the option that raises it."""
    folder = tmp_path / "t-0"
    with pylogseg.open_log(folder) as log:
        log.append([(1_700_000_000_000, b"k", bytes(100_000))], compression="zstd")
    path = folder / f"{0:020d}.timeindex"
    path.write_bytes(struct.pack(">qi", 1_700_000_000_000, 0))
    _out, errors, good = as_kafka([path], KafkaOptions(max_decompressed_bytes=1000))
    assert not good
    assert "more than 1000 bytes" in "".join(errors)
    assert "--max-decompressed-bytes" in "".join(errors)
    assert as_kafka([path]) == (f"Dumping {path}\ntimestamp: 1700000000000 offset: 0\n", [], True)
