"""Tests of spark/options.py. Options as the Kafka source of Spark has them: defaults, precedence, refusals."""

import subprocess
import sys
import warnings

import pytest
from helpers.spark_logs import append

from pylogseg.errors import RequestError
from pylogseg.spark import options
from pylogseg.spark.options import (
    EARLIEST,
    LATEST,
    Bound,
    check_names,
    for_table,
    parse,
    parse_offsets_by_topic,
    paths_of,
)
from pylogseg.spark.plan import plan


def test_defaults():
    batch, stream = parse({}), parse({}, streaming=True)
    assert (batch.starting, batch.ending) == (Bound("offset", EARLIEST, {}), Bound("offset", LATEST, {}))
    assert stream.starting == Bound("offset", LATEST, {})
    assert all([batch.fail_on_data_loss, batch.reading.check_crc, batch.include_active])
    assert not any([batch.include_headers, batch.include_metadata])
    assert (batch.reading.isolation_level, batch.reading.on_corrupt, batch.range_bytes) == (
        "read_uncommitted",
        "raise",
        128 << 20,
    )
    assert stream.max_delay_seconds == 900


def test_names_in_any_case_and_values_of_any_kind():
    found = parse({"INCLUDEHEADERS": "TRUE", "rangebytes": "64m", "minPartitions": 7, "assign": {"a": [0, 1]}})
    assert found.include_headers
    assert (found.range_bytes, found.min_partitions) == (64 << 20, 7)
    assert found.assigned == (("a", 0), ("a", 1))
    assert parse({"kafka.isolation.level": "read_committed"}).reading.isolation_level == "read_committed"
    assert parse({"subscribe": " a, b ,,a,"}).topics == parse({"subscribe": ["a", "", "b"]}).topics == ("a", "b")
    assert parse({"maxTriggerDelay": "30s"}, streaming=True).max_delay_seconds == 30
    assert parse({"storageOptions": '{"key": "k"}'}).storage_options == {"key": "k"}


def test_a_time_for_all_beats_times_by_partition_and_those_beat_offsets():
    given = {"startingOffsets": '{"a": {"0": 5}}'}
    assert parse(given).starting == Bound("offset", None, {("a", 0): 5})
    given["startingOffsetsByTimestamp"] = '{"a": {"0": 1700}}'
    assert parse(given).starting == Bound("time", None, {("a", 0): 1700})
    given["startingTimestamp"] = "1800"
    assert parse(given).starting == Bound("time", 1800, {})
    given = {"endingOffsets": "latest", "endingOffsetsByTimestamp": '{"a": {"0": 1}}', "endingTimestamp": "2"}
    assert parse(given).ending == Bound("time", 2, {})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"subscribe": "a", "assign": '{"a": [0]}'}, "only one of"),
        ({"startingOffsets": "latest"}, "cannot start at latest"),
        ({"startingOffsets": '{"a": {"0": -1}}'}, "cannot start at latest"),
        ({"endingOffsets": "earliest"}, "cannot end at earliest"),
        ({"endingOffsets": '{"a": {"0": -2}}'}, "cannot end at earliest"),
        ({"startingOffsets": '{"a": {"0": -3}}'}, "neither an offset nor"),
        ({"startingOffsets": '{"a": {"0": 5}}', "endingOffsets": '{"a": {"1": 5}}'}, "must name the same partitions"),
        ({"startingOffsets": '{"a": {"0": 5}}', "endingOffsets": '{"a": {"0": 4}}'}, "a-0 would start at 5"),
        ({"startingOffsets": '{"a": 5}'}, "must be JSON like"),
        ({"startingOffsets": '{"a": {"0": true}}'}, "not a whole number"),
        ({"startingOffsets": "{"}, "must be JSON like"),
        ({"startingOffsetsByTimestamp": '{"a": {"0": -1}}'}, "is not a time in milliseconds"),
        ({"startingTimestamp": "yesterday"}, "startingTimestamp='yesterday': must be milliseconds"),
        ({"onCorrupt": "ignore"}, "must be one of raise, stop, skip"),
        ({"minPartitions": "0"}, "above 0"),
        ({"rangeBytes": "12x"}, "128m"),
        ({"maxDecompressedBytes": "0"}, "maxDecompressedBytes='0': must be a size above 0"),
        ({"includeHeaders": "yes"}, "true or false"),
        ({"subscribePattern": "("}, "regular expression"),
        ({"subscribe": " ,"}, "subscribe=' ,': must name at least one topic"),
        ({"kafka.isolation.level": "READ_COMMITTED"}, "in lower case"),
        ({"isolationLevel": "Read_Committed"}, "in lower case"),
        ({"minPartitions": " 5 "}, "without spaces"),
        ({"includeHeaders": "true "}, "true or false"),
        ({"assign": '{"a": 0}'}, '{"orders": [0, 1]}'),
        ({"startingOffset": "earliest"}, "Did you mean 'startingOffsets'"),
        ({"storageOptions": "[]"}, "JSON object"),
    ],
)
def test_refusals_name_the_option_and_the_value(given, words):
    with pytest.raises(RequestError) as caught:
        parse(given)
    assert words in str(caught.value)


