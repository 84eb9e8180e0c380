"""The tests of Spark on each version of it, and one table of what came out.

    python tests/soak spark-matrix [VERSION ...] [--folder DIR] [--wheel FILE] [-- ARGUMENTS OF PYTEST]

For each version an environment of its own is made in DIR (kept, and used again): that Spark, the wheel of this project,
and what the tests need. In it runs `pytest tests/spark`, with the wheel, not with `src`. What a version does
not offer is what the tests that were skipped say. VERSION is as pip has it: 4.1 is the newest 4.1.*. Needs Java 17,
a package index, and 0.5 GB for each version. Exit code 0 if no test failed.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from soak import ROOT, TESTS

VERSIONS = ["3.5", "4.0", "4.1", "4.2", "4.3"]
FOLDER = Path(tempfile.gettempdir()) / "pylogseg-spark"
NEEDS = ["pandas>=2.2,<3", "setuptools", "wheel"]
#: What a Spark says that it needs, and pip does not know.
NEEDS_OF = {"3.5": ["numpy<2", "pyarrow<22"]}
_LIMIT_SECONDS = 1800


class Outcome(NamedTuple):
    """What the tests said of one version."""

    spark: str
    python: str
    passed: int
    failed: int
    reasons: list[str]
    skipped: int
    seconds: float


def run(command: Sequence[str | Path], **settings: object) -> str:
    """Run a command; its output, or its last words where it fails."""
    done = subprocess.run(  # type: ignore[call-overload]
        list(map(str, command)), capture_output=True, encoding="utf-8", timeout=_LIMIT_SECONDS, **settings
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\n{(done.stdout + done.stderr)[-3000:]}")
    return str(done.stdout)


def wheel(folder: Path) -> Path:
    """The project as a wheel, built now."""
    print("building the wheel", flush=True)
    run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder / "wheel", ROOT])
    return max((folder / "wheel").glob("pylogseg-*.whl"), key=lambda path: path.stat().st_mtime)


def environment(folder: Path, version: str, package: Path) -> Path:
    """The Python of an environment with that Spark and this package."""
    home = folder / f"spark-{version}"
    python = home / "bin" / "python"
    if not python.exists():
        run([sys.executable, "-m", "venv", home])
    pip = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    wanted = f"pyspark[connect]=={version}" if version.count(".") > 1 else f"pyspark[connect]=={version}.*"
    run([*pip, wanted, *NEEDS, *NEEDS_OF.get(".".join(version.split(".")[:2]), []), f"{package}[check]"])
    run([*pip, "--force-reinstall", "--no-deps", package])
    return python


def outcome(folder: Path, version: str, python: Path, arguments: Sequence[str]) -> Outcome:
    """Run the tests with that Python."""
    report = folder / f"spark-{version}.xml"
    report.unlink(missing_ok=True)
    files = sorted(str(path) for path in (TESTS / "spark").glob("test_*.py"))
    command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *files, *arguments]
    bare = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SPARK_HOME")}
    done = subprocess.run(command, cwd=ROOT, env=bare, capture_output=True, encoding="utf-8", timeout=_LIMIT_SECONDS)
    words = folder / f"spark-{version}.log"
    words.write_text(done.stdout + done.stderr, encoding="utf-8")
    if not report.exists():
        raise SystemExit(f"{words}: {done.stdout[-1000:]}{done.stderr[-1000:]}")
    cases = list(ET.parse(report).iter("testcase"))
    failed = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    skips = [skip for case in cases for skip in case.findall("skipped")]
    for case in failed:
        print(f"   failed: {case.get('classname')}.{case.get('name')} ({words})", flush=True)
    said = run([python, "-c", "import platform, pyspark; print(pyspark.__version__, platform.python_version())"])
    spark, number = said.split()
    seconds = sum(float(case.get("time", 0)) for case in cases)
    passed = len(cases) - len(failed) - len(skips)
    reasons = sorted({reason(skip) for skip in skips})
    return Outcome(spark, number, passed, len(failed), reasons, len(skips), seconds)


def reason(skip: ET.Element) -> str:
    """Why a test, or a whole file, was skipped."""
    of_file = re.search(r"Skipped: (.*?)['\"]\)", skip.text or "")
    return of_file.group(1) if of_file else skip.get("message", "").strip()


def table(rows: Sequence[Outcome]) -> str:
    """The outcomes in Markdown."""
    lines = ["| Spark | Python | passed | failed | skipped | seconds | not offered |", "|---|---|--:|--:|--:|--:|---|"]
    for row in rows:
        numbers = f"{row.passed} | {row.failed} | {row.skipped} | {row.seconds:.0f}"
        lines.append(f"| {row.spark} | {row.python} | {numbers} | {'; '.join(row.reasons)} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("versions", nargs="*", metavar="VERSION", help=f"default: {' '.join(VERSIONS)}")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="for the environments (%(default)s)")
    parser.add_argument("--wheel", type=Path, help="instead of building one")
    words = sys.argv[1:]
    cut = words.index("--") if "--" in words else len(words)
    asked = parser.parse_args(words[:cut])
    asked.folder.mkdir(parents=True, exist_ok=True)
    package = asked.wheel or wheel(asked.folder)
    found = []
    for version in asked.versions or VERSIONS:
        print(f"Spark {version}", flush=True)
        python = environment(asked.folder, version, package.resolve())
        found.append(row := outcome(asked.folder, version, python, words[cut + 1 :]))
        print(f"   {row.passed} passed, {row.failed} failed, {row.skipped} skipped", flush=True)
    print(table(found))
    return int(any(row.failed for row in found))


if __name__ == "__main__":
    sys.exit(main())
