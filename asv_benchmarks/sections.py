"""The rows of the table, by subject. Each function measures one subject and returns its rows."""

from __future__ import annotations

import itertools
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import bare
import data
import engine
import many_logs
import numpy as np
import peers
from jvm import SCRIPT, Figure, Kafka
from measure import Clock, Side, in_turn
from rows import Row

import pylogseg
from pylogseg import _codec
from pylogseg.format.batches import scan
from pylogseg.format.files.index import OffsetIndex
from pylogseg.format.records import decode

FOUR = ("offset", "timestamp", "key", "value")
_PEER_BYTES = 64 << 20
_DUMP_BYTES = 64 << 20


class Bench:
    """What all subjects share: data, clock, rounds, and Kafka's figures, each measured once."""

    def __init__(self, folder: Path, records: int, rounds: int, starts: int, clock: Clock, cores: set[int]) -> None:
        self.folder, self.records, self.rounds, self.clock, self.cores = folder, records, rounds, clock, cores
        #: Of Kafka's JVM for each figure: one start is up to half as fast again as the next, and its best counts.
        self.starts = starts
        self.kafka = None if Kafka.missing() else Kafka(clock.name, cores)
        self.log = cache(self._log)
        #: At random offsets; a JVM needs some to be warm.
        self.kafka_reads = min(300_000, max(60_000, records // 16))
        self._runs: dict[tuple[str, ...], list[list[Figure]]] = {}

    def _log(self, codec: str) -> data.Log:
        count = self.records if codec == "none" else self.records * 3 // 8
        return data.prepare(self.folder, codec, count, self.kafka)

    def missing(self) -> Iterator[str]:
        """What cannot be compared with."""
        if lack := Kafka.missing():
            yield f"Kafka itself, for want of {lack}"
        yield from (f"{name}: not installed" for name in ("aiokafka", "kafka") if not peers.has(name))

    def timed(self, work: Callable[[], object]) -> Side:
        """Side of a function."""
        return self.clock.timed(work)

    def kafka_side(self, *arguments: str, work: str) -> Side | None:
        """Side of a figure of Kafka's benchmark, None without Kafka. A run has rounds of its own in a warm JVM.

        The n-th turn of a side has the n-th run of these arguments, which has the figures of other works too: a JVM is
        started once for all of them.
        """
        if self.kafka is None:
            return None
        kafka, runs, turns = self.kafka, self._runs.setdefault(arguments, []), itertools.count()

        def side() -> float:
            turn = next(turns)
            if turn == len(runs):
                runs.append(kafka.bench(*arguments))
            return found(runs[turn], work).seconds

        return side

    def against_kafka(self, ours: dict[str, Callable[[], object]], theirs: Side | None) -> dict[str, float]:
        """Best seconds: ours in rounds, a start of Kafka's JVM after each."""
        return self.beside_kafka({name: self.timed(work) for name, work in ours.items()}, theirs)

    def best_of(self, side: Side) -> float:
        """Best seconds of a side of Kafka that has no turns beside ours."""
        return min(side() for _ in range(self.starts))

    def beside_kafka(self, sides: dict[str, Side], theirs: Side | None) -> dict[str, float]:
        """The same of sides that say themselves how long they took."""
        best: dict[str, float] = {}
        for _ in range(self.starts):
            part = in_turn(sides, max(2, 2 * self.rounds // self.starts))
            if theirs is not None:
                part["kafka"] = theirs()
            best = {name: min(seconds, best.get(name, seconds)) for name, seconds in part.items()}
        return best


def found(figures: list[Figure], work: str) -> Figure:
    """The figure whose name begins so."""
    return next(figure for figure in figures if figure.work.startswith(work))


def millions(count: float, seconds: float | None) -> float | None:
    """Rate in millions a second."""
    return None if seconds is None else count / seconds / 1e6


def rate(count: float, seconds: float) -> float:
    """Rate in millions a second."""
    return count / seconds / 1e6


def mapped(path: Path) -> pylogseg.Disk:
    """A disk with its files mapped."""
    return pylogseg.open_dir(path, memory_map=True)


def drain(path: Path | pylogseg.Disk, **options: object) -> int:
    """Read a log as Arrow record batches, as a consumer would, and let go of each; how many records."""
    return sum(len(batch) for batch in pylogseg.read_arrow(path, **options))


def columns_only(path: Path) -> int:
    """Read a log into record columns, in memory that is used again; how many records."""
    return sum(len(chunk.columns) for chunk in pylogseg.read(path, reuse_buffers=True).chunks())


def checksums(bench: Bench) -> list[Row]:
    """CRC32C and CRC32 of 64 KiB."""
    block = np.random.default_rng(1).bytes(1 << 16)
    sides: dict[str, Side] = {}
    for name, work in (("crc32c", _codec.crc32c), ("crc32", _codec.crc32)):
        sides[name] = bench.timed(lambda work=work: [work(block) for _ in range(2000)])
    best = in_turn(sides, bench.rounds)
    size = 2000 * len(block) / 1e9
    name = _codec.crc_implementations()[0]
    return [
        Row("CRC32C of 64 KiB", size / best["crc32c"], "GB/s", "", None, 20, f"the processor's multiplier ({name})"),
        Row("CRC32 (magic 0 and 1) of 64 KiB", size / best["crc32"], "GB/s", "", None, None, "the same"),
    ]


def headers(bench: Bench) -> list[Row]:
    """Batch headers of a buffer, no CRC."""
    buffer = bench.log("none").path.read_bytes()[:_PEER_BYTES]
    count = len(scan(buffer, crc=False).batches)
    sides = {"ours": bench.timed(lambda: scan(buffer, crc=False))}
    if peers.has("aiokafka"):
        sides["aiokafka"] = bench.timed(lambda: peers.aiokafka_headers(buffer))
    best = in_turn(sides, 3 * bench.rounds)
    theirs = millions(count, best.get("aiokafka"))
    bound = "a cache miss for each header"
    return [Row("scan of batch headers", rate(count, best["ours"]), "M batches/s", "aiokafka", theirs, 5, bound)]


def arrow(bench: Bench) -> list[Row]:
    """Records with their CRCs checked, from a file to Arrow."""
    log = bench.log("none")
    few = {"columns": ["offset", "value"]}
    ours: dict[str, Callable[[], object]] = {
        "all": lambda: drain(log.sealed),
        "four": lambda: drain(log.sealed, columns=FOUR),
        "few": lambda: drain(log.sealed, **few),
        "views": lambda: drain(log.sealed, views=True),
        "views of four": lambda: drain(log.sealed, views=True, columns=FOUR),
        "mapped": lambda: drain(mapped(log.sealed)),
        "mapped, as views": lambda: drain(mapped(log.sealed), views=True),
        "columns": lambda: columns_only(log.sealed),
        "active": lambda: drain(log.path),
    }
    best = bench.against_kafka(ours, bench.kafka_side("iterate", str(log.path), work="iterate+crc"))
    mine = {name: rate(log.records, best[name]) for name in ours}
    kafka = millions(log.records, best.get("kafka"))
    copy = "one read of memory for CRC and decoder, the copy out of the page cache, the copy of values"
    view = "one read of memory for CRC and decoder, the copy out of the page cache"
    page = "one read of memory for CRC and decoder, the pages that are mapped"
    unit = "M records/s"
    table = [
        Row("to Arrow, values copied: Spark's 8 columns", mine["all"], unit, "Kafka iterate+crc", kafka, 2.3, copy),
        Row("to Arrow, values copied: Kafka's 4 fields", mine["four"], unit, "Kafka iterate+crc", kafka, 2.3, copy),
        Row("to Arrow, offset and value", mine["few"], unit, "Kafka iterate+crc", kafka, None, copy),
        Row("to Arrow, as views: Spark's 8 columns", mine["views"], unit, "Kafka iterate+crc", kafka, 2.7, view),
        Row("to Arrow, as views: Kafka's 4 fields", mine["views of four"], unit, "Kafka iterate+crc", kafka, 2.7, view),
        Row("to Arrow, memory_map, values copied", mine["mapped"], unit, "Kafka iterate+crc", kafka, 2.6, page),
        Row("to Arrow, memory_map, as views", mine["mapped, as views"], unit, "Kafka iterate+crc", kafka, 3.0, page),
        Row("to record columns", mine["columns"], unit, "Kafka iterate+crc", kafka, None, view),
        Row("to Arrow, active segment (by pread)", mine["active"], unit, "Kafka iterate+crc", kafka, None, copy),
    ]
    return table + _arrow_of_peers(bench, log)


def _arrow_of_peers(bench: Bench, log: data.Log) -> list[Row]:
    """The same against the Python libraries, which get a part of the file, for they take long."""
    part = log.path.read_bytes()[:_PEER_BYTES]
    batches = scan(part, crc=False).batches
    count, part = int(batches.count.sum()), part[: int(batches.position[-1] + batches.size[-1])]
    sides = {"ours": bench.timed(lambda: drain(log.sealed))}
    if peers.has("aiokafka"):
        sides["aiokafka"] = bench.timed(lambda: peers.aiokafka_to_arrow(part))
    if peers.has("kafka"):
        tenth = part[: int(batches.position[len(batches) // 10])]
        sides["kafka-python"] = bench.timed(lambda: peers.kafka_python_to_arrow(tenth))
    best = in_turn(sides, 3)
    mine = rate(log.records, best["ours"])
    theirs = millions(count, best.get("aiokafka"))
    slow = millions(int(batches.count[: len(batches) // 10].sum()), best.get("kafka-python"))
    what = "to Arrow, values copied: Spark's 8 columns"
    return [
        Row(what, mine, "M records/s", "aiokafka to Arrow", theirs, 12, "as above"),
        Row(what, mine, "M records/s", "kafka-python to Arrow", slow, None, "as above"),
    ]


#: Of the bare codec, and of Kafka.
_READING_BARS = {"lz4": (0.55, 2.2), "snappy": (0.65, 2.2), "zstd": (0.88, 2.2), "gzip": (0.85, 1.9)}


def compressed(bench: Bench) -> list[Row]:
    """Compressed batches with their CRCs checked, against the bare codec on the same blocks, and against Kafka."""
    table = []
    for codec, bars in _READING_BARS.items():
        log = bench.log(codec)
        alone = bare.reader(codec, log.path.read_bytes())
        ours: dict[str, Callable[[], object]] = {
            "bare": alone,
            "columns": lambda log=log: columns_only(log.sealed),
            "arrow": lambda log=log: drain(log.sealed),
            "views": lambda log=log: drain(log.sealed, views=True),
        }
        best = bench.against_kafka(ours, bench.kafka_side("iterate", str(log.path), work="iterate+crc"))
        codec_alone = rate(log.records, best["bare"])
        kafka = millions(log.records, best.get("kafka"))
        bound = "the codec" if codec in ("zstd", "gzip") else "the codec, then the decoder and the copy of values"
        for name, text in (("columns", "to record columns"), ("arrow", "to Arrow"), ("views", "to Arrow, as views")):
            mine = rate(log.records, best[name])
            limits = bars if name != "views" else (None, None)
            table += [
                Row(f"{codec} {text}", mine, "M records/s", "the bare codec", codec_alone, limits[0], bound),
                Row(f"{codec} {text}", mine, "M records/s", "Kafka iterate+crc", kafka, limits[1], bound),
            ]
    return table


def encoding(bench: Bench) -> list[Row]:
    """Columns to batches, from an Arrow table and from the record columns of a reader."""
    records = 145 * 2000
    source, some = data.table(records), data.values(4096)
    # As many records as the table has: a call on few is over before the caches have what it needs.
    mapped = np.memmap(bench.log("none").path, np.uint8, mode="r")
    chunk, _ = decode(scan(mapped, max_rows=2000).batches, mapped)
    ours: dict[str, Callable[[], object]] = {
        "arrow": lambda: pylogseg.encode(source),
        "columns": lambda: pylogseg.encode(chunk),
    }
    best = bench.against_kafka(ours, bench.kafka_side("encode", "none", work="encode"))
    kafka = None if "kafka" not in best else rate(10_000 * 145, best["kafka"])
    if peers.has("aiokafka"):
        few = records // 10
        best |= in_turn({"aiokafka": bench.timed(lambda: peers.aiokafka_encode(some, few))}, bench.rounds)
    aiokafka = millions(records // 10, best.get("aiokafka"))
    table = []
    for name, count, text in (("arrow", records, "an Arrow table"), ("columns", len(chunk), "record columns")):
        mine = rate(count, best[name])
        bound = "memory: the copy of values; then the CRC"
        table += [
            Row(f"encode from {text}", mine, "M records/s", "aiokafka's builder", aiokafka, 10, bound),
            Row(f"encode from {text}", mine, "M records/s", "Kafka's builder", kafka, 2, bound),
        ]
    return table + [_encode_compressed(bench, codec, source.slice(0, records // 4)) for codec in ("zstd", "gzip")]


def _encode_compressed(bench: Bench, codec: str, source: object) -> Row:
    count = len(source)  # type: ignore[arg-type]
    alone = bare.writer(codec, bytes(pylogseg.encode(source, compression=codec)))
    ours = {"ours": bench.timed(lambda: pylogseg.encode(source, compression=codec)), "bare": bench.timed(alone)}
    best = in_turn(ours, bench.rounds)
    theirs = rate(count, best["bare"])
    return Row(f"encode, {codec}", rate(count, best["ours"]), "M records/s", "the bare codec", theirs, 0.9, "the codec")


def indexes(bench: Bench) -> list[Row]:
    """Floor search in an offset index with as many entries as a segment of a gigabyte has."""
    log = bench.log("none")
    batches = scan(np.memmap(log.path, np.uint8, "r"), crc=False).batches
    entries = np.empty((len(batches), 2), ">i4")
    entries[:, 0], entries[:, 1] = batches.last_offset, batches.position
    index = OffsetIndex(entries.tobytes(), 0)
    end, count = log.records, len(index)
    random = np.random.default_rng(3)
    keys = (random.random(100_000) * end).astype(np.int64).tolist()
    search, buffer = _codec.search, index.buffer
    bulk = 2_000_000
    ours: dict[str, Callable[[], object]] = {
        "one": lambda: [search(buffer, 8, 0, 4, count, key) for key in keys],
        "floor": lambda: [index.floor(key) for key in keys],
        "bulk": lambda: index.floor_positions((random.random(bulk) * end).astype(np.int64)),
    }
    engine.recovered(log.path.parent)
    side = bench.kafka_side("lookup", str(log.folder), str(bench.kafka_reads), work="offset index look-up")
    best = bench.against_kafka(ours, side)
    kafka = None if "kafka" not in best else rate(bench.kafka_reads * 16, best["kafka"])
    bound = "cache misses and the call"
    return [
        Row("index search, one call", best["one"] / len(keys) * 1e6, "us", "", None, 0.5, bound),
        Row("index search, OffsetIndex.floor", best["floor"] / len(keys) * 1e6, "us", "", None, None, "Python"),
        Row("index search, bulk (keys drawn in the loop, as Kafka's)", rate(bulk, best["bulk"]), "M keys/s",
            "Kafka's look-up", kafka, 2, "cache misses, 16 steps a key"),
    ]  # fmt: skip


def text(bench: Bench) -> list[Row]:
    """Whole commands with their output thrown away."""
    log = bench.log("none")
    python = [sys.executable, "-m", "pylogseg"]
    clock = bench.clock
    limit = ["--deep-iteration", "--print-data-log", "--max-bytes", str(_DUMP_BYTES)]
    count = int(scan(log.path.read_bytes()[:_DUMP_BYTES], crc=False).batches.count.sum())
    few = ["--deep-iteration", "--print-data-log", "--max-bytes", "20000"]
    dump = [*python, "dump", "--style", "kafka", "--files", str(log.path)]
    sides = {
        "cat": lambda: clock.of_process([*python, "cat", str(log.path)]),
        "dump": lambda: clock.of_process([*dump, *limit]),
        "dump start": lambda: clock.of_process([*dump, *few]),
    }
    best = in_turn(sides, 3, warm=False)
    table = [Row("cat of JSON lines, whole command", rate(log.records, best["cat"]), "M records/s", "", None, 1,
                 "escapes and the copy of values")]  # fmt: skip
    theirs = None
    if bench.kafka is not None:
        theirs = real_dump(bench, str(log.path), limit, few)
    mine = best["dump"] - best["dump start"]
    table.append(
        Row("dump --style kafka, less the start", rate(count, mine), "M records/s", "kafka-dump-log.sh, less the start",
            millions(count, theirs), 10, "numbers to digits, the copy of values")
    )  # fmt: skip
    return table


def real_dump(bench: Bench, path: str, limit: list[str], few: list[str]) -> float:
    """Seconds of Kafka's tool, its start (measured on one batch) taken off: it would only count against it.

    With the clock "cpu" this is what it would take on one core, with the JVM's compiler and collector.
    """
    command = ["bash", str(SCRIPT), "dump", "--files", path]
    sides = {
        "all": lambda: bench.clock.of_process([*command, *limit], bench.cores),
        "start": lambda: bench.clock.of_process([*command, *few], bench.cores),
    }
    best = in_turn(sides, 2, warm=False)
    return best["all"] - best["start"]


def memory(bench: Bench) -> list[Row]:
    """Memory while a segment of 2 GiB streams."""
    if not Path("/proc/self/status").exists():
        return []
    target = bench.folder / "large" / "bench-0"
    shutil.rmtree(target, ignore_errors=True)  # of a run with another size
    target.mkdir(parents=True)
    path = target / data.NAME
    size = min(2**31 - 1, bench.records * 270)  # the whole of it at the usual size, less for a quick look
    records = data.large_segment(bench.log("none").path, path, size)
    (target / f"{records:020d}.log").touch()
    table = []
    try:
        for kind, text in (("copies", "values copied"), ("views", "as views")):
            tenth, whole = (_own_memory(str(target), kind, *limit) for limit in ([str(records // 10)], []))
            work = f"own memory while {size / 2**30:.1f} GiB stream, beyond that of a tenth of it, {text}"
            table.append(Row(work, max(0.0, whole - tenth), "MB", "", None, 5, "the last window has another size"))
    finally:
        path.unlink()
    return table


def _own_memory(*arguments: str) -> float:
    command = [sys.executable, str(Path(__file__).with_name("memory.py")), *arguments]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def imports(bench: Bench) -> list[Row]:
    """What an import adds to that of numpy."""
    best = in_turn(
        {
            "numpy": lambda: bench.clock.of_process([sys.executable, "-c", "import numpy"]),
            "both": lambda: bench.clock.of_process([sys.executable, "-c", "import numpy, pylogseg"]),
        },
        4 * bench.rounds,
        warm=True,
    )
    added = max(0.0, best["both"] - best["numpy"]) * 1e3
    return [Row("import pylogseg after numpy", added, "ms", "", None, 30, "loaded when used")]


def starts(bench: Bench) -> list[Row]:
    """Commands on a small directory, from the start of the process to its end."""
    folder, python = str(Path(__file__).resolve().parent.parent / "examples" / "data"), sys.executable
    # Compiled files of modules are kept, as an installed package has them.
    kept = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(bench.folder / "compiled")}
    commands = {
        "ls": [python, "-m", "pylogseg", "ls", folder],
        "numpy": [python, "-c", "import numpy"],
        "sql": [python, "-m", "pylogseg", "sql", folder, "select count(*) from records"],
        "engines": [python, "-c", "import numpy, pyarrow.compute, duckdb"],
    }
    sides = {
        name: lambda command=command: bench.clock.of_process(command, **kept) for name, command in commands.items()
    }
    best = {name: 1e3 * seconds for name, seconds in in_turn(sides, bench.rounds).items()}
    return [
        Row("ls of 15 topics, whole process", best["ls"], "ms", "", None, 100,
            f"import numpy takes {best['numpy']:.0f} ms alone"),
        Row("sql 'select count(*)', whole process", best["sql"], "ms", "", None, 250,
            f"import numpy, pyarrow.compute, duckdb takes {best['engines']:.0f} ms alone"),
    ]  # fmt: skip


ALL: dict[str, Callable[[Bench], list[Row]]] = {
    "checksums": checksums,
    "headers": headers,
    "arrow": arrow,
    "compressed": compressed,
    "encoding": encoding,
    "indexes": indexes,
    "text": text,
    "memory": memory,
    "imports": imports,
    "starts": starts,
    "append": engine.appends,
    "recovery": engine.recovery,
    "opening": engine.opening,
    "lookups": engine.lookups,
    "growth": engine.growth,
    "compaction": many_logs.compaction,
    "passes": many_logs.passes,
    "many": many_logs.many,
    "cold": many_logs.cold,
}