#: Any text is right, as far as options are read.
ANY_TEXT = {"schema", "registry", "message"}


@pytest.mark.parametrize("name", sorted({*options._NAMES} - ANY_TEXT))
def test_an_error_names_the_option_as_it_is_written(name):
    given = {name: "["} if name in options._ONLY_IN_STREAMS else {"decoding": "value", name: "["}
    with pytest.raises(RequestError) as caught:
        parse(given, streaming=name in options._ONLY_IN_STREAMS)
    assert str(caught.value).startswith(name), caught.value


@pytest.mark.parametrize("end", ["starting", "ending"])
@pytest.mark.parametrize("form", ["Offsets", "OffsetsByTimestamp"])
def test_partitions_that_are_not_named(tmp_path, end, form):
    append(tmp_path / "orders-0", 100)
    with pytest.raises(RequestError, match=f"^{end}{form} must name every partition that is read.*orders-0"):
        plan(str(tmp_path), parse({end + form: '{"orders": {"1": 5}}'}))


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name):
    with pytest.raises(RequestError, match="no end"):
        parse({name: "latest"}, streaming=True)


def test_what_has_no_effect_is_said():
    with pytest.warns(UserWarning, match="no effect without a broker: kafka.bootstrap.servers, kafka.ssl.x"):
        parse({"kafka.bootstrap.servers": "b:9092", "kafka.ssl.x": "1"})
    with pytest.raises(RequestError, match="unknown option 'colour'; there are: subscribe, "):
        parse({"colour": "red"})
    with pytest.warns(UserWarning, match="maxOffsetsPerTrigger has no effect in a batch"):
        parse({"maxOffsetsPerTrigger": "5"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parse({"path": "/x", "kafka.isolation.level": "read_committed"})
        parse({"maxOffsetsPerTrigger": "5"}, streaming=True)


def test_paths():
    assert paths_of({"path": "/a, /b"}) == ["/a", "/b"]
    assert paths_of({"Path": '["/a,1", "/b"]'}) == ["/a,1", "/b"]
    with pytest.raises(RequestError, match="no path"):
        paths_of({})


def test_offsets_of_the_kafka_source_are_read():
    assert parse_offsets_by_topic('{"orders":{"0":23,"1":7}}', "x") == {("orders", 0): 23, ("orders", 1): 7}


@pytest.mark.parametrize(
    ("name", "meant"), [("topic", "subscribe"), ("topics", "subscribe"), ("startingOfsets", "startingOffsets")]
)
def test_a_name_that_is_no_option(name, meant):
    for check in (parse, check_names):
        with pytest.raises(RequestError, match=f"unknown option '{name.lower()}'. Did you mean '{meant}'"):
            check({name: "a"})


def catalog(**options):
    """Options as Spark 4 hands them over for a table that is being made."""
    return {
        "owner": "me",
        "provider": "pylogseg",
        "location": "x",
        **options,
        **{f"option.{k}": v for k, v in options.items()},
    }


def test_what_a_table_keeps():
    assert for_table({"path": "/data"}) is None
    given = catalog(path="/data", subscribe="a", **{"kafka.sasl.jaas.config": "password=hunter2"})
    assert for_table({**given, "property": "of the table"}) == {"path": "/data", "subscribe": "a"}
    for wrong in (
        {"path": "s3://bucket/x", "storageOptions": '{"secret": "hunter2"}'},
        {"path": "s3://key:hunter2@bucket/x"},
        {"path": "https://host/x?sig=hunter2"},
    ):
        with pytest.raises(RequestError, match="a table cannot keep credentials") as caught:
            for_table(catalog(**wrong))
        assert "hunter2" not in str(caught.value)
    with pytest.raises(RequestError, match="Did you mean 'subscribe'"):
        for_table(catalog(path="/data", topic="a"))


def test_credentials_are_in_no_repr():
    assert "hunter2" not in repr(parse({"storageOptions": '{"secret": "hunter2"}'}))


def test_without_spark_the_shell_names_what_to_install(examples):
    program = (
        f"import sys; sys.modules['pyspark'] = None; sys.argv = ['', 'stats', {str(examples)!r}, '--spark', 'local'];"
        "from pylogseg.__main__ import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 2
    assert done.stderr == "pylogseg: pyspark is not installed: run pip install 'pyspark>=4.0' 'pandas>=2.2,<3'\n"
