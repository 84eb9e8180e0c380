"""The compiled extensions and the switches of their build; everything else is in pyproject.toml.

Switches, as environment variables:
  PYLOGSEG_SANITIZE=address,undefined   builds with those sanitisers, without optimisation of bounds
  PYLOGSEG_CHECKS=1                     Cython's own bounds checks in the bindings
  PYLOGSEG_COVERAGE=1                   counters for gcov, by lines of .pyx, .pxd and .h (tests/coverage.sh)
"""

import json
import multiprocessing
import os
import sys
from pathlib import Path
from typing import Any

from Cython import __version__ as cython_version
from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

sanitize = os.environ.get("PYLOGSEG_SANITIZE", "")
checks = os.environ.get("PYLOGSEG_CHECKS", "") == "1"
coverage = os.environ.get("PYLOGSEG_COVERAGE", "") == "1"

if sys.platform == "win32":
    compile_args, link_args = ["/O2"], []
else:
    # An interpreter hands its own -g on to extensions; five sixths of a module would be debug information.
    compile_args, link_args = ["-O3", "-g0", "-fno-strict-aliasing", "-Wno-unused-function"], []
    if not (sanitize or coverage):  # a second line behind the checks of the kernels
        compile_args += ["-fstack-protector-strong", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2"]
    if sys.platform == "linux":  # read-only tables of addresses, all resolved at load
        link_args += ["-Wl,-z,relro,-z,now"]
if sanitize:
    compile_args += ["-g", "-O1", "-fno-omit-frame-pointer"]
    compile_args += [f"-fsanitize={sanitize}", "-fno-sanitize-recover=undefined"]
    link_args += [f"-fsanitize={sanitize}"]

if coverage:
    compile_args += ["-O1", "--coverage"]
    link_args += ["--coverage"]

sources = [Path("src/pylogseg/_codec.pyx"), *sorted(Path("src/pylogseg/_native").glob("_*.pyx"))]
headers = [str(path) for path in Path("src/pylogseg/_native").rglob("*.[hp]*") if path.suffix in (".h", ".pxd")]
extensions = [
    Extension(
        ".".join(path.with_suffix("").parts[1:]),
        [path.as_posix()],
        include_dirs=["src/pylogseg/_native/kernels/c"],
        depends=headers,
        extra_compile_args=compile_args,
        extra_link_args=link_args,
    )
    for path in sources
]

# Cython does not see that a module depends on a kernel of a subpackage, and would keep the C of an older one.
written = [path.with_suffix(".c") for path in sources]
changed = max(map(os.path.getmtime, headers), default=0.0)
stale = any(path.exists() and path.stat().st_mtime < changed for path in written)

directives = {
    "language_level": 3,
    "boundscheck": checks,
    "wraparound": False,
    "initializedcheck": False,
    "cdivision": True,
    "embedsignature": True,
    "freethreading_compatible": True,
}
#: C that Cython adds to each module, such as memory views: compiled once, and imported by all of them.
UTILITY = "pylogseg._native._cyutility"
is_linux = sys.platform == "linux"
cores = len(os.sched_getaffinity(0)) if is_linux else os.cpu_count() or 1

# A source distribution and the metadata need only the names of the files, not the work of Cython.
if not {"sdist", "egg_info", "dist_info"}.intersection(sys.argv):
    if is_linux:  # where a new process would run this file again, one after the other is translated
        multiprocessing.set_start_method("fork", force=True)
    extensions = cythonize(
        [*extensions, Extension(UTILITY, [f"src/{UTILITY.replace('.', '/')}.c"])],
        nthreads=cores if is_linux else 0,
        force=stale,
        include_path=["src"],
        compiler_directives=directives,
        emit_linenums=coverage,
        shared_utility_qualified_name=UTILITY,
    )
    for extension in extensions:
        extension.extra_compile_args, extension.extra_link_args = compile_args, link_args


def bill_of_materials(version: str) -> dict[str, Any]:
    """Return what is in a wheel beside our own files, in CycloneDX: the C that Cython adds, and Kafka's tables."""

    def part(kind: str, group: str, name: str, version: str, what: str) -> dict[str, Any]:
        path = f"{group}/{name}" if group else name.lower()
        return {
            "type": "library",
            "bom-ref": f"pkg:{kind}/{path}@{version}",
            **({"group": group} if group else {}),
            "name": name,
            "version": version,
            "description": what,
            "licenses": [{"license": {"id": "Apache-2.0"}}],
            "purl": f"pkg:{kind}/{path}@{version}",
        }

    facts: dict[str, list[str]] = {}
    for name in ("format/messages/schemas.json", "format/kafka.json"):
        table = json.loads(Path("src/pylogseg", name).read_text(encoding="utf-8"))
        facts.setdefault(table["kafka"], []).append(f"pylogseg/{name}")
    parts = [part("pypi", "", "Cython", cython_version, "C of the extension modules")]
    for kafka, names in facts.items():
        parts.append(part("maven", "org.apache.kafka", "kafka-clients", kafka, f"facts in {' and '.join(names)}"))
    this = part("pypi", "", "pylogseg", version, "the wheel")
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": this},
        "components": parts,
        "dependencies": [{"ref": this["bom-ref"], "dependsOn": [each["bom-ref"] for each in parts]}],
    }


class SideBySide(build_ext):
    """A build that compiles as many modules at a time as there are cores."""

    def finalize_options(self) -> None:
        """Fill in the number of modules, unless the caller chose one."""
        super().finalize_options()
        if self.parallel is None and sys.platform != "win32":
            self.parallel = cores


class Wheel(bdist_wheel):
    """A wheel that holds its bill of materials (PEP 770)."""

    def write_wheelfile(self, wheelfile_base: str, *further: Any, **named: Any) -> None:
        """Write WHEEL, and the bill beside it."""
        super().write_wheelfile(wheelfile_base, *further, **named)
        folder = Path(wheelfile_base, "sboms")
        folder.mkdir(exist_ok=True)
        bill = bill_of_materials(self.distribution.get_version())
        (folder / "pylogseg.cdx.json").write_text(json.dumps(bill, indent=1) + "\n", encoding="utf-8")


setup(ext_modules=extensions, cmdclass={"bdist_wheel": Wheel, "build_ext": SideBySide})
