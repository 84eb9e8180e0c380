"""The ratio table: our figures beside those of others, measured in turn on the same files.

    python asv_benchmarks/table.py [--quick] [--markdown] [--data DIR] [--records N] [--starts N] [--clock wall]
                                   [--only NAME ...]

One core, warm page cache, 100-byte values in batches of 16 KiB; the best of several rounds in which each side has its
turn, and of several starts of Kafka's JVM. Rates are of processor time (see `measure.Clock`): the same as on the wall
on a machine that does nothing else. Without Java and Maven the rows that compare with Kafka are left out, and the data
comes from our own encoder.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import archives
import audits
import cluster_state
import dataset
import lakes
import rows as table_rows
import sections
import typed
from measure import Clock, all_cores, pin

#: What takes as long with few records; `--quick` leaves it out unless `--only` names it.
_LONG = ("opening", "many", "cold", "state", "lake", "audit", "archive")
#: The subjects by name; `state` and those after it use what the others have.
ALL = {
    **sections.ALL,
    "state": cluster_state.cluster_state,
    "typed": typed.typed,
    "dataset": dataset.dataset,
    "audit": audits.audits,
    "lake": lakes.lake,
    "archive": archives.archives,
}


def arguments() -> argparse.Namespace:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"fewer records and rounds, and without {', '.join(_LONG)}: rough figures in about two minutes",
    )
    parser.add_argument("--markdown", action="store_true", help="for a page")
    parser.add_argument("--data", type=Path, default=Path(tempfile.gettempdir()) / "pylogseg-benchmark")
    parser.add_argument(
        "--records", type=int, help="of the log without compression (8 million; the others have 3/8 of it)"
    )
    parser.add_argument("--starts", type=int, metavar="N", help="of Kafka's JVM, whose best counts (5; 2 with --quick)")
    parser.add_argument("--clock", choices=["cpu", "wall"], default="cpu")
    parser.add_argument("--only", nargs="+", choices=list(ALL), metavar="NAME", help=", ".join(ALL))
    return parser.parse_args()


def main() -> None:
    """Measure, and print as it goes; the table at the end."""
    asked = arguments()
    cores = all_cores()
    core = pin()
    records = asked.records or (1_000_000 if asked.quick else 8_000_000)
    rounds, starts = (3, 2) if asked.quick else (7, 5)
    bench = sections.Bench(asked.data, records, rounds, asked.starts or starts, Clock(asked.clock), cores)
    say(f"one core{'' if core is None else f' (number {core})'}, clock: {asked.clock}, data: {asked.data}, {machine()}")
    for what in bench.missing():
        say(f"left out: {what}")
    rows: list[table_rows.Row] = []
    names = asked.only or [name for name in ALL if not (asked.quick and name in _LONG)]
    left = list(names)
    try:
        while left:
            say(f"... {left[0]}")
            rows += ALL[left[0]](bench)
            del left[0]
    except KeyboardInterrupt:
        say("interrupted")
    finally:  # what was measured is not lost
        show(rows, left, markdown=asked.markdown)
    sys.exit(bool(left))


def show(rows: list[table_rows.Row], left: list[str], *, markdown: bool) -> None:
    """Print the table, and what was not measured."""
    print("\n".join(table_rows.lines(rows, markdown=markdown)))
    barred = [row for row in rows if row.met is not None]
    print(f"\n{sum(bool(row.met) for row in barred)} of {len(barred)} bars met")
    if left:
        print(f"not measured: {', '.join(left)}")


def machine() -> str:
    """Load and processor, for the reader of the figures."""
    model = "unknown processor"
    try:
        text = Path("/proc/cpuinfo").read_text()
        model = next(line.split(":", 1)[1].strip() for line in text.splitlines() if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    load = f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "?"
    return f"{model}, {os.cpu_count()} cores, load {load}"


def say(text: Any) -> None:
    """Progress, beside the table."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
