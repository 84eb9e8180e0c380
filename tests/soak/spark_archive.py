"""The package on a cluster that does not have it: `python tests/soak spark-archive [--wheel FILE]`.

A folder with the wheel and what it needs goes along as an archive, as docs/spark.md says. A cluster of two executors
(`local-cluster[2,1,1024]`) with a Python that has neither this package nor pyarrow reads the committed example through
it, by both doors and by a job. Without the archive the same has to fail. Exit code 0 if so. Needs pyspark, Java 17
and a package index.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import pyspark

from soak import EXAMPLES, ROOT

JOB = """
import sys
import pyarrow as pa
import pylogseg.spark
from pylogseg.spark import jobs
from pyspark.sql import SparkSession

def place(batch):
    import pylogseg
    return pa.record_batch({"file": [pylogseg.__file__]})

spark = SparkSession.builder.getOrCreate()
places = pylogseg.spark.read_segments(spark, sys.argv[1], ["offset"], batch_fn=place, schema="file string")
print("workers:", *{row.file for row in places.collect()})
pylogseg.spark.register(spark)
print("rows:", spark.read.format("pylogseg").option("subscribe", "codec-zstd").load(sys.argv[1]).count())
print("findings:", jobs.verify(spark, sys.argv[1], ["codec-*"]).count())
"""


def bare_python() -> str:
    """The Python that environments are made of; it must not have what is to be shipped."""
    python = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    command = [python, "-c", "import importlib.util as u; print(u.find_spec('pylogseg'), u.find_spec('pyarrow'))"]
    said = subprocess.run(command, capture_output=True, encoding="utf-8", check=True, env=without_paths()).stdout
    if said.split() != ["None", "None"]:
        raise SystemExit(f"{python} has the packages already, so nothing would be shown: {said}")
    return str(python)


def without_paths() -> dict[str, str]:
    """The environment of this process without what would lead workers to its packages."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}


def pack(folder: Path, wheel: Path | None) -> None:
    """The wheel and what it needs in `deps`, and that as an archive."""
    pip = [sys.executable, "-m", "pip"]
    if wheel is None:
        subprocess.run([*pip, "wheel", "-q", "--no-deps", "-w", folder / "wheel", ROOT], check=True, timeout=900)
        (wheel,) = (folder / "wheel").glob("*.whl")
    subprocess.run([*pip, "install", "-q", "--target", folder / "deps", wheel, "pandas<3"], check=True, timeout=900)
    with tarfile.open(folder / "deps.tar.gz", "w:gz", compresslevel=1) as archive:
        archive.add(folder / "deps", ".")


def submit(folder: Path, python: str, *more: str) -> subprocess.CompletedProcess[str]:
    """Run the job as a user would, in a folder where `deps` lies."""
    home = folder / "spark"
    if not home.exists():  # executors work in a folder of Spark's own: not in that of the installed one
        home.mkdir()
        for part in Path(pyspark.__file__).parent.iterdir():
            (home / part.name).symlink_to(part)
        (folder / "job.py").write_text(JOB, encoding="utf-8")
    settings = {
        "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": "./deps",
        "PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python,
    }  # fmt: skip
    command = [
        home / "bin" / "spark-submit", "--master", "local-cluster[2,1,1024]", "--driver-memory", "1g", *more,
        "--conf", "spark.executorEnv.PYTHONPATH=./deps", "--conf", "spark.ui.enabled=false",
        "--conf", "spark.log.level=OFF", "job.py", str(EXAMPLES),
    ]  # fmt: skip
    return subprocess.run(
        command, cwd=folder, env={**without_paths(), **settings}, capture_output=True, encoding="utf-8", timeout=400
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheel", type=Path, help="instead of building one")
    asked = parser.parse_args()
    python = bare_python()
    folder = Path(tempfile.mkdtemp(prefix="pylogseg-archive-"))
    try:
        pack(folder, asked.wheel)
        size = (folder / "deps.tar.gz").stat().st_size
        print(f"deps.tar.gz: {size / 1e6:.0f} MB", flush=True)
        without = submit(folder, python)
        assert without.returncode, "it ran without the archive"
        assert "No module named 'p" in without.stderr + without.stdout, without.stderr[-3000:]
        print("without the archive: refused, no such module", flush=True)
        shipped = submit(folder, python, "--archives", "deps.tar.gz#deps")
        assert not shipped.returncode, shipped.stdout + shipped.stderr[-3000:]
        lines = dict(line.split(": ", 1) for line in shipped.stdout.splitlines() if ": " in line)
        print("with it:", lines)
        assert str(folder / "spark" / "work") in lines["workers"] or "/deps/pylogseg" in lines["workers"]
        assert (lines["rows"], lines["findings"]) == ("505", "0")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
