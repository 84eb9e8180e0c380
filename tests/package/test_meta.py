"""Tests of _lazy.py, cli/versions.py, env/spared.py and format/keywords.py. What holds for the package as a whole:
bands, stubs, docstrings, lengths of files, the cost of an import.
"""

from __future__ import annotations

import ast
import functools
import graphlib
import importlib
import inspect
import re
import subprocess
import sys
from collections import Counter
from operator import attrgetter
from pathlib import Path

import pytest
from helpers.public_names import definitions, described, offered, public, shown_names

import pylogseg
from pylogseg.cli import versions
from pylogseg.format.keywords import parameters_of

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "pylogseg"
MODULES = sorted(SOURCE.rglob("*.py"))
PACKAGE_STUBS = sorted(SOURCE.rglob("__init__.pyi"))
STUBS = sorted(set(SOURCE.rglob("*.pyi")) - set(PACKAGE_STUBS))

#: The bands, each a folder, the ground at the bottom: a band imports from itself and from those below it.
BANDS: tuple[tuple[str, ...], ...] = (
    ("testing",),
    ("cli", "__main__"),
    ("spark",),
    ("reporting",),
    ("archive",),
    ("offline",),
    ("server",),
    ("owned",),
    ("lakehouse",),
    ("tables",),
    ("transfer",),
    ("inspect",),
    ("values",),
    ("reading",),
    ("log",),
    ("disk",),
    ("live",),
    ("walker",),
    ("env",),
    ("format", "config"),
    ("_codec", "_native"),
    ("errors", "_setting_text", "_version", "_lazy"),
)
#: Bands that know less than their row would let them.
NARROWER = {"env": {"errors", "env", "_native"}, "testing": {"errors", "env", "testing"}}
#: Packages of others that only these modules may import.
EDGES = {
    "pyarrow": re.compile(
        r"reading\.(arrow\..*|bounds|filters|scan)|values\.(?!schemas\.).*|tables\..*|lakehouse\..*"
        r"|inspect\.search\.regex|server\.regex|offline\.(restoring\..*|comparing_table)|spark(\..*)?"
    ),
    "duckdb": re.compile(r"tables\.sql\..*|lakehouse\..*ducklake"),
    "deltalake": re.compile(r"lakehouse\..*delta"),
    "pyiceberg": re.compile(r"lakehouse\..*iceberg"),
    "click": re.compile(r"cli(\..*)?"),
    "rich": re.compile(r"cli(\..*)?"),
    "fsspec": re.compile(r"env\.remote"),
    "aws_msk_iam_sasl_signer": re.compile(r"live\.msk"),
    "cryptography": re.compile(r"disk\.tier\.keys"),
    "Crypto": re.compile(r"disk\.tier\.keys"),
    "pyspark": re.compile(r"spark(\..*)?"),
    "pandas": re.compile(r"spark(\..*)?"),
    "polars": re.compile(r"tables\.polars"),
}
#: Who loops over the windows of files, besides `log` and `walker`, and why: all else asks the scan for records, or is a
#: visitor of a pass.
WALKS = {
    r"reading\.(partition|ranges|logs)": "the scan of records: windows, masks, columns",
    r"inspect\.segment_pass": "the pass of verify, stats and report",
    r"reading\.(seek|copies|transaction_markers|removed_segments)": "headers: places of offsets and times, markers",
    r"tables\.batch_rows|inspect\.dump\..*|server\.skipping": "a batch is a row, a line or a place; none is left out",
    r"inspect\.stats\.listing_windows": "headers of the first and the last batch, of many segments",
    r"inspect\.stats\.tops|inspect\.verify\.partition": "a record of one segment, of which no log is at hand",
    r"inspect\.verify\.files|disk\.tier\.layouts": "a file that is no segment yet: how far is it good?",
    r"tables\.export\.tables": "an outcome of transactions that later segments know",
    r"owned\.slices": "a log that this program is writing: by its engine, not by its files",
    r"transfer\.checked": "bytes that are copied, merged, restored, repaired or uploaded: no gap without a name",
    r"offline\.(ages|compacting|rewriting|truncating)": "segments of a log that a command has opened, by its engine",
}
LONGEST_FILE_LINES = 700
#: Of a constructor, and of `open`, in the engine.
MOST_PARAMETERS = 7


