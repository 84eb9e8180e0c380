"""Tests of the whole package. What is handed out: the wheel that `make test` built and installed, and a source
distribution.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import shutil
import site
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

import pylogseg

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "pylogseg"
#: A module without debug information; with it, it is five times as large.
LARGEST_MODULE_BYTES = 700_000
DATA = {"py.typed", "format/messages/schemas.json", "format/kafka.json"}


@pytest.fixture(scope="module")
def wheel() -> Path:
    """The wheel in the folder that the Makefile leaves it in, or the one that ``PYLOGSEG_WHEEL`` names."""
    named = os.environ.get("PYLOGSEG_WHEEL")
    found = [Path(named).resolve()] if named else sorted((Path(sys.prefix) / "wheel").glob("pylogseg-*.whl"))
    if not found:
        pytest.skip("no wheel: run by make test, or set PYLOGSEG_WHEEL")
    return found[-1]


def test_wheel_content(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        sizes = {item.filename: item.file_size for item in archive.infolist()}
    ours = {name.removeprefix("pylogseg/") for name in sizes if name.startswith("pylogseg/")}
    # Spark finds data sources by modules of such a name.
    assert {name.split("/")[0].split("-")[0] for name in sizes} == {
        "pylogseg",
        "pyspark_pylogseg.py",
        "pytest_pylogseg.py",
    }
    written = {path.relative_to(SOURCE).as_posix() for kind in ("*.py", "*.pyi") for path in SOURCE.rglob(kind)}
    data = DATA | {f"reporting/assets/{path.name}" for path in (SOURCE / "reporting" / "assets").iterdir()}
    assert written | data <= ours
    compiled = ours - written - data
    stubs = {stub.relative_to(SOURCE).with_suffix("").as_posix() for stub in SOURCE.rglob("*.pyi")}
    stubs = {stub for stub in stubs if not stub.endswith("__init__")}  # of packages: the names that they offer
    # All modules share one of Cython's own.
    assert {name.split(".")[0] for name in compiled} == {*stubs, "_native/_cyutility"}
    assert all(name.endswith((".so", ".pyd")) for name in compiled), "sources of the compiled part have no use here"
    assert max(sizes[f"pylogseg/{name}"] for name in compiled) < LARGEST_MODULE_BYTES


def test_bill_of_materials(wheel: Path) -> None:
    """PEP 770: what is in the wheel and is not ours, by names that scanners know."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if ".dist-info/sboms/" in name]
        bill = json.loads(archive.read(name))
        recorded = archive.read(name.partition("/")[0] + "/RECORD").decode()
        kafka = {json.loads(archive.read(f"pylogseg/{each}"))["kafka"] for each in DATA if each.endswith(".json")}
    assert f"{name},sha256=" in recorded
    assert bill["metadata"]["component"]["purl"] == f"pkg:pypi/pylogseg@{pylogseg.__version__}"
    names = [part["purl"].rpartition("@")[0] for part in bill["components"]]
    assert set(names) == {"pkg:pypi/cython", "pkg:maven/org.apache.kafka/kafka-clients"}
    assert {part["version"] for part in bill["components"] if part["name"] == "kafka-clients"} == kafka


def test_wheel_without_a_compiler(wheel: Path, tmp_path: Path, examples: Path) -> None:
    """Installed beside nothing but its dependencies, with an empty PATH, it reads."""
    ours = importlib.util.find_spec("pip") is not None  # one more is installed in seconds
    venv.create(tmp_path / "env", symlinks=True, with_pip=not ours)
    python = next(path for path in (tmp_path / "env").glob("*/python*") if path.stem == "python")
    pip = [sys.executable, "-m", "pip", "--python", python] if ours else [python, "-m", "pip"]
    install = [*pip, "install", "-q", "--no-deps", "--no-index", "--disable-pip-version-check", wheel]
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # else pip may find it there
    subprocess.run(install, check=True, timeout=120, env=plain)
    (folder,) = [path for path in (tmp_path / "env").rglob("site-packages") if path.is_dir()]
    (folder / "dependencies.pth").write_text("\n".join(site.getsitepackages()), encoding="utf-8")
    code = (
        "import pylogseg, sys; "
        "print(pylogseg.__file__, len(list(pylogseg.read(sys.argv[1], 'codec-none-1'))), "
        "pylogseg.read_arrow(sys.argv[1], 'codec-zstd-0').read_all().num_rows)"
    )
    environment = {"PATH": str(tmp_path / "nothing"), "SYSTEMROOT": os.environ.get("SYSTEMROOT", "")}
    done = subprocess.run(
        [python, "-c", code, examples], env=environment, cwd=tmp_path, check=True, capture_output=True, text=True
    )
    file, *counts = done.stdout.split()
    assert Path(file).is_relative_to(tmp_path)
    assert counts == ["505", "505"]
    script = next(path for path in python.parent.iterdir() if path.stem == "pylogseg")
    said = subprocess.run([script, "--version"], env=environment, check=True, capture_output=True, text=True).stdout
    assert said.split() == ["pylogseg", pylogseg.__version__]


def test_metadata(wheel: Path) -> None:
    metadata = importlib.metadata.metadata("pylogseg")
    assert metadata["Version"] == pylogseg.__version__
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.10"


@pytest.mark.network
def test_source_distribution(tmp_path: Path) -> None:
    """From a copy of what is in the repository, without what an earlier build left there."""
    copy = tmp_path / "copy"
    left = shutil.ignore_patterns("*.so", "*.pyd", "*.c", "__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", copy / "src", ignore=left)
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "CHANGELOG.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    (copy / "tests").mkdir()
    shutil.copy(ROOT / "tests" / "quick.py", copy / "tests")
    have_tools = all(importlib.util.find_spec(name) for name in ("Cython", "setuptools"))
    isolation = ["--no-isolation"] if have_tools else []
    command = [sys.executable, "-m", "build", "--sdist", *isolation, "--outdir", str(tmp_path / "dist"), str(copy)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (path,) = (tmp_path / "dist").iterdir()
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    kinds = ("*.py", "*.pyi", "*.pyx", "*.pxd", "*.h", "py.typed")
    needed = {file.relative_to(copy).as_posix() for kind in kinds for file in (copy / "src").rglob(kind)}
    needed |= {"pyproject.toml", "setup.py", "README.md", "LICENSE", "CHANGELOG.md", "PKG-INFO", "tests/quick.py"}
    assert needed <= names
    assert not [name for name in names if name.endswith((".c", ".so", ".pyd"))]


def test_the_quick_set() -> None:
    """What each wheel is built with, and a packager runs: with this interpreter, and what is installed here."""
    done = subprocess.run(
        [sys.executable, ROOT / "tests" / "quick.py"], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "left out" not in done.stdout
