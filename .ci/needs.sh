#!/bin/sh
# What a build with this Python needs and the machine lacks, by the names of Debian's packages; prints nothing if all is
# there: needs.sh PYTHON
set -eu
name=$("$1" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
lacking=''
"$1" -c 'import ensurepip, venv' 2>/dev/null || lacking="$lacking $name-venv"
"$1" -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' ||
  lacking="$lacking $name-dev"
compiler=${CC:-$("$1" -c 'import sysconfig; print(sysconfig.get_config_var("CC") or "cc")')}
if ! command -v "${compiler%% *}" >/dev/null; then
  lacking="$lacking gcc libc6-dev"
elif ! echo '#include <stdlib.h>' | "${compiler%% *}" -E -x c - >/dev/null 2>&1; then
  lacking="$lacking libc6-dev"
fi
command -v make >/dev/null || lacking="$lacking make"
echo "${lacking# }"
