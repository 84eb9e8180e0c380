"""Tables of `lake` in Iceberg's own REST catalog, which loses answers to commits that it has made.

    python tests/soak lake-rest [--iceberg VERSION]

The catalog is that of Iceberg's tests, `CatalogServer.java` beside this file. Of three commits the answer to one is
lost. Tables are written by one run, by three at once, and again after more was appended; each time they equal the log.
Needs Java 17, Maven, which fetches the jars, and `pip install 'pyiceberg[pyiceberg-core]'`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from helpers.lake_tables import latest_rows, log_rows, plain
from helpers.typed_logs import write_keyed_orders
from pyiceberg.catalog import load_catalog

import pylogseg
from soak import TESTS, itself

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion><groupId>pylogseg</groupId><artifactId>catalog</artifactId><version>1</version>
  <dependencies>{}</dependencies>
</project>
"""
#: What is needed besides Iceberg: a file system, a driver, a server.
OTHERS = (
    "org.apache.hadoop:hadoop-client-api:3.4.2",
    "org.apache.hadoop:hadoop-client-runtime:3.4.2",
    "org.xerial:sqlite-jdbc:3.46.0.0",
    "org.eclipse.jetty.ee10:jetty-ee10-servlet:12.0.16",
    "org.slf4j:slf4j-nop:2.0.16",
)
LOST_EVERY = 3


def jars(folder: Path, iceberg: str) -> None:
    """Fetch them."""
    core = f"org.apache.iceberg:iceberg-core:{iceberg}"
    found = []
    for name in (core, f"{core}:tests", *OTHERS):
        group, artifact, version, *classifier = name.split(":")
        more = f"<classifier>{classifier[0]}</classifier>" if classifier else ""
        what = f"<groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
        found.append(f"<dependency>{what}{more}</dependency>")
    (folder / "pom.xml").write_text(POM.format("".join(found)))
    words = ["mvn", "-q", "-B", "-f", str(folder / "pom.xml"), "dependency:copy-dependencies"]
    subprocess.run([*words, "-DincludeScope=runtime", f"-DoutputDirectory={folder}"], check=True)


def write(uri: str, data: str, name: str) -> Any:
    """Bring a table up to date."""
    options = {"type": "rest", "uri": uri}
    latest, table = name == "latest", f"iceberg:kafka.{name}"
    sizes = {"commit_bytes": 4_000, "file_bytes": 1_000}
    return pylogseg.lake(data, table, "orders", latest=latest, clean=True, table_options=options, **sizes)[0]


def compared(root: Path, uri: str) -> Iterator[tuple[str, bool]]:
    """Write, compare, append, and again."""
    data = root / "data"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

    def is_right(name: str) -> bool:
        rows = load_catalog("rest", type="rest", uri=uri).load_table(("kafka", name)).scan().to_arrow()
        found = plain(rows.sort_by([("partition", "ascending"), ("offset", "ascending")]))
        return found == (latest_rows(data) if name == "latest" else log_rows(data, "orders"))

    for seed in (1, 2):
        write_keyed_orders(data, 150, seed)
        for name in ("orders", "latest"):
            done = write(uri, str(data), name)
            yield f"{name}: {done.records} records in {done.commits} commits", is_right(name)
            yield f"{name}: nothing new", write(uri, str(data), name).commits == 0
        words = [*itself(__file__), "--write", uri, str(data), "together"]
        codes = [each.wait() for each in [subprocess.Popen(words, env=environment) for _ in range(3)]]
        yield "three runs at once", codes == [0, 0, 0] and is_right("together")


def main() -> int:
    """Print a line for each step; exit code 1 if something was wrong."""
    if sys.argv[1:2] == ["--write"]:
        write(*sys.argv[2:])
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iceberg", default="1.11.0", help="version of Iceberg")
    iceberg = parser.parse_args().iceberg
    all_well = True
    with tempfile.TemporaryDirectory(prefix="lake-rest-") as folder:
        lib = Path(folder, "lib")
        lib.mkdir()
        jars(lib, iceberg)
        words = ["java", "-cp", f"{lib}/*", str(TESTS / "soak" / "CatalogServer.java"), folder, str(LOST_EVERY)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                uri = f"http://127.0.0.1:{int(server.stdout.readline())}"
                for what, is_well in compared(Path(folder), uri):
                    print(f"{what}: {'well' if is_well else 'WRONG'}", flush=True)
                    all_well &= is_well
            finally:
                server.kill()
    return 0 if all_well else 1


if __name__ == "__main__":
    sys.exit(main())