class Facts(ast.NodeVisitor):
    """What is asked of a file, which is parsed once: imports, also those inside of functions, and names.

    Attributes
    ----------
    imports : list of tuple
        Module or name imported, and function it stands in.
    classes, functions, attributes : list of str, set of str, set of str
        Names of the classes, of the functions that are not asynchronous, and of the attributes that are used.
    calls, texts : list of tuple
        Line and name of what is called by its name; line and value of the strings that are not docstrings.
    docstring : str or None
        Of the module.
    """

    def __init__(self, tree: ast.Module) -> None:
        self.imports: list[tuple[str, str]] = []
        self.classes: list[str] = []
        self.functions: set[str] = set()
        self.attributes: set[str] = set()
        self.calls: list[tuple[int, str]] = []
        self.texts: list[tuple[int, str]] = []
        self.docstring = ast.get_docstring(tree)
        self._inside: list[str] = []
        self._docstrings: set[int] = set()
        self._has_docstring(tree)
        self.visit(tree)

    def visit_Import(self, node: ast.Import) -> None:
        self.imports += [(alias.name, ".".join(self._inside)) for alias in node.names]

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        assert node.level == 0, f"line {node.lineno}: a relative import hides which layer it reaches for"
        self.imports += [(f"{node.module}.{alias.name}", ".".join(self._inside)) for alias in node.names]

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.attributes.add(node.attr)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name):
            self.calls.append((node.lineno, node.func.id))
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str) and id(node) not in self._docstrings:
            self.texts.append((node.lineno, node.value))

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.classes.append(node.name)
        self._enter(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.functions.add(node.name)
        self._enter(node)

    def _enter(self, node: ast.ClassDef | ast.FunctionDef) -> None:
        self._has_docstring(node)
        self._inside.append(node.name)
        self.generic_visit(node)
        self._inside.pop()

    def _has_docstring(self, node: ast.Module | ast.ClassDef | ast.FunctionDef) -> None:
        if node.body and isinstance(node.body[0], ast.Expr):
            self._docstrings.add(id(node.body[0].value))


def name_of(path: Path) -> str:
    """Module name below `pylogseg`; empty for the package itself."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def facts(path: Path) -> Facts:
    return Facts(ast.parse(path.read_text(encoding="utf-8")))


def imports_of(path: Path) -> list[tuple[str, str]]:
    return facts(path).imports


def band_of(name: str) -> tuple[int, str]:
    """Row of a module, and its band."""
    band = name.split(".")[0]
    (row,) = [row for row, bands in enumerate(BANDS) if band in bands] or [-1]
    assert row >= 0, f"pylogseg.{name} is in no band: add it to BANDS and to docs/architecture.md"
    return row, band


def test_bands() -> None:
    for path in MODULES:
        if module := name_of(path):
            check_band(path, module)


def check_band(path: Path, module: str) -> None:
    row, band = band_of(module)
    for target, _ in imports_of(path):
        if not target.startswith("pylogseg."):
            continue
        below, used = band_of(target.removeprefix("pylogseg."))
        assert below >= row, f"{module} ({band}) imports {target} ({used}), which lies above it"
        assert used in NARROWER.get(band, {used}), f"{module} must not know {used}"


def test_who_loops_over_windows() -> None:
    """A change of how records are scanned is made once; the table says who else reads windows, and all of it does."""
    loops = {"walk", "broker_windows", "recovery_windows", "whole_windows", "dump_windows", "PartitionReader"}
    walking = {name_of(path) for path in MODULES if {name for _, name in facts(path).calls} & loops}
    walking |= {name_of(path) for path in MODULES if "windows" in facts(path).attributes}
    others = {name for name in walking if not name.startswith(("log.", "walker."))}
    assert {name for name in others if not any(re.fullmatch(each, name) for each in WALKS)} == set()
    assert [each for each in WALKS if not any(re.fullmatch(each, name) for name in others)] == []


def test_who_makes_the_files_beside_segments() -> None:
    """Leader epochs and snapshots of producers are made by the engine, or for a log that is made of another one."""
    makers = {"encode_leader_epochs", "encode_snapshot"}
    names = {name_of(path) for path in MODULES if {name for _, name in facts(path).calls} & makers}
    # A point of an archive shows its epochs as a file.
    assert {name for name in names if not name.startswith("log.")} == {"transfer.segment_files", "disk.tier.at_point"}


def test_bands_are_the_folders() -> None:
    there = {path.stem for path in SOURCE.iterdir() if path.is_dir() or path.suffix in (".py", ".pyx")}
    assert there - {"__init__", "__pycache__"} == {band for row in BANDS for band in row}


def test_the_picture_of_bands() -> None:
    """docs/architecture.md has a line for each row, in the same order, that no page or terminal has to wrap."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    picture = page.partition("```text\n")[2].partition("```")[0].splitlines()
    assert [line.split()[0] for line in picture] == [row[0] for row in BANDS]
    for line, row in zip(picture, BANDS, strict=True):
        assert len(line) <= 120, line
        assert all(re.search(rf"\b{band}\b", line) for band in row), line


def test_no_circle() -> None:
    """No module imports itself by way of others: neither when it is loaded, nor in a function, nor for types."""
    names = {f"pylogseg.{name_of(path)}".rstrip("."): path for path in [*MODULES, *STUBS, *PACKAGE_STUBS]}
    imported = {
        name: {target if target in names else target.rpartition(".")[0] for target, _ in imports_of(path)} - {name}
        for name, path in names.items()
    }
    graphlib.TopologicalSorter(imported).prepare()  # CycleError names the modules of one


@pytest.mark.parametrize(
    "path", [path for path in MODULES if name_of(path).startswith(("log.", "owned."))], ids=name_of
)
def test_constructors_are_narrow(path: Path) -> None:
    """What travels together is one thing (`Environment`, `LogIdentity`, `Start`), and no types are lost on the way."""
    classes = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.ClassDef)]
    for found in classes:
        for made in found.body:
            if isinstance(made, ast.FunctionDef) and made.name in ("__init__", "open"):
                where = f"{found.name}.{made.name}"
                assert len(made.args.args) - 1 + len(made.args.kwonlyargs) <= MOST_PARAMETERS, where
                assert made.args.vararg is None, where
                assert made.args.kwarg is None, where


