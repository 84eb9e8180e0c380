"""Tests of tables/polars.py and tables/short_forms.py. Random predicates in each engine: the rows that the same engine
finds in a Parquet file of the same records.
"""

import datetime
import operator
import shutil
from dataclasses import dataclass
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
from helpers.damaged_logs import change_byte
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pylogseg
from pylogseg.tables import dataset as classes

SHOWN = ["topic", "partition", "offset", "key"]
#: An example is some queries in an engine: few at each run, many in a soak.
FEW = settings(
    max_examples=max(4, settings().max_examples // 50), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
#: Each kind of log once: codecs, batches of magic 0 to 2, transactions, compacted, truncated, odd times.
LOGS = ("codec-zstd-0", "legacy-0", "mixed-0", "txn-a-0", "txn-a-1", "cmp-short-0", "del-records-0", "timestamps-0")
UTC = datetime.timezone.utc
OPERATORS = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "<>": operator.ne,
}


@dataclass
class Log:
    """A log, how it is read, and a Parquet file of the same records."""

    path: Any
    how: dict
    parquet: str
    rows: pa.Table


@dataclass
class Predicate:
    """One predicate in the languages of all engines."""

    duckdb: str
    datafusion: str
    polars: Any
    arrow: Any


@pytest.fixture(scope="module", params=["golden", "committed", "compacted", "damaged"])
def log(request, golden, examples, tmp_path_factory):
    root = tmp_path_factory.mktemp("engines")
    how = {"on_corrupt": "skip"}
    if request.param in ("golden", "damaged"):
        path = root / "copy"
        for name in LOGS:
            shutil.copytree(examples / name, path / name)
    elif request.param == "compacted":
        path, how = golden / "broker-4.3" / "compact-3-cleaned" / "data0", {}
    elif request.param == "committed":
        path, how = golden / "broker-4.3" / "txn" / "data0", {"isolation_level": "read_committed"}
    if request.param == "damaged":
        for file in path.glob("*/*.log"):
            data = bytearray(file.read_bytes())
            if data:
                data[len(data) // 2] ^= 0xFF
                file.write_bytes(data)
    if not path.is_dir():
        path = next(folder for folder in sorted(path.parent.glob("data*")) if folder.is_dir())
    rows = pylogseg.read_arrow(path, columns=pylogseg.dataset(path, **how).schema.names, **how).read_all()
    assert rows.num_rows
    pq.write_table(rows, root / "rows.parquet")
    return Log(path, how, str(root / "rows.parquet"), rows)


@pytest.fixture(scope="module", autouse=True)
def small_tasks():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(classes, "TASK_BYTES", 3000)
        patch.setattr(classes, "ALONE_BYTES", 10_000)
        patch.setattr(classes, "FRAGMENT_BYTES", 10_000)
        yield


def text(literal):
    return "'" + literal.replace("'", "''") + "'"


def compared(name, sign, value):
    column, polars = pc.field(name), pl.col(name)
    sql, arrow, of_polars = str(value), value, value
    of_datafusion = sql
    if isinstance(value, datetime.datetime):
        sql, of_datafusion = f"timestamptz '{value.isoformat(' ')}'", text(value.isoformat())
        arrow = pa.scalar(value, pa.timestamp("us", "UTC"))
    elif isinstance(value, bytes):
        sql = "'" + "".join(f"\\x{byte:02x}" for byte in value) + "'::blob"
        of_datafusion = f"X'{value.hex()}'"
    elif isinstance(value, str):
        sql = of_datafusion = text(value)
    do = OPERATORS[sign]
    return Predicate(
        f'"{name}" {sign} {sql}', f'"{name}" {sign} {of_datafusion}', do(polars, of_polars), do(column, arrow)
    )


def among(name, values):
    shown = ", ".join(text(value) if isinstance(value, str) else str(value) for value in values)
    sql = f'"{name}" in ({shown})'
    return Predicate(sql, sql, pl.col(name).is_in(values), pc.field(name).isin(values))


def is_null(name):
    return Predicate(f'"{name}" is null', f'"{name}" is null', pl.col(name).is_null(), pc.field(name).is_null())


def joined(word, do, one, other):
    return Predicate(
        f"({one.duckdb} {word} {other.duckdb})",
        f"({one.datafusion} {word} {other.datafusion})",
        do(one.polars, other.polars),
        do(one.arrow, other.arrow),
    )


def negated(one):
    return Predicate(f"(not {one.duckdb})", f"(not {one.datafusion})", ~one.polars, ~one.arrow)


def predicates(rows):
    def values(name):
        return st.sampled_from(sorted(value for value in set(rows.column(name).to_pylist()) if value is not None))

    times = values("timestamp").map(lambda value: value.astimezone(UTC))
    signs = st.sampled_from(list(OPERATORS))
    offsets = st.one_of(values("offset"), st.integers(-2, 10_000))
    leaves = st.one_of(
        st.builds(compared, st.just("offset"), signs, offsets),
        st.builds(among, st.just("offset"), st.lists(offsets, min_size=1, max_size=4)),
        st.builds(compared, st.just("timestamp"), signs, times),
        st.builds(compared, st.just("topic"), signs, values("topic")),
        st.builds(among, st.just("topic"), st.lists(values("topic"), min_size=1, max_size=3)),
        st.builds(compared, st.just("partition"), signs, st.integers(0, 3)),
        st.builds(compared, st.just("key"), signs, values("key")),
        st.sampled_from([is_null("key"), is_null("value"), is_null("headers")]),
    )
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds(joined, st.just("and"), st.just(operator.and_), inner, inner),
            st.builds(joined, st.just("or"), st.just(operator.or_), inner, inner),
            st.builds(negated, inner),
        ),
        max_leaves=5,
    )


