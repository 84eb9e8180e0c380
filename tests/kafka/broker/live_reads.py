"""A real Kafka read over its protocol, compared with its disks: rows in both isolations, bytes, a copy, and logins.

    python tests/kafka/broker/live_reads.py [--keep FOLDER]

It starts a broker, lets it write the scenarios of `broker.sh seed`, and compares each partition. Prints a line for each
difference and a summary; exit code 1 if there is one.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# A neighbour, which is no package:
from one_broker import Broker

import pylogseg
from pylogseg import offline
from pylogseg.errors import StorageError

SCENARIOS = ("codecs", "txn", "compact", "retention")
LEVELS = ("read_uncommitted", "read_committed")
USER, PASSWORD = "alice", "secret-1"
SASL_PORT = 39092
#: A cleaner that has nothing to do for so long has ended.
QUIET_S = 20
LINES = [
    f"listeners=PLAINTEXT://127.0.0.1:{{port}},CONTROLLER://127.0.0.1:{{controller}},SASL://127.0.0.1:{SASL_PORT}",
    f"advertised.listeners=PLAINTEXT://127.0.0.1:{{port}},SASL://127.0.0.1:{SASL_PORT}",
    "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT",
    "inter.broker.listener.name=PLAINTEXT",
    "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.sasl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'user_{USER}="{PASSWORD}";',
    *(
        f"listener.name.sasl.{name}.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;"
        for name in ("scram-sha-256", "scram-sha-512")
    ),
]


def start(folder: Path) -> Broker:
    """Start a broker with logins."""
    (folder / "run").mkdir(parents=True)
    port, controller = 39090, 39091
    (folder / "run" / "port").write_text(f"{port}\n")
    (folder / "run" / "controller-port").write_text(f"{controller}\n")
    lines = [line.format(port=port, controller=controller) for line in LINES]
    users = [f"--add-scram {name}=[name={USER},password={PASSWORD}]" for name in ("SCRAM-SHA-256", "SCRAM-SHA-512")]
    broker = Broker(folder, FORMAT_ARGS=" ".join(users))
    broker("start", *lines)
    return broker


def read_bytes(partition: pylogseg.Partition) -> bytes:
    """Return the batches of a partition as a cluster sends them."""
    parts, position = list[bytes](), 0
    with partition.segments[0].open() as view:
        while len(data := view.read(position, 1 << 20)):
            parts.append(bytes(data))
            position += len(data)
    return b"".join(parts)


def _segments(folder: Path) -> list[Path]:
    """Return the segments of topics; the cluster's metadata grows twice a second."""
    return [path for path in folder.glob("data*/*/*.log") if not path.parent.name.startswith("__cluster_metadata")]


def compare(address: str, folder: Path) -> tuple[int, int, int]:
    """Compare each partition of the cluster with its disk, when no cleaner works any more.

    Returns the partitions, the rows, and the differences.
    """
    while True:
        before = {path: path.stat().st_size for path in _segments(folder)}
        time.sleep(QUIET_S)
        if before == {path: path.stat().st_size for path in _segments(folder)}:
            break
    disk = pylogseg.open_dir([folder / "data0", folder / "data1"])
    own = {partition.name: partition for partition in disk if not partition.state}
    partitions = rows = differences = 0
    for partition in pylogseg.open_dir(f"kafka://{address}"):
        partitions += 1
        for level in LEVELS:
            fetched = pylogseg.read(partition, isolation_level=level).to_arrow()
            rows += fetched.num_rows
            if fetched != pylogseg.read(own[partition.name], isolation_level=level).to_arrow():
                differences += 1
                print(f"{partition.name}: other rows with {level}")
        stored = b"".join(Path(segment.path).read_bytes() for segment in own[partition.name].segments)
        # Behind the last batch a preallocated segment has zeros; before the first one lie records that were deleted.
        if not stored.rstrip(b"\0").endswith(read_bytes(partition).rstrip(b"\0")):
            differences += 1
            print(f"{partition.name}: other bytes")
    return partitions, rows, differences


def compare_copy(address: str, folder: Path) -> int:
    """Copy the cluster, compare bytes, and verify the copy; return how many partitions are not as on the disk."""
    copied = offline.copy(f"kafka://{address}", folder / "copy")
    differences = 0
    for row in copied:
        (own,) = (folder / disk / row.name for disk in ("data0", "data1") if (folder / disk / row.name).exists())
        copy, stored = (b"".join(path.read_bytes() for path in sorted(each.glob("*.log")))
                        for each in (folder / "copy" / row.name, own))  # fmt: skip
        # The coordinators' log gets the ends of transactions that the partitions show.
        is_same = stored.rstrip(b"\0").endswith(copy.rstrip(b"\0")) or row.name.startswith("__transaction_state")
        if row.state != "copied" or not is_same:
            differences += 1
            print(f"{row.name}: {row.state}, other bytes in the copy")
    done = subprocess.run([sys.executable, "-m", "pylogseg", "verify", folder / "copy"], capture_output=True, text=True)
    print(done.stdout.splitlines()[-1])
    return differences + (done.returncode != 0)


def check_logins() -> int:
    """Log in by each mechanism, and with a wrong password; return how often that went wrong."""
    faults = 0
    for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
        for password, is_right in ((PASSWORD, True), ("wrong", False)):
            properties = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.username": USER,
                          "sasl.password": password}  # fmt: skip
            try:
                pylogseg.open_dir(f"kafka://127.0.0.1:{SASL_PORT}", storage_options={"cluster": properties})
                answer = "in"
            except StorageError as error:
                answer = str(error)
            print(f"{mechanism}, {'the right' if is_right else 'a wrong'} password: {answer}")
            faults += (answer == "in") != is_right
    return faults


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, help="a new folder for the broker, which stays")
    keep = parser.parse_args().keep
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, "broker") if keep is None else keep
        broker = start(folder)
        try:
            for scenario in SCENARIOS:
                broker("seed", scenario)
            partitions, rows, differences = compare(broker.address, folder)
            differences += compare_copy(broker.address, folder)
            faults = check_logins()
        finally:
            broker("stop")
    print(f"{partitions} partitions, {rows:,} rows, {differences} differences; {faults} faults of logins")
    sys.exit(bool(differences or faults))


if __name__ == "__main__":
    main()
