#!/usr/bin/env bash
# What a packager does: an sdist of what is committed, a wheel from it, that wheel in an empty environment, and the quick
# set with it, where no source tree is near.
#
#   tests/from_sdist.sh [PYTHON [REQUIREMENT...]]     REQUIREMENT: more to install, such as duckdb kafka-python
#
# A warning of the build is a failure. SDIST names an sdist to take in the place of a new one, DIST a folder in which the
# sdist and the wheel are left.
set -euo pipefail
python=$(command -v "${1:-python3}"); shift || true
work=$(mktemp -d "${TMPDIR:-/tmp}/from-sdist-XXXXXX")
trap 'rm -rf "$work"' EXIT
export PIP_DISABLE_PIP_VERSION_CHECK=1
unset PYTHONPATH PYTHONDONTWRITEBYTECODE

build() {  # OPTION FOLDER, without a word if all is well
  "$work/build/bin/python" -m build "$1" --outdir "$work/dist" "$2" > "$work/log" 2>&1 || { tail -30 "$work/log" >&2; exit 1; }
  if grep -iE '\bwarning\b' "$work/log" >&2; then echo "from_sdist.sh: the build warns" >&2; exit 1; fi
}

mkdir "$work/tree" "$work/dist" "$work/sdist"
"$python" -m venv "$work/build"
"$work/build/bin/python" -m pip install -q build
if [ -n "${SDIST:-}" ]; then
  cp "$SDIST" "$work/dist"
else
  git -C "$(dirname "${BASH_SOURCE[0]}")/.." archive HEAD | tar -x -C "$work/tree"
  build --sdist "$work/tree"
fi
tar -xf "$work"/dist/*.tar.gz -C "$work/sdist" --strip-components 1
build --wheel "$work/sdist"
[ -z "${DIST:-}" ] || { mkdir -p "$DIST"; cp "$work"/dist/* "$DIST"; }

"$python" -m venv "$work/use"
"$work/use/bin/python" -m pip install -q "$work"/dist/*.whl "$@"
ls -l "$work/dist" | awk 'NR > 1 {print $5, $9}'
cd "$work/use"
bin/python "$work/sdist/tests/quick.py"
