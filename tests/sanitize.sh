#!/usr/bin/env bash
# Builds the extensions with AddressSanitizer and UndefinedBehaviorSanitizer, apart from the ordinary build, and runs the
# tests of the kernels and hostile bytes under them.
#
#   tests/sanitize.sh [INPUTS]      hostile inputs, 100,000 by default; PYTHON picks the interpreter
#   tests/sanitize.sh soak ...      hostile bytes alone; the arguments are those of python tests/soak hostile
#   tests/sanitize.sh guided ...    hostile bytes that coverage leads to; the arguments are those of python tests/soak guided
#
# Needs gcc with its sanitizer libraries; `guided` needs clang, and atheris (the extra `fuzz`), which brings libFuzzer and
# the sanitizer. A build is kept and made again when a source has changed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${PYTHON:-python3}
mode=${1:-tests} inputs=${1:-100000}
work=build/sanitize sanitizers=address,undefined

library() {
  local path
  path=$(gcc -print-file-name="$1")
  [ -e "$path" ] || { echo "sanitize.sh: gcc has no $1" >&2; exit 77; }
  echo "$path"
}
if [ "$mode" = guided ]; then
  command -v clang >/dev/null || { echo "sanitize.sh: no clang" >&2; exit 77; }
  preload=$("$python" -c 'import atheris; print(atheris.path())' 2>/dev/null || true)/asan_with_fuzzer.so
  [ -e "$preload" ] || { echo "sanitize.sh: no atheris (pip install atheris)" >&2; exit 77; }
  work=build/guided sanitizers=address,fuzzer-no-link
  export CC=clang
else
  command -v gcc >/dev/null || { echo "sanitize.sh: no gcc" >&2; exit 77; }
  # libstdc++ too: a C++ library that is loaded later must not find the sanitizer without its exceptions.
  preload="$(library libasan.so):$(library libstdc++.so.6)"
fi

if [ ! -e "$work/stamp" ] || [ -n "$(find src setup.py pyproject.toml -newer "$work/stamp" \
    \( -name '*.py' -o -name '*.p[yx]*' -o -name '*.h' -o -name '*.toml' \) -print -quit)" ]; then
  rm -rf "$work"
  mkdir -p "$work/tree"
  # A tree of its own: objects of the two builds must not meet.
  git ls-files -z src setup.py pyproject.toml README.md LICENSE NOTICE MANIFEST.in | xargs -0 cp --parents -t "$work/tree"
  isolation=()
  if "$python" -c 'import Cython, setuptools' 2>/dev/null; then isolation=(--no-build-isolation); fi
  PYLOGSEG_SANITIZE=$sanitizers "$python" -m pip install -q --disable-pip-version-check --no-deps "${isolation[@]}" \
    --target "$work/site" "./$work/tree"
  touch "$work/stamp"
fi

# Python's own small allocations come from malloc, so that the sanitizer sees their bounds; it never gives all of it back.
export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 PYTHONMALLOC=malloc
export LD_PRELOAD=$preload PYTHONPATH=$work/site PYLOGSEG_HOSTILE_INPUTS=$inputs HYPOTHESIS_PROFILE=sanitize
export OPENBLAS_NUM_THREADS=1
if [ "$mode" = guided ]; then
  export PYTHONMALLOC=default
  exec "$python" tests/soak guided "${@:2}"
fi
if [ "$mode" = soak ]; then
  # Twice as fast: what kernels are given here are arrays, whose memory never is Python's own.
  export PYTHONMALLOC=default
  exec "$python" tests/soak hostile "${@:2}"
fi
tests=()
for name in format/{varint,crc,batches,bodies,records,compression,text,text_safety,encode,encode_kafka,patch} \
    format/{search,index,txnindex,snapshot} reading/{windows,through,guarded_map,arrow_functions} \
    values/{avro,protobuf,json_values,json_columns,json_text} log/{hostile,append,append_golden,append_many,log_lookups,offset_map,plain_batches}; do
  tests+=("tests/${name%/*}/test_${name#*/}.py")
done
exec "$python" -m pytest -p no:cacheprovider -x "${tests[@]}"
