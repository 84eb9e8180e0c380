#!/usr/bin/env bash
# The section of one version in CHANGELOG.md: release-notes.sh 0.1.0
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
version=${1:?a version, such as 0.1.0}
notes=$(awk -v head="## [$version]" 'index($0, head) == 1 {on = 1; next} /^## \[/ {on = 0} on' CHANGELOG.md)
[ -n "${notes//[[:space:]]/}" ] || { echo "CHANGELOG.md has no section [$version]" >&2; exit 1; }
printf '%s\n' "$notes"