def test_a_class_name_has_one_meaning() -> None:
    """No two classes have the same name, also inside of functions and with an underscore."""
    places: dict[str, list[str]] = {}
    for path in MODULES:
        for name in facts(path).classes:
            places.setdefault(name, []).append(name_of(path))
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_compiled_modules_import_only_kernels() -> None:
    paths = list(SOURCE.rglob("*.pyx"))
    assert len(paths) == len(STUBS) <= 15
    shared = {f"pylogseg._native.{path.stem}" for path in (SOURCE / "_native").glob("*.pxd")}
    for path in paths:
        for target in re.findall(r"^\s*(?:from|import|cimport) +(pylogseg[\w.]*)", path.read_text(), re.MULTILINE):
            is_kernel = target.startswith(("pylogseg._native.kernels", "pylogseg.errors"))
            assert is_kernel or target in shared, f"{path.name}: {target}"
        assert '.h"' not in path.read_text(), f"{path.name}: C has a .pxd of the same subject in front of it"


@pytest.mark.parametrize("package", EDGES)
def test_edges(package: str) -> None:
    users = {name_of(path) for path in MODULES if any(t.split(".")[0] == package for t, _ in imports_of(path))}
    assert all(EDGES[package].fullmatch(name) for name in users), sorted(users)


def test_dependencies() -> None:
    """What a plain install brings is what the source imports, apart from what an extra brings."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (listed,) = re.findall(r"^dependencies = \[\n(.*?)^\]", text, re.MULTILINE | re.DOTALL)
    declared = set(re.findall(r'^ +"([a-z0-9]+)', listed, re.MULTILINE))
    imported = {target.split(".")[0] for path in MODULES for target, _ in imports_of(path)}
    # Type checkers bring typing_extensions along, and it is for them alone: tests/reading/test_types.py.
    extra = {
        "pylogseg",
        "fsspec",
        "pyspark",
        "pandas",
        "polars",
        "duckdb",
        "cryptography",
        "Crypto",
        "deltalake",
        "pyiceberg",
        "aws_msk_iam_sasl_signer",
        "typing_extensions",
    }
    assert imported - sys.stdlib_module_names - extra == declared


def test_the_extra_of_all() -> None:
    """`pylogseg[all]` brings each extra of a user, and none of those of people who work on pylogseg."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (listed,) = re.findall(r"^\[project.optional-dependencies\]\n(.*?)^\[", text, re.MULTILINE | re.DOTALL)
    extras = set(re.findall(r"^([a-z0-9]+) = ", listed, re.MULTILINE))
    (every,) = re.findall(r'^all = \["pylogseg\[(.*?)\]"\]', listed, re.MULTILINE)
    ours = {"free", "check", "test", "lint", "coverage", "bench", "docs", "fuzz"}
    assert set(every.split(",")) == extras - {"all"} - ours


def test_the_versions_that_are_shown() -> None:
    """`pylogseg --version --verbose` has each package that a user can have by an extra."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    wanted = set(re.findall(r"^dependencies = \[\n(.*?)^\]", text, re.MULTILINE | re.DOTALL))
    for extra in ("fsspec", "s3", "polars", "tier", "sql", "spark", "delta", "iceberg", "ducklake"):
        wanted |= set(re.findall(rf"^{extra} = \[(.*?)\]", text, re.MULTILINE))
    assert set(re.findall(r'"([a-z0-9]+)>', "".join(wanted))) == set(versions._PACKAGES)


def stub_functions(stub: Path) -> dict[str, ast.FunctionDef]:
    body = ast.parse(stub.read_text(encoding="utf-8")).body
    return {node.name: node for node in body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("stub", STUBS, ids=lambda stub: stub.stem)
def test_stub_parameters(stub: Path) -> None:
    module = importlib.import_module(f"pylogseg.{name_of(stub)}")
    for name, node in stub_functions(stub).items():
        real = inspect.signature(getattr(module, name)).parameters
        names = [a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
        assert names == list(real), f"{name}: the stub has {names}, the module {list(real)}"
        optional = len(node.args.defaults) + sum(default is not None for default in node.args.kw_defaults)
        with_default = [p.name for p in real.values() if p.default is not inspect.Parameter.empty]
        assert with_default == names[len(names) - optional :], name


@pytest.mark.parametrize("stub", STUBS, ids=lambda stub: stub.stem)
def test_stub_names(stub: Path) -> None:
    """Functions are in both; a class that only the module itself uses needs no stub, one that has a stub is there."""
    module = importlib.import_module(f"pylogseg.{name_of(stub)}")
    own = {name: thing for name, thing in vars(module).items() if getattr(thing, "__module__", "") == module.__name__}
    offered = {name for name, thing in own.items() if not name.startswith("_") and not inspect.isclass(thing)}
    assert set(stub_functions(stub)) == offered
    for node in ast.parse(stub.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            methods = {item.name for item in node.body if isinstance(item, ast.FunctionDef)} - {"__buffer__"}
            assert methods <= set(dir(own[node.name])), node.name
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            assert hasattr(module, node.target.id)


def test_module_docstrings() -> None:
    assert [name_of(path) for path in MODULES if not facts(path).docstring] == []


def test_docstrings() -> None:
    """What is public, `helpers.public_names` says; of the rest the docstring is there where the signature needs one."""
    found = public()
    assert {"pylogseg.reading.partition.Chunk", "pylogseg.tables.reader.Reader.chunks"} <= set(found)  # given, shown
    assert [name for name, node in found.items() if not ast.get_docstring(node)] == []


def test_sections() -> None:
    """Only what the pages of the API and of the internals show is described in sections; the rest has a line or two."""
    title = re.compile(r"^\w[\w ]*\n-{3,}$", re.MULTILINE)
    titled = {name for name, node in definitions() if title.search(ast.get_docstring(node) or "")}
    assert len(titled) > 100
    assert titled - described() == set()


def test_messages_say_is_not_a() -> None:
    """Texts for people say "is not a number": "is no number" is not what an engineer writes."""
    odd = re.compile(r"(?<!here )\b(is|are|was|were) (no|none)\b(?! (longer|more)\b)", re.IGNORECASE)
    texts = ((path, line, text) for path in MODULES for line, text in facts(path).texts)
    assert [f"{name_of(path)}:{line}: {text}" for path, line, text in texts if odd.search(text)] == []


def section(docstring: str, title: str) -> str:
    match = re.search(rf"^{title}\n-+\n(.*?)(?=^\w[\w ]*\n-+\n|\Z)", docstring, re.MULTILINE | re.DOTALL)
    return match[1] if match else ""


@pytest.mark.parametrize(
    "name",
    [
        *pylogseg.__all__,
        *(f"{package}.{name}" for package in ("archive", "offline") for name in getattr(pylogseg, package).__all__),
    ],
)
def test_public_names(name: str) -> None:
    """What the package offers says of each parameter what it is, and functions what they give."""
    thing = attrgetter(name)(pylogseg)
    docstring = inspect.cleandoc(thing.__doc__ or "")
    assert docstring
    if inspect.isclass(thing):
        return
    described = section(docstring, "Parameters")
    names = {parameter.name for parameter in parameters_of(thing)}
    if re.search(r"^[\w*, ]*\*\*\w", described, re.MULTILINE):  # it names where they are described
        names = {*inspect.signature(thing).parameters}
    for name in names:
        assert re.search(rf"^[\w*, ]*\b{name}\b[\w*, ]*( :|$)", described, re.MULTILINE), name
    assert section(docstring, "Returns")


MOST_PARAMETERS = 12


def test_functions_have_few_parameters() -> None:
    """What several functions take is a value, or keywords that a TypedDict declares; commands have their options."""
    wide = []
    for name, node in definitions():
        if isinstance(node, ast.FunctionDef) and not name.startswith("pylogseg.cli."):
            names = [each.arg for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
            if len(set(names) - {"self", "cls"}) > MOST_PARAMETERS:
                wide.append(name)
    assert wide == ["pylogseg.tables.reader.read"]


@pytest.mark.parametrize(
    "stub",
    [pytest.param(stub, marks=[pytest.mark.spark] if "spark" in stub.parts else []) for stub in PACKAGE_STUBS],
    ids=lambda stub: name_of(stub) or "pylogseg",
)
def test_a_package_offers_what_its_stub_imports(stub: Path) -> None:
    package, homes = importlib.import_module(f"pylogseg.{name_of(stub)}".rstrip(".")), offered(stub.parent)
    modules = {name for name, home in homes.items() if home == package.__name__}
    assert package.__all__ == sorted(homes.keys() - modules)
    assert set(homes) <= set(dir(package))
    for name, home in homes.items():
        found = getattr(package, name)
        assert found is (sys.modules[f"{home}.{name}"] if name in modules else getattr(sys.modules[home], name))
    with pytest.raises(AttributeError, match=rf"'{package.__name__}' has no attribute 'nothing'"):
        package.nothing  # noqa: B018


def test_the_package_offers_few_names() -> None:
    """What programs write; the rest they get, and import from the module that docs/api.md says."""
    assert len(pylogseg.__all__) <= 40


@pytest.mark.spark
def test_api_names_where_each_name_is_imported_from() -> None:
    shown, whole = shown_names(), set[str]()
    for module, names in shown.items():
        there = importlib.import_module(module)
        for home, name in names:
            if f"{home}.{name}" == module:
                whole.add(module)
            else:
                assert getattr(there, name, None) is getattr(importlib.import_module(home), name), f"{module}.{name}"
    for stub in PACKAGE_STUBS:
        package = f"pylogseg.{name_of(stub)}".rstrip(".")
        needed = {name for name, home in offered(stub.parent).items() if home not in {package, *whole}}
        assert needed - {name for _, name in shown[package]} == set(), package


def written_files() -> list[Path]:
    """Files that people wrote, by their kinds; data is left out."""
    kinds = {".py", ".pyi", ".pyx", ".pxd", ".h", ".md", ".toml", ".yml", ".sh", ".java"}
    folders = [ROOT / name for name in ("src", "tests", "docs", "asv_benchmarks", ".github", "examples")]
    found = [path for folder in folders for path in folder.rglob("*") if path.suffix in kinds and path.is_file()]
    found = [path for path in found if ".asv" not in path.parts]  # what asv built
    return [*found, *(path for path in ROOT.glob("*") if path.suffix in kinds or path.name == "Makefile")]


def test_file_lengths() -> None:
    code = [p for p in written_files() if p.suffix in (".py", ".pyi", ".pyx", ".pxd", ".h") and SOURCE in p.parents]
    lengths = {str(p.relative_to(ROOT)): len(p.read_text(encoding="utf-8").splitlines()) for p in code}
    assert {path: n for path, n in lengths.items() if n > LONGEST_FILE_LINES} == {}


def test_no_machine_paths() -> None:
    """No path of the machine that something was written on: such a file works nowhere else."""
    path_of_machine = re.compile(r"/(?:root|home|Users|work)/[\w.]|/tmp/(?:wt|venv)|[A-Z]:\\Users")
    hits = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in written_files()
        if path != Path(__file__).resolve()
        for line in path.read_text(encoding="utf-8").splitlines()
        if path_of_machine.search(line)
    ]
    assert hits == []


def test_no_finalizers() -> None:
    """A Ctrl-C that comes while a finalizer in Python runs is printed and lost."""
    assert [name_of(path) for path in MODULES if "__del__" in facts(path).functions] == []
    assert [name_of(path) for path in MODULES if "finalize" in facts(path).attributes] == []


def python(code: str, *options: str) -> str:
    return subprocess.run(
        [sys.executable, *options, "-c", code], check=True, capture_output=True, encoding="utf-8", cwd=ROOT
    ).stdout


def test_import_time() -> None:
    """`import pylogseg` costs at most 30 ms of a processor more than `import numpy`; the best of several."""
    code = "import time, numpy; t = time.process_time(); import pylogseg; print(time.process_time() - t)"
    assert min(float(python(code)) for _ in range(5)) <= 0.030


@pytest.mark.parametrize("use", ["pass", "pylogseg.open_dir, pylogseg.read, pylogseg.scan"])
def test_import_loads_no_edge(use: str) -> None:
    """Arrow, the codecs and the shell's packages are loaded by whoever needs them."""
    loaded = python(f"import sys, pylogseg; {use}; print(*sys.modules)").split()
    assert not {"pyarrow", "click", "rich", "cramjam", "fsspec"} & set(loaded)


@pytest.mark.spark
def test_imports_without_warnings() -> None:
    names = [f"pylogseg.{name_of(path)}".rstrip(".") for path in MODULES if path.name != "__main__.py"]
    names += [f"pylogseg.{name_of(stub)}" for stub in STUBS]
    python("\n".join(f"import {name}" for name in names), "-W", "error")


def test_each_file_of_tests_has_a_name_of_its_own() -> None:
    """Else pytest takes one for the other, and collects neither."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []


def test_no_test_imports_another() -> None:
    """What several tests need is a module of its own: a test module can be run, moved and removed alone."""
    helpers = [path for path in (ROOT / "tests").rglob("*.py") if "__pycache__" not in path.parts]
    tests = {path.stem for path in helpers if path.name.startswith("test_")}
    assert len(tests) > 100
    users = {
        f"{path.name}: {target}"
        for path in helpers
        for target, _ in imports_of(path)
        if any(part in tests for part in target.split(".")[:-1]) or target in tests
    }
    assert not users


def test_no_test_calls_another() -> None:
    """A test that others call runs where nobody looks for it; what they share is a function of another name."""
    calls = [
        f"{path.name}:{line}: {name}"
        for path in (ROOT / "tests").rglob("*.py")
        for line, name in facts(path).calls
        if name.startswith("test_")
    ]
    assert calls == []
