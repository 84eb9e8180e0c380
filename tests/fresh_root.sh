#!/usr/bin/env bash
# The README's two commands, and what CI runs, in a root file system that has never seen this project: Debian or Ubuntu
# with Python, its venv module and headers, make and a C compiler, and nothing else.
#
#   tests/fresh_root.sh [SUITE [COMMAND...]]     SUITE: bookworm (default), trixie, noble, ...; COMMAND: make demo, .ci/run
#
# As root; needs debootstrap, 6 GB in TMPDIR and the network. FRESH_ROOT_MIRROR names another mirror, FRESH_ROOT_CA a file
# of certificates that the new root is to trust. Prints the time of each command; ends with 1 if one fails.
set -euo pipefail
suite=${1:-bookworm}; shift || true
commands=("$@"); [ ${#commands[@]} -gt 0 ] || commands=("make demo" ".ci/run")
[ "$(id -u)" = 0 ] || { echo "fresh_root.sh: only root can make a root file system" >&2; exit 2; }
command -v debootstrap >/dev/null || { echo "fresh_root.sh: no debootstrap: apt-get install debootstrap" >&2; exit 2; }
checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
root=$(mktemp -d "${TMPDIR:-/tmp}/fresh-root-XXXXXX")
# In a name space of its own: whatever is mounted there is gone with it, and so is the root.
trap 'rm -rf --one-file-system "$root"' EXIT

packages=ca-certificates,git,python3,python3-venv,python3-dev,make,gcc,libc6-dev
debootstrap --variant=minbase --include="$packages" "$suite" "$root" ${FRESH_ROOT_MIRROR:+"$FRESH_ROOT_MIRROR"} > "$root.log" 2>&1 ||
  { tail -5 "$root.log" >&2; exit 1; }
rm -f "$root.log"
cp /etc/resolv.conf "$root/etc/resolv.conf"
settings=(HOME=/root LANG=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin)
if [ -n "${FRESH_ROOT_CA:-}" ]; then
  cp "$FRESH_ROOT_CA" "$root/usr/local/share/ca-certificates/given.crt"
  chroot "$root" update-ca-certificates > /dev/null
  settings+=(PIP_CERT=/etc/ssl/certs/ca-certificates.crt)
fi
git clone -q "$checkout" "$root/opt/pylogseg"

export root
for each in "${commands[@]}"; do
  echo "== $suite: $each"
  begun=$SECONDS
  unshare --mount --pid --fork bash -euc '
    mount --bind /dev "$root/dev"; mount -t proc proc "$root/proc"; mount -t sysfs sysfs "$root/sys"
    mount -t tmpfs tmpfs "$root/dev/shm" 2>/dev/null || true
    exec chroot "$root" env -i "${@:2}" bash -c "cd /opt/pylogseg && $1"' _ "$each" "${settings[@]}"
  echo "== $suite: $each took $((SECONDS - begun)) s"
done
