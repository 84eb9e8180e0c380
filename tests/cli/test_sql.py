"""Tests of cli/prompt.py, cli/sql.py, tables/opening.py, tables/sql/answers.py, tables/sql/forms.py,
tables/sql/session.py, tables/sql/words.py and tables/state_scan.py. `pylogseg sql`: answers, forms, errors, damage, the
prompt, and what no statement may reach.
"""

from __future__ import annotations

import decimal
import io
import json
import os
import pty
import re
import runpy
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.checks import duckdb_version, wait_for
from helpers.damaged_logs import change_byte
from helpers.shell import ROOT, command, damaged, environment, expect, process, pylogseg

import pylogseg as package
from pylogseg.cli.sql import Waiting
from pylogseg.errors import RequestError
from pylogseg.format.text import payload_of
from pylogseg.reading.scan import LogScan
from pylogseg.tables.opening import openers
from pylogseg.tables.sql import session

pytest.importorskip("duckdb")


@pytest.fixture(scope="module")
def dead(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The disk of `docs/questions.md`."""
    folder = tmp_path_factory.mktemp("dead")
    runpy.run_path(str(ROOT / "examples" / "dead_broker.py"))["write"](folder)
    return folder


def asked(path: Path, query: str, *options: object) -> list[dict[str, Any]]:
    """The rows of an answer."""
    return expect(pylogseg("sql", path, query, "--output", "json", *options), 0).rows


@pytest.mark.parametrize(
    "name", ["codec-zstd-0", "legacy-0", "cmp-short-0", "txn-a-0", "del-records-0", "timestamps-0"]
)
@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_records(examples: Path, name: str, isolation: str) -> None:
    """A topic is what `pylogseg.read` gives of it."""
    expected = [
        (r.offset, r.key, r.value, len(r.headers))
        for r in package.read(examples, name, isolation_level=isolation)  # type: ignore[arg-type]
    ]
    topic = name.rpartition("-")[0]
    query = (
        f'select offset, hex(key) as key, hex(value) as value, len(headers) as headers from "{topic}" order by offset'
    )
    rows = asked(examples, query, "--partition", name[-1], "--isolation-level", isolation)
    made = [
        (
            row["offset"],
            *(None if row[x] is None else bytes.fromhex(row[x]) for x in ("key", "value")),
            row["headers"] or 0,
        )
        for row in rows
    ]
    assert made == expected
    assert expected


def test_text_and_json(dead: Path) -> None:
    """Casts of keys and values are their text, whatever quotes it has; JSON is null where there is none."""
    (row,) = asked(
        dead,
        """select key::varchar as user, cast(o.value as text) as v, value->>'$.id' as id, value->'item' as item,
           text(value) = value::varchar as same, json(key) as none, text(offset) as number, 'x'->>'a' is null as other
           from orders o where partition = 0 and offset = 0""".replace("'x'->>'a'", "'{}'->>'a'"),
    )
    assert json.loads(row["v"])["id"] == 0
    assert row == {
        "user": "user-0", "v": row["v"], "id": "0", "item": "item-0", "same": True, "none": None, "number": "0",
        "other": True,
    }  # fmt: skip


def test_bytes_that_are_no_text(examples: Path) -> None:
    """`text` of bytes is what `cat` prints; the rows of a condition on it are not fewer than there are."""
    printed = [row["value"] for row in pylogseg("cat", examples, "codec-none-1").rows]
    rows = asked(examples, 'select text(value) as value, value as raw from "codec-none" order by offset')
    assert [row["value"] for row in rows] == printed
    assert [row["raw"] for row in rows] == printed
    assert any((value or "").startswith("base64:") for value in printed)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("select max(offset) as n from orders where partition = 0", 409),
        ("select offset as n from orders where partition = 0 order by offset desc limit 1 offset 3", 405),
        ("select count(*) as n from orders where offset between 5 and 9", 10),
        ('select count(*) as n from orders where "offset" in (1, 2)', 4),
        ("select count(*) as n from ORDERS where Partition = 1", 399),
        ("select sum(offset) as n from (select 1 as offset union all select 2)", 3),
        ("select count(*) as n from records where topic = 'web.clicks-v2'", 2000),
        ('select count(*) as n from "web.clicks-v2"', 2000),
        ("select count(*) as n from orders a join orders b using (partition, offset)", 806),
        ("select count(*) as n from profiles where timestamp < '2026-03-01 12:15'", 30),
        ("select count(*) as n from profiles where timestamp < timestamptz '2026-03-01 13:15:00+01:00'", 30),
        ("select count(*) as n from records where timestamp > now() - interval 2 hours", None),
        ("create temp table t as select offset from profiles; select count(*) as n from t", 60),
        ("select 'offset, ''value::varchar''' || $$ offset $$ = 'x' as n -- offset", False),
    ],
)
def test_queries(dead: Path, query: str, expected: object) -> None:
    (row,) = asked(dead, query)
    assert row["n"] == expected or (expected is None and row["n"] >= 0)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("select * from ordrs", "did you mean orders?"),
        ("select * from web.clicks", 'did you mean "web.clicks-v2"?'),
        ("select * from web.clicks-v2", 'has to be in double quotes: "web.clicks-v2"'),
        ("select valeu from orders", "did you mean value?"),
        ("select o.ofset from orders o", "did you mean offset?"),
        ('select * from records where topic = "orders"', "text is in single quotes: 'orders'"),
        ("select length(value) from orders", "write text(value)"),
        ("select * from orders where value like '%x%'", "write text(value)"),
        ("selec 1", 'near "selec"'),
        ("select 'x'::int as n", "Could not convert"),
    ],
)
def test_errors(dead: Path, query: str, message: str) -> None:
    assert expect(pylogseg("sql", dead, query), 2, message).err.count("\n") == 1


@pytest.mark.parametrize(
    "query",
    [
        "copy (select 1) to '{here}/out.csv'",
        "attach '{here}/other.db' as other",
        "select * from read_csv('{here}/secret.csv')",
        "from '{here}/secret.csv'",
        "select * from read_text('{here}/secret.csv')",
        "select * from glob('{here}/*')",
        "install httpfs",
        "load httpfs",
        "load '{here}/x.so'",
        "export database '{here}/out'",
        "import database '{here}'",
        "set enable_external_access = true",
        "reset lock_configuration",
        "set python_enable_replacements = true",
        "pragma profiling_output = '{here}/out'",
        "set temp_directory = '{here}'",
        "call enable_logging(storage = 'file')",
        "create persistent secret s (type http)",
        "select * from arguments",
        "select * from dead",
        "select getenv('HOME')",
    ],
)
def test_reaches_nothing(dead: Path, tmp_path: Path, query: str) -> None:
    """No file, setting, extension or variable of Python is within reach of a statement."""
    (tmp_path / "secret.csv").write_text("a\nsecret\n")
    done = expect(pylogseg("sql", dead, f"{query.replace('{here}', str(tmp_path))};"), 2)
    assert "secret" not in done.text
    assert [path.name for path in tmp_path.iterdir()] == ["secret.csv"]


def test_allow_files(dead: Path, tmp_path: Path) -> None:
    (tmp_path / "users.csv").write_text("user,name\nuser-1,Ada\n")
    query = f"select name, count(*) as n from orders join '{tmp_path}/users.csv' on user = key::varchar group by name"
    assert pylogseg("sql", dead, query).code == 2
    assert asked(dead, query, "--allow-files") == [{"name": "Ada", "n": 35}]


def test_large_sorts_use_no_memory_without_end(dead: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not fit into memory goes to a folder of its own, which is removed."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # other tests have such folders too
    made: list[Path] = []
    real = session._connect
    monkeypatch.setattr(session, "_connect", lambda *given: made.append(Path(given[1])) or real(*given))
    assert asked(dead, "select count(*) as n from (select * from orders order by value)") == [{"n": 806}]
    assert [folder.parent for folder in made] == [tmp_path]
    assert list(tmp_path.iterdir()) == []


def named_logs(folder: Path, *names: str) -> Path:
    """A log directory with one record a topic: its name."""
    for name in names:
        with package.open_log(folder / f"{name}-0") as log:
            log.append([(1, b"k", name.encode())])
    return folder


def test_names_of_topics(tmp_path: Path) -> None:
    """Whatever Kafka allows as a name is a table; what SQL cannot tell apart is not, and is said to be in `records`."""
    names = [
        "a.b-c_d", "select", "Orders", "orders", "records", "Batches", "0", "x" * 200, "a-1", "main", "temp.x",
        "_",
    ]  # fmt: skip
    named_logs(tmp_path, *names)
    for name in set(names) - {"Orders", "orders", "records", "Batches"}:
        assert asked(tmp_path, f'select text(value) as v from "{name}"') == [{"v": name}], name
    for name in names:
        assert asked(tmp_path, f"select text(value) as v from records where topic = '{name}'") == [{"v": name}]
    assert len(asked(tmp_path, "from batches")) == len(names)
    expect(pylogseg("sql", tmp_path, "select * from ORDERS"), 2, "records where topic = 'Orders'")


def test_injection(tmp_path: Path) -> None:
    """A folder that no Kafka made names no statement, and no table."""
    name = 'x"; create table owned as select 1; --'
    os.rename(named_logs(tmp_path, "good") / "good-0", tmp_path / f"{name}-0")
    named_logs(tmp_path, "other")
    assert asked(tmp_path, "select text(value) as v from records order by v") == [{"v": "other"}]
    quoted = name.replace('"', '""')
    for table in ("owned", f'"{quoted}"'):
        assert pylogseg("sql", tmp_path, f"from {table}").code == 2


@pytest.mark.parametrize("on_corrupt", ["raise", "stop", "skip"])
def test_damage(examples: Path, tmp_path: Path, on_corrupt: str) -> None:
    """Damage shows in the exit code and on stderr, and rows are those that `cat` prints."""
    damaged(examples / "mixed-0", tmp_path / "mixed-0", "00000000000000000080.log", 900)
    printed = pylogseg("cat", tmp_path, "--on-corrupt", on_corrupt)
    done = pylogseg(
        "sql", tmp_path, "select offset from mixed order by offset", "-O", "json", "--on-corrupt", on_corrupt
    )
    assert done.code == printed.code == 1
    assert "00000000000000000080.log" in done.err
    if on_corrupt == "raise":
        assert "--on-corrupt skip" in done.err
        assert not done.rows
    else:
        assert [row["offset"] for row in done.rows] == [row["offset"] for row in printed.rows]


def test_damage_in_other_tables(examples: Path, tmp_path: Path) -> None:
    """A stretch without a good batch is a row, and damage."""
    folder = damaged(examples / "mixed-0", tmp_path / "mixed-0", "00000000000000000080.log", 8)
    done = pylogseg("sql", folder, "select position, problem from batches where problem is not null", "-O", "json")
    assert done.code == 1
    assert [row["position"] for row in done.rows] == [0]
    assert "length" in done.rows[0]["problem"]
    assert "damage" in done.err


def test_forms(dead: Path, tmp_path: Path) -> None:
    query = "select offset, key, timestamp, headers from profiles where offset < 3"
    csv = pylogseg("sql", dead, query, "-O", "csv").text
    assert csv.splitlines()[:2] == ['"offset","key","timestamp","headers"', '0,"user-0","2026-03-01T12:00:00.000Z",']
    for name, read in (("a.parquet", pq.read_table), ("a.arrow", lambda path: pa.ipc.open_file(path).read_all())):
        assert pylogseg("sql", dead, query, "-O", tmp_path / name)[:2] == (0, b"")
        table = read(tmp_path / name)
        assert table["key"].to_pylist() == [b"user-0", b"user-1", b"user-2"]
        assert table.schema.field("timestamp").type == pa.timestamp("us", "UTC")
    piped = subprocess.run(
        command("sql", dead, query, "-O", "arrow"), capture_output=True, env=environment(), check=True
    )
    assert pa.ipc.open_file(piped.stdout).read_all().num_rows == 3
    assert pylogseg("sql", dead, query, "-O", tmp_path / "a.csv").code == 0
    assert (tmp_path / "a.csv").read_text() == csv
    assert {path.name for path in tmp_path.iterdir()} == {"a.parquet", "a.arrow", "a.csv"}


@pytest.mark.parametrize(
    "query", ["select 1; select 2", "create table t as select 1", "select valeu from orders", "selec"]
)
def test_a_file_is_whole_or_not_there(dead: Path, tmp_path: Path, query: str) -> None:
    (tmp_path / "out.csv").write_text("old")
    assert pylogseg("sql", dead, f"{query};", "-O", tmp_path / "out.csv").code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv"]
    assert (tmp_path / "out.csv").read_text() == "old"


def test_odd_values(dead: Path) -> None:
    """Values that Python cannot hold are text, in every form."""
    query = (
        "select timestamp '290000-01-01' as far, interval 3 days as length, [1, null] as list, 'nan'::double as nan,"
        " {'a': '\\xFF'::blob} as struct, 12345678901234567890::hugeint as huge, date '2026-01-01' as day"
    )
    assert asked(dead, query) == [
        {"far": "9089348860800000 ms", "length": "P3D", "list": [1, None], "nan": "NaN",
         "struct": {"a": "base64:/w=="}, "huge": 12345678901234567890, "day": "2026-01-01"}
    ]  # fmt: skip
    for form in ("table", "csv"):
        expect(pylogseg("sql", dead, query, "-O", form), 0, out="9089348860800000 ms")


def test_every_type_of_duckdb(dead: Path, tmp_path: Path) -> None:
    """Also of those that Arrow has no type for, and with one name twice."""
    query = "select * from test_all_types()"
    first = json.loads(pylogseg("sql", dead, query, "-O", "json").text.splitlines()[1], parse_float=decimal.Decimal)
    assert (first["uhugeint"], first["bit"]) == (str(2**128 - 1), "10101")
    assert first["dec38_10"] == decimal.Decimal("9999999999999999999999999999.9999999999")
    assert first["union"] == {"name": None, "age": 5}
    assert first["map"] == {"key1": "\U0001f986" * 6, "key2": "goose"}
    assert first["interval"] == "P999M999DT16M39.999999S"
    assert [pylogseg("sql", dead, query, "-O", form).code for form in ("table", "csv")] == [0, 0]
    assert asked(
        dead, "select 1 as n, 2 as n, 3 as n_1, {'j': '{\"x\":1.10}'::json} as s, 0.10::decimal(9, 2) as d"
    ) == [{"n": 1, "n_2": 2, "n_1": 3, "s": {"j": {"x": 1.1}}, "d": 0.1}]
    lengths = (
        "select interval 3 days as a, {'b': interval '-3.5 seconds', 'c': [interval 1 month]} as s, 7 as n, 8 as n"
    )
    expect(pylogseg("sql", dead, lengths, "-O", tmp_path / "lengths.parquet"), 0)
    assert pq.read_table(tmp_path / "lengths.parquet").to_pylist() == [
        {"a": "P3D", "s": {"b": "PT-3.5S", "c": ["P1M"]}, "n": 7, "n_1": 8}
    ]
    text = pylogseg("sql", dead, "select 1.50::decimal(5, 2) as d, null as n, '' as e, 'q\"' as q", "-O", "csv").text
    assert text == '"d","n","e","q"\n1.50,,"","q"""\n'


@pytest.mark.parametrize(
    ("condition", "keys"),
    [
        ("key = 'ключ'", ["ключ"]),
        ("'ключ' = key", ["ключ"]),
        (r"key = 'a\b'", [r"a\b"]),
        (r"key = 'k9\x30'", [r"k9\x30"]),
        (r"t.key in ('k9', 'a\b', 'ключ')", ["ключ", r"a\b"]),
        (r"key not in ('a\b', 'ключ')", ["k90", r"k9\x30"]),
        ("key between 'к' and 'я'", ["ключ"]),
        ("key is not distinct from 'ключ'", ["ключ"]),
        ("key <> 'ключ' and headers[1].key = 'имя'", ["k90", r"a\b", r"k9\x30"]),
        (r"key = '\x6b90'::blob", ["k90"]),
    ],
)
def test_literals_are_compared_as_typed(tmp_path: Path, condition: str, keys: list[str]) -> None:
    with package.open_log(tmp_path / "t-0") as log:
        headers = [("имя", b"x")]
        log.append([{"key": each.encode(), "headers": headers} for each in ("k90", "ключ", r"a\b", r"k9\x30")])
    assert [row["k"] for row in asked(tmp_path, f"select key::varchar as k from t where {condition}")] == keys


#: Expressions of keys (K) and values (V): the same of these columns as of their texts.
_OF_BYTES = [
    "json_extract(V, '$.a')", "json_extract_string(V, '$.a')", "json_extract_string(t.V, ['$.a', '$.б'])",
    "json_keys(V)", "json_type(V)", "json_type(V, '$.a')", "json_array_length(V)", "json_exists(V, '$.a')",
    "json_structure(V)", "json_value(V, '$.a')", "json_contains(V, '\"ж\"')", "json_merge_patch(V, V)", "V::json",
    "from_json(V, '{\"a\": \"INTEGER\"}')", "json_transform(V, '{\"a\": \"INTEGER\"}')", "V->'a'", "V->>'a'",
    "json_valid(K)",
    "concat(K, 1)", "concat_ws('-', 'a', K)", "K || '!'", "'!' || t.K || '!'", "(K)::varchar",
    "try_cast((K) as text)",
    "coalesce(K, V)::varchar", "upper((K)::text) like '%КЛ%'", "json_array(K, 1)", "json_object('k', K)", "to_json(K)",
    "format('{}', K)", "(case when K is null then V else K end)::varchar", "[(K)::varchar]",
]  # fmt: skip


@pytest.mark.parametrize("expression", _OF_BYTES)
def test_text_functions_take_keys_and_values_as_they_are(tmp_path: Path, expression: str) -> None:
    with package.open_log(tmp_path / "t-0") as log:
        log.append([{"key": 'ключ "1"\n'.encode(), "value": '{"a": 1, "б": "ж"}'.encode()}])
    of_bytes, of_text = re.sub(r"\bK\b", "key", expression), re.sub(r"\bK\b", "k", expression)
    of_bytes, of_text = re.sub(r"\bV\b", "value", of_bytes), re.sub(r"\bV\b", "v", of_text)
    query = f"with x as (select value::varchar as v, key::varchar as k from t) select {of_text} as r from x as t"
    assert asked(tmp_path, f"select {of_bytes} as r from t") == asked(tmp_path, query)


@pytest.mark.parametrize(
    "aggregate",
    ["max(key)::varchar", "cast(max(t.key) as text)", "string_agg(key, ',')", "listagg(key)", "min(key)::text"],
)
def test_aggregates_of_keys_are_text(tmp_path: Path, aggregate: str) -> None:
    with package.open_log(tmp_path / "t-0") as log:
        log.append([{"key": "ключ".encode()}])
    assert asked(tmp_path, f"select {aggregate} as r from t") == [{"r": "ключ"}]


@pytest.mark.parametrize(
    ("condition", "note"),
    [
        (
            "timestamp > to_timestamp(1700000000000)",
            "to_timestamp: 1700000000000 is seconds, after the year 9999; if milli",
        ),
        (
            "epoch(timestamp) > 1_700_000_000_000",
            "epoch: 1700000000000 is seconds, after the year 9999; if milliseconds",
        ),
        (
            "1700000000 < epoch_ms(timestamp)",
            "epoch_ms: 1700000000 is milliseconds, 1970-01-20T16:13:20.000Z; if seconds",
        ),
        ("epoch_ms(timestamp) between 0 and 1700000000", "epoch_ms: 1700000000 is milliseconds, 1970"),
        ("epoch_us(timestamp) in (5, 1700000000000)", "epoch_us: 1700000000000 is microseconds, 1970"),
        ("timestamp = make_timestamp(1700000000000)", "make_timestamp: 1700000000000 is microseconds, 1970"),
        ("timestamp > epoch_ms(1700000000)", "epoch_ms: 1700000000 is milliseconds, 1970"),
        ("epoch_ns(timestamp) > 1700000000000000", "epoch_ns: 1700000000000000 is nanoseconds, 1970"),
        ("timestamp > to_timestamp(1700000000)", None),
        ("epoch(timestamp) > 1700000000", None),
        ("epoch_ms(timestamp) between 1700000000000 and 1800000000000", None),
        ("timestamp > make_timestamp(1700000000000000)", None),
        ("epoch_ns(timestamp) > 1700000000000000000", None),
        ('"offset" < 1700000000000', None),
        ("value::varchar = 'to_timestamp(1700000000000)'", None),
    ],
)
def test_times_of_another_unit_are_noticed(dead: Path, condition: str, note: str | None) -> None:
    """Such a condition has no rows, or all, and nothing else says why."""
    for options in ([], ["--explain"]):
        done = expect(pylogseg("sql", dead, f"select count(*) from orders where {condition}", *options), 0)
        if note is None:
            assert "meant" not in done.err
        else:
            assert done.err.count(f"note: {note}") == 1


def test_text_of_a_payload_that_begins_with_the_mark(tmp_path: Path) -> None:
    with package.open_log(tmp_path / "t-0") as log:
        log.append([{"value": b"base64:AAE="}])
    (printed,) = pylogseg("cat", tmp_path).rows
    assert asked(tmp_path, "select value as a, value::varchar as b from t") == [dict.fromkeys("ab", printed["value"])]
    assert payload_of(printed["value"]) == b"base64:AAE="


def test_table_is_safe_and_narrow(tmp_path: Path) -> None:
    """Cells of a table have no control sequences, no line ends and no end without limit."""
    with package.open_log(tmp_path / "t-0") as log:
        log.append([(1, b"\x1b[31m", b"a\nb"), (2, None, b"x" * 500)])
    done = pylogseg("sql", tmp_path, "select key, value from t order by offset")
    assert done.text.splitlines()[1].split() == [r"\x1b[31m", r"a\nb"]
    assert done.text.splitlines()[2].split()[1] == "x" * 99 + "…"


def test_script_and_stdin(dead: Path, tmp_path: Path) -> None:
    (tmp_path / "q.sql").write_text("select 1 as a;\n-- two\nselect 2 as b;\n")
    assert pylogseg("sql", dead, "-f", tmp_path / "q.sql").text == "a\n1\n\nb\n2\n"
    for options in ([], ["-f", "-"]):
        piped = subprocess.run(
            command("sql", dead, *options), input=b"select 3 as c", capture_output=True, env=environment(), check=True
        )
        assert piped.stdout == b"c\n3\n"
    assert pylogseg("sql", dead, "select 1", "-f", tmp_path / "q.sql").code == 2
    (tmp_path / "q.sql").write_bytes(b"select '\xff'")
    assert "not UTF-8 at byte 8" in pylogseg("sql", dead, "-f", tmp_path / "q.sql").err


def test_names_choose(dead: Path) -> None:
    """Names and --partition choose what there is to ask."""
    assert asked(dead, "select distinct topic, partition from records", "-t", "orders", "-p", "1") == [
        {"topic": "orders", "partition": 1}
    ]
    assert pylogseg("sql", dead, "orders", "select * from profiles").code == 2
    assert pylogseg("sql", dead, "nothing-here", "select 1 ").code == 2


def test_without_duckdb(dead: Path) -> None:
    """Without the extra the command says what to install."""
    code = (
        "import sys; sys.modules['duckdb'] = None\n"
        f"import pylogseg.cli; sys.argv = ['pylogseg', 'sql', {str(dead)!r}, 'select 1']\n"
        "pylogseg.cli.run_command_line()"
    )
    done = subprocess.run([*command()[:1], "-c", code], capture_output=True, text=True, env=environment(), check=False)
    assert done.returncode == 2
    assert "pip install 'duckdb>=1.5.6'" in done.stderr


def test_interrupt(dead: Path, tmp_path: Path) -> None:
    """Ctrl-C ends a long query at once."""
    environ = {**environment(), "TMPDIR": str(tmp_path)}
    with process("sql", dead, "select count(*) from range(1000000000) a, range(1000000000) b", env=environ) as running:
        wait_for(lambda: list(tmp_path.iterdir()))  # where a query may put what does not fit into memory
        running.send_signal(signal.SIGINT)
        assert running.wait(timeout=60) == 130


def test_a_long_query_tells_what_it_has_read(dead: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are counted while an answer is waited for; on a terminal a line shows them, and goes."""
    told: list[int | None] = []
    monkeypatch.setattr(session, "_TELL_SECONDS", 0.01)
    real = LogScan.batches

    def slow(self: Any, *given: Any) -> Iterator[pa.RecordBatch]:
        for batch in real(self, *given):
            yield batch.slice(0, 100)
            wait_for(lambda: 100 in told)
            yield batch.slice(100)

    monkeypatch.setattr(LogScan, "batches", slow)
    disk = package.open_dir(dead)
    with session.Session(openers(disk, None), jobs=1, on_wait=told.append) as asked:
        (answer,) = ([*answer.batches] for answer in asked.run("select sum(octet_length(value)) from orders"))
        assert len(answer) == 1
    counts = [rows for rows in told if rows is not None]
    assert counts == sorted(counts)
    assert {100} <= {*counts} <= {*range(807)}
    assert told[-1] is None

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stderr", Terminal())
    line = Waiting()
    for rows in (None, 0, 1500, 200_000, None, None):
        line(rows)
    assert sys.stderr.getvalue() == "\r\x1b[K1,500 rows read\r\x1b[K200,000 rows read\r\x1b[K"
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    line(5)
    assert sys.stderr.getvalue() == ""


def test_closed_pipe(dead: Path) -> None:
    line = " ".join(command("sql", str(dead), "'select a.value from orders a, orders b'")) + " | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", line], capture_output=True, env=environment(), check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == b""


class Typist:
    """Somebody at a terminal."""

    def __init__(self, *arguments: object, home: Path) -> None:
        self.master, other = pty.openpty()
        self.running = subprocess.Popen(
            command("sql", *arguments),
            stdin=other,
            stdout=other,
            stderr=other,
            env={**environment(), "XDG_STATE_HOME": str(home), "TERM": "dumb"},
            start_new_session=True,
        )
        os.close(other)
        self.seen = ""

    def until(self, text: str, seconds: float = 60) -> str:
        """Wait for text, and return what was shown up to it."""
        end = time.monotonic() + seconds
        while text not in self.seen:
            assert time.monotonic() < end, self.seen
            if select.select([self.master], [], [], 0.1)[0]:
                self.seen += os.read(self.master, 65536).decode()
        found, self.seen = self.seen.split(text, 1)
        return found

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self.master, text.encode())


def test_prompt(dead: Path, tmp_path: Path) -> None:
    """Statements over lines, commands, errors, a cancelled query, and a history that stays."""
    typist = Typist(dead, home=tmp_path)
    typist.until("pylogseg> ")
    typist.type(".tables\n")
    assert "web.clicks-v2" in typist.until("pylogseg> ")
    typist.type(".columns orders\n")
    assert "offset  int64" in typist.until("pylogseg> ")
    typist.type("select count(*) as n\n")
    typist.until("-> ")
    typist.type("from orders;\n")
    assert re.search(r"806", typist.until("pylogseg> "))
    typist.type("select * from ordrs;\n")
    assert "did you mean orders?" in typist.until("pylogseg> ")
    typist.type(f"select count(*) from {', '.join(f'orders {name}' for name in 'abcdef')};\n")
    typist.until("rows read")
    os.kill(typist.running.pid, signal.SIGINT)
    assert "cancelled" in typist.until("pylogseg> ")
    typist.type("select 40 + 2 as answer;\n")
    assert "42" in typist.until("pylogseg> ")
    typist.type(".nonsense\n")
    assert ".quit" in typist.until("pylogseg> ")
    typist.type("\x04")
    assert typist.running.wait(timeout=60) == 0
    assert "40 + 2" in (tmp_path / "pylogseg" / "sql_history").read_text()


def test_explain(dead: Path) -> None:
    """What a condition prunes is not counted, and nothing of a table is read for the answer."""
    rows = asked(dead, "select value from orders where partition = 1 and offset < 5", "--explain")
    (row,) = rows
    assert (row["table"], row["segments"], row["allSegments"]) == ("orders", 1, 2)
    assert 0 < row["readBytes"] < row["allBytes"]
    # Before 2.0 duckdb asks for what only the filter needs, too.
    assert row["columns"] == (["value"] if duckdb_version() >= 2 else ["partition", "offset", "value"])
    assert "offset < 5" in row["filter"]
    assert pylogseg("sql", dead, "select 1", "--explain", "-O", "csv").code == 2


def test_views_are_lazy(dead: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A statement opens only what it reads."""
    from pylogseg.disk.disk import Segment

    def refuse(self: Segment) -> None:
        raise RequestError("opened")

    monkeypatch.setattr(Segment, "open", refuse)
    assert asked(dead, "select 1 as n") == [{"n": 1}]
    assert asked(dead, "select count(*) as n, sum(size) > 0 as b from segments") == [{"n": 5, "b": True}]
    assert len(asked(dead, "select topic, segments, size from partitions")) == 4
    assert len(asked(dead, "describe orders")) == 17
    assert len(asked(dead, "show tables")) >= 8
    assert "opened" in pylogseg("sql", dead, "select count(*) from orders").err


def test_the_state_of_the_cluster(examples: Path) -> None:
    """Groups, transactions and topics are tables, as `pylogseg.cluster_state` has them."""
    query = (
        'select g."group", count(*) as n from groups g join group_offsets o on o."group" = g."group" '
        "where g.type = 'Consumer' group by all order by all"
    )
    assert asked(examples, query) == [
        {"group": "g-consumer", "n": 2},
        {"group": "g-live-consumer", "n": 2},
        {"group": "g-static", "n": 4},
    ]
    for name in ("topics", "transactions", "cluster_partitions"):
        assert asked(examples, f"select count(*) > 0 as found from {name}") == [{"found": True}]


def test_a_topic_with_the_name_of_a_state_table(examples: Path, tmp_path: Path) -> None:
    shutil.copytree(examples / "__consumer_offsets-0", tmp_path / "__consumer_offsets-0")
    with package.open_log(tmp_path / "groups-0") as log:
        log.append([(1, None, b"mine")])
    assert asked(tmp_path, "select text(value) as v from groups") == [{"v": "mine"}]
    assert asked(tmp_path, "select count(*) as n from cluster_groups") == [{"n": 4}]


def test_damage_in_a_state_table(examples: Path, tmp_path: Path) -> None:
    """What is damaged is left out and named, with exit code 1."""
    shutil.copytree(examples / "__consumer_offsets-0", tmp_path / "__consumer_offsets-0")
    (path,) = (tmp_path / "__consumer_offsets-0").glob("*.log")
    change_byte(path, 90)
    expect(pylogseg("sql", tmp_path, "select count(*) from groups"), 1, path.name)


def test_a_count_by_headers_says_that_no_checksum_was_computed(examples: Path) -> None:
    said = "pylogseg: note: counted by batch headers: checksums were not computed\n"
    assert pylogseg("sql", examples, "select count(*) from records", "-O", "csv").err == said
    for more in (
        ["select max(octet_length(value)) from records"],
        ["from segments"],
        ["select count(*) from records", "--on-corrupt", "skip"],
    ):
        assert pylogseg("sql", examples, *more, "-O", "csv").err == ""


def test_the_files_between_a_query_and_the_decoder(examples: Path) -> None:
    """Who follows a query opens these, in this order; a dispatcher, options and what starts threads are passed over."""
    root = Path(package.__file__).parent
    found: dict[str, None] = {}

    def look(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_name in (
            "open_disk_table",
            "pieces",
            "read_and_decode",
            "check_and_decode",
        ):
            above: list[str] = []
            at: FrameType | None = frame
            while at is not None:
                path = Path(at.f_code.co_filename)
                above += [path.relative_to(root).as_posix()] if path.is_relative_to(root) else []
                at = at.f_back
            found.update(dict.fromkeys(reversed(above)))

    threading.setprofile(look)
    sys.setprofile(look)
    try:
        (row,) = asked(examples, 'select max("offset") as last, max(key) as largest from "codec-none"', "--jobs", 1)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    assert row["last"] == 504
    assert set(found) - {"cli/__init__.py", "cli/options.py", "env/executor.py", "env/interrupts.py"} == {
        "cli/sql.py",
        "tables/sql/session.py",
        "tables/opening.py",
        "reading/scan.py",
        "reading/ranges.py",
        "reading/partition.py",
        "walker/windows.py",
        "format/records.py",
        "reading/arrow/columns.py",
    }