def sorted_rows(table):
    return sorted(table.select(SHOWN).to_pylist(), key=lambda row: (row["topic"], row["partition"], row["offset"]))


def in_duckdb(source, predicate):
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        connection.register("logs", source)
        found = connection.sql(f'select topic, "partition", "offset", key from logs where {predicate.duckdb}')
        return sorted_rows(found.to_arrow_table())


def in_datafusion(source, predicate):
    context = pytest.importorskip("datafusion").SessionContext()
    if isinstance(source, str):  # pyarrow's own dataset refuses the plain `false` that an impossible predicate becomes
        context.register_parquet("logs", source)
    else:
        context.register_dataset("logs", source)
    found = context.sql(f'select topic, "partition", "offset", key from logs where {predicate.datafusion}')
    return sorted_rows(pa.Table.from_batches(found.collect(), found.schema()))


@given(st.data())
@FEW
def test_duckdb(log, data):
    predicate = data.draw(predicates(log.rows))
    source = pylogseg.dataset(log.path, **log.how)
    assert in_duckdb(source, predicate) == in_duckdb(pads.dataset(log.parquet), predicate)


@given(st.data())
@FEW
def test_datafusion(log, data):
    predicate = data.draw(predicates(log.rows))
    source = pylogseg.dataset(log.path, **log.how)
    assert in_datafusion(source, predicate) == in_datafusion(log.parquet, predicate)


@given(st.data())
@FEW
def test_pyarrow(log, data):
    keep = data.draw(predicates(log.rows)).arrow
    source, want = pylogseg.dataset(log.path, **log.how), pads.dataset(log.parquet).to_table(filter=keep)
    assert source.to_table(filter=keep).equals(want)
    assert source.count_rows(keep) == want.num_rows
    assert (
        pylogseg.read_arrow(log.path, filter=keep, **log.how)
        .read_all()
        .equals(want.select(pylogseg.read_arrow(log.path).schema.names))
    )
    found = [record.offset for record in pylogseg.read(log.path, filter=keep, **log.how)]
    assert found == want.column("offset").to_pylist()


@given(st.data())
@FEW
def test_polars(log, data):
    keep = data.draw(predicates(log.rows)).polars
    count = data.draw(st.integers(0, 50))
    logs, parquet = pylogseg.scan_polars(log.path, **log.how), pl.scan_parquet(log.parquet)
    for ask in [
        lambda frame: frame.filter(keep).select(SHOWN),
        lambda frame: frame.filter(keep).select("offset").head(count),
        lambda frame: frame.head(count).filter(keep).select("topic", "offset"),
        lambda frame: frame.filter(keep).select(pl.len()),
    ]:
        assert ask(logs).collect().equals(ask(parquet).collect())
    streamed = logs.filter(keep).select(SHOWN).collect(engine="streaming")
    assert streamed.sort(SHOWN[:3]).equals(parquet.filter(keep).select(SHOWN).collect().sort(SHOWN[:3]))


def test_a_variable_in_a_query_is_a_table_twice(examples):
    logs = pylogseg.dataset(examples, "txn-a")
    assert logs.count_rows() == 129
    query = 'select count(*) from logs a join logs b on a."partition" = b."partition" and a."offset" = b."offset"'
    assert duckdb.sql(query).fetchall() == [(129,)]


def test_acero_and_pandas(examples):
    logs = pylogseg.dataset(examples, "txn-a", columns=["partition", "offset"])
    assert logs.to_table().group_by("partition").aggregate([("offset", "count")]).num_rows == 2
    assert len(logs.to_table().to_pandas()) == 129
    assert pa.schema(pylogseg.read(examples, columns=["offset", "value"])).names == ["offset", "value"]


def test_a_filter_that_no_index_knows(examples):
    """Functions of columns are applied to all rows."""
    logs = pylogseg.dataset(examples, "codec-none")
    rows = logs.to_table()
    for keep in [pc.binary_length(pc.field("value")) > 10, pc.bit_wise_and(pc.field("offset"), 1) == 0]:
        assert 0 < logs.count_rows(keep) == rows.filter(keep).num_rows
    odd = duckdb.sql('select count(*) from logs where "offset" % 2 = 1').fetchall()
    assert odd == [(rows.filter(pc.bit_wise_and(pc.field("offset"), 1) == 1).num_rows,)]


def test_errors_reach_the_user(examples):
    logs = pylogseg.dataset(examples)
    assert logs.schema
    with pytest.raises(duckdb.BinderException, match="ofset"):
        duckdb.sql("select ofset from logs")
    with pytest.raises(pl.exceptions.ColumnNotFoundError, match="ofset"):
        pylogseg.scan_polars(examples).select("ofset").collect()


def test_damage_reaches_the_user(examples, tmp_path):
    copy = shutil.copytree(examples / "codec-none-1", tmp_path / "codec-none-1")
    path = min(copy.glob("*.log"))
    change_byte(path, bits=0xFF)
    logs = pylogseg.dataset(copy)
    assert logs.schema
    with pytest.raises(duckdb.Error, match="codec-none-1"):
        duckdb.sql("select max(value) from logs").fetchall()
    with pytest.raises(Exception, match="codec-none-1"):
        pylogseg.scan_polars(copy).select("value").collect()


def test_polars_prunes(examples):
    from pylogseg.tables.polars import _pruning

    schema, offset = pylogseg.dataset(examples).schema, pl.col("offset")
    both = _pruning((offset > 3) & (pl.col("value") == b"x") & (pl.col("topic") == "a"), schema)
    assert both.equals((pc.field("offset") > 3) & (pc.field("topic") == "a"))
    assert _pruning((offset > 3) | (pl.col("value") == b"x"), schema) is None
