#!/usr/bin/env bash
# Lines that the tests reach: of the Python in src, and of the compiled modules and their kernels by gcov.
#
#   tests/coverage.sh [PYTEST ARGUMENTS]     PYTHON picks the interpreter; it needs the extras test and coverage
#
# Builds a copy of the tree with counters under build/coverage. Prints a line for each file with less than all.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=$(realpath --no-symlinks "${PYTHON:-python3}")
work=$PWD/build/coverage
command -v gcov >/dev/null || { echo "coverage.sh: no gcov, which comes with gcc" >&2; exit 77; }

mkdir -p "$work"
rm -rf "$work/tree"
mkdir "$work/tree"
git ls-files -z | xargs -0 cp --parents -t "$work/tree"
cd "$work/tree"
PYLOGSEG_COVERAGE=1 "$python" setup.py -q --version >/dev/null  # makes the C files, which name their sources from src on
sed -i -E 's|^(#line [0-9]+ ")(pylogseg/)|\1src/\2|; s|^(#line [0-9]+ ")([a-z_0-9]+\.pxd)|\1src/pylogseg/_native/kernels/\2|' src/pylogseg/_codec.c src/pylogseg/_native/_*.c
PYLOGSEG_COVERAGE=1 "$python" setup.py -q build_ext --inplace
"$python" setup.py -q egg_info
export PYTHONPATH=$work/tree/src PYTHONDONTWRITEBYTECODE=1
status=0
"$python" -m pytest -p no:cacheprovider --cov=pylogseg --cov-report=term:skip-covered "$@" || status=$?
"$python" -m gcovr --root . --gcov-ignore-errors=source_not_found --include-internal-functions --filter src/ --exclude '.*\.c$' build
exit $status
