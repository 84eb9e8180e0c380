"""Tests of format/files/checkpoint.py. Text checkpoints."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pylogseg.errors import CorruptionError, RequestError
from pylogseg.format.files.checkpoint import (
    EpochEntry,
    encode_leader_epochs,
    encode_offset_checkpoint,
    parse_leader_epochs,
    parse_offset_checkpoint,
)
from pylogseg.format.names import FileKind, parse_file_name

topics = st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True)
offsets = st.dictionaries(st.tuples(topics, st.integers(0, 2**31 - 1)), st.integers(0, 2**63 - 1), max_size=20)


@st.composite
def epoch_lists(draw: st.DrawFn) -> list[EpochEntry]:
    epochs = sorted(draw(st.sets(st.integers(0, 2**31 - 1), max_size=20)))
    size = len(epochs)
    starts = sorted(draw(st.sets(st.integers(0, 2**63 - 1), min_size=size, max_size=size)))
    return [EpochEntry(*pair) for pair in zip(epochs, starts, strict=True)]


def test_text() -> None:
    raw = encode_offset_checkpoint({("orders", 3): 42, ("a.b", 0): 0})
    assert raw == b"0\n2\norders 3 42\na.b 0 0\n"
    assert parse_offset_checkpoint(raw) == {("orders", 3): 42, ("a.b", 0): 0}
    assert encode_offset_checkpoint({}) == b"0\n0\n"
    assert encode_leader_epochs([EpochEntry(0, 0), EpochEntry(2368, 100)]) == b"0\n2\n0 0\n2368 100\n"


@pytest.mark.parametrize("raw", [b"", b"0", b"0\n", b"0\n0", b"0\n0\n", b"0\r\n0\r\n", b"+0\n-0"])
def test_empty(raw: bytes) -> None:
    assert parse_offset_checkpoint(raw) == {}
    assert parse_leader_epochs(raw) == []


def test_what_java_reads_too() -> None:
    assert parse_offset_checkpoint(b"0\r2\r\nt \t +1  -5\nt 1 7") == {("t", 1): 7}
    assert parse_offset_checkpoint("0\n1\n\u00e4 0 1\n".encode()) == {("\u00e4", 0): 1}
    assert parse_leader_epochs(b"0\n1\n5 \f9 \n") == [EpochEntry(5, 9)]


@pytest.mark.parametrize(
    ("raw", "reason", "position"),
    [
        (b"1\n0\n", "line 1 is a version other than 0: '1'", 0),
        (b"\n", "line 1 is malformed: ''", 0),
        (b"x\n", "line 1 is malformed: 'x'", 0),
        (b" 0\n", "line 1 is malformed: ' 0'", 0),
        (b"0\nx\n", "line 2 is malformed: 'x'", 2),
        (b"0\n2\nt 0 1\n", "line 2 is a wrong count, 1 entries are there: '2'", 2),
        (b"0\n1\nt 0 1\nt 1 1\n", "line 2 is a wrong count, 2 entries are there: '1'", 2),
        (b"0\n-1\n", "line 2 is a wrong count, 0 entries are there: '-1'", 2),
        (b"0\n2147483647\n", "line 2 is a wrong count", 2),
        (b"0\n2147483648\n", "line 2 is malformed", 2),
        (b"0\n1\nt 0\n", "line 3 is malformed: 't 0'", 4),
        (b"0\n1\nt 0 1 2\n", "line 3 is malformed", 4),
        (b"0\n1\n t 0 1\n", "line 3 is malformed", 4),
        (b"0\n2\nt 0 1\nt 2147483648 1\n", "line 4 is malformed", 10),
        (b"0\n1\nt 0 9223372036854775808\n", "line 3 is malformed", 4),
        (b"0\n1\nt 0 1_0\n", "line 3 is malformed", 4),
        ("0\n1\nt 0 \u0661\n".encode(), "line 3 is malformed", 4),
        (b"0\n1\n\n", "line 3 is malformed: ''", 4),
        ("0\n2\n\u00e4 0 1\nt\n".encode(), "line 4 is malformed", 11),
        (b"0\n1\nt\xff 0 1\n", "byte 0xff is not UTF-8", 5),
        (b"9" * 10000, "line 1 is malformed: '9999", 0),
    ],
)
def test_malformed(raw: bytes, reason: str, position: int) -> None:
    with pytest.raises(CorruptionError) as caught:
        parse_offset_checkpoint(raw, "d/some-checkpoint")
    assert reason in caught.value.reason
    assert (caught.value.path, caught.value.position) == ("d/some-checkpoint", position)
    assert len(str(caught.value)) < 400


def test_malformed_epochs() -> None:
    for raw, reason in [(b"0\n1\n1 2 3\n", "line 3"), (b"0\n1\n2147483648 1\n", "line 3"), (b"0\n2\n1 1\n", "line 2")]:
        with pytest.raises(CorruptionError, match=reason):
            parse_leader_epochs(raw)


@given(offsets)
def test_offsets_round_trip(entries: dict[tuple[str, int], int]) -> None:
    assert list(parse_offset_checkpoint(encode_offset_checkpoint(entries)).items()) == list(entries.items())


@given(epoch_lists())
def test_epochs_round_trip(epochs: list[EpochEntry]) -> None:
    assert parse_leader_epochs(encode_leader_epochs(epochs)) == epochs


@given(offsets.filter(bool))
def test_every_cut_is_seen_or_leaves_whole_entries(entries: dict[tuple[str, int], int]) -> None:
    raw = encode_offset_checkpoint(entries)
    for end in range(len(raw) - 1):
        try:
            found = parse_offset_checkpoint(raw[:end])
        except CorruptionError:
            continue
        # The text has no checksum: only a cut inside of the last number, or in front of the count, can go unseen.
        assert not found or list(found) == list(entries)


@given(st.binary(max_size=60) | st.text(alphabet="0123456789 \n\r\tt-+", max_size=60).map(str.encode))
def test_any_bytes(raw: bytes) -> None:
    for parse in (parse_offset_checkpoint, parse_leader_epochs):
        try:
            parse(raw)
        except CorruptionError as error:
            assert 0 <= error.position <= len(raw)  # noqa: PT017 - most inputs are refused


def test_checkpoints_that_cannot_be() -> None:
    for entries in [
        {("", 0): 0},
        {("a b", 0): 0},
        {("t", -1): 0},
        {("t", 2**31): 0},
        {("t", 0): -1},
        {("t", 0): 2**63},
    ]:
        with pytest.raises(RequestError):
            encode_offset_checkpoint(entries)
    for epochs in [[EpochEntry(1, 1), EpochEntry(1, 2)], [EpochEntry(1, 1), EpochEntry(2, 1)], [EpochEntry(-1, 0)]]:
        with pytest.raises(RequestError):
            encode_leader_epochs(epochs)


def test_corpus(corpus: Path) -> None:
    kinds = {kind.value for kind in FileKind if kind.is_offset_checkpoint or kind is FileKind.LEADER_EPOCHS}
    rows = [row for row in json.loads((corpus / "expected.json").read_text()) if row["kind"] in kinds]
    assert len(rows) > 200
    for row in rows:
        raw = (corpus / row["path"]).read_bytes()
        is_epochs = row["kind"] == FileKind.LEADER_EPOCHS.value
        found = (parse_leader_epochs if is_epochs else parse_offset_checkpoint)(raw, row["path"])
        assert len(found) == row["entries"]


def test_golden(golden: Path) -> None:
    written, bad = 0, set()
    for path in golden.rglob("*checkpoint"):
        kind = parse_file_name(path.name).kind
        raw = path.read_bytes()
        try:
            if kind is FileKind.LEADER_EPOCHS:
                assert encode_leader_epochs(parse_leader_epochs(raw, str(path))) == raw or not raw
            elif kind.is_offset_checkpoint:
                assert encode_offset_checkpoint(parse_offset_checkpoint(raw, str(path))) == raw or not raw
        except CorruptionError:
            bad.add(path.parts[-3])
        written += bool(raw)
    assert written > 400
    assert bad == {"bad-epochs-clean", "recover-corrupt-epochs"}
