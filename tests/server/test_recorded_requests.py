"""Tests of format/messages/codes.py. What clients have asked a broker, asked again: our answers have the fields that
the broker's had.

`recorded/` is written by `tests/kafka/clients/matrix.py --record`: the files, the requests of eleven clients, and the
broker's answers in fields.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import pylogseg
from pylogseg.format.messages import wire

pytest.importorskip("kio", reason="kio, which decodes the answers, needs Python 3.11")
from clients import recorder, replays

RECORDED = Path(__file__).resolve().parent / "recorded"
EXCHANGES = replays.load(RECORDED / "requests.jsonl.xz")
CLIENTS = list(dict.fromkeys(each.client for each in EXCHANGES))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pylogseg.Server]:
    folder = tmp_path_factory.mktemp("recorded")
    with tarfile.open(RECORDED / "served.tar.xz") as archive:
        if hasattr(tarfile, "data_filter"):
            archive.extractall(folder, filter="data")
        else:
            archive.extractall(folder)
    with pylogseg.serve(folder / "data0", folder / "data1") as found:
        yield found


@pytest.mark.parametrize("client", CLIENTS)
def test_answers_have_the_fields_of_a_broker(server: pylogseg.Server, client: str) -> None:
    mine = [each for each in EXCHANGES if each.client == client]
    compared, differences = replays.replay(mine, server.bootstrap_servers)
    assert differences == []
    assert sum(compared.values()) == len(mine) > 30


def test_a_difference_is_found(server: pylogseg.Server) -> None:
    """The comparison looks at every field: the offset of an answer, a batch, an error."""
    found = set()
    for each in EXCHANGES:
        where = {1: "high_watermark", 2: "offset", 3: "leader_epoch", 9: "committed_offset"}.get(each.key)
        if where is None or (each.key, where) in found:
            continue
        changed = each._replace(answer=one_more(each.answer, where))
        if changed.answer != each.answer:
            _, differences = replays.replay([changed], server.bootstrap_servers)
            assert any(one.where.endswith(where) for one in differences), each
            found.add((each.key, where))
    assert len(found) == 4


def test_offsets_of_a_group_that_beats_are_not_recorded() -> None:
    """Its heartbeats are not asked again; without them it is not there, on a broker either."""
    answer = b"\0\0\0\1\0" + b"\0\0\0\0\1\0"  # of a commit without topics
    requests = [
        wire.request(68, 0, 1, "me", {"groupId": "beats", "memberEpoch": 0}),
        wire.request(8, 9, 1, "me", {"groupId": "beats"}),
        wire.request(8, 9, 1, "me", {"groupId": "classic"}),
    ]
    exchanges = [recorder.Exchange("me", 0, request[4:], answer) for request in requests]
    assert [each.request for each in replays.recorded(exchanges)] == [requests[2][4:]]


def one_more(value: object, name: str) -> object:
    """The same with fields of that name raised by one."""
    if isinstance(value, dict):
        return {key: each + 1 if key == name and isinstance(each, int) else one_more(each, name)
                for key, each in value.items()}  # fmt: skip
    return [one_more(each, name) for each in value] if isinstance(value, list) else value


def test_requests_are_written_as_they_came() -> None:
    """Our codec reads what eleven clients have written, and writes the same bytes."""
    for each in EXCHANGES:
        header = wire.read_header(each.request)
        of = wire.request_of(each.key)
        if of is None or header.end < 0:
            assert (each.key, each.version > 4) == (wire.API_VERSIONS, True)
            continue
        values, end = wire.decode_body(of, each.version, each.request, header.end)
        again = wire.request(each.key, each.version, header.correlation, header.client, values)
        assert again[4:] == each.request[:end], (each.client, each.key, each.version)
        # librdkafka sends three bytes too many
        assert len(each.request) == end or (each.key, each.version) == (3, 13)
