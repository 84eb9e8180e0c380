#!/usr/bin/env bash
# The README's two commands, and what CI runs, in a root file system that has never seen this project: Debian or Ubuntu
# with Python and git, to which is added what the first command says that it needs.
#
#   tests/fresh_root.sh [SUITE [STEP...]]     SUITE: bookworm (default), trixie, noble, ...
#
# STEP, all in this order if none is given:
#   demo   make demo
#   sdist  tests/from_sdist.sh: an sdist, a wheel from it, and the quick set with it
#   test   make test, without Java and a browser
#   ci     .ci/run
# and by name:
#   plain  make plain: the tests that need no Java and no browser
#
# Before these, `make demo` is called with nothing installed: it names what is missing in one line. That is installed, one
# package after the other, and each is named until it is there.
#
# As root; needs debootstrap, 6 GB in TMPDIR and the network. FRESH_ROOT_MIRROR names another mirror, FRESH_ROOT_CA a file
# of certificates that the new root is to trust, FRESH_ROOT_PYTHON another Python of the suite than python3. Prints the time
# of each step; ends with 1 if one fails.
set -euo pipefail
suite=${1:-bookworm}; shift || true
python=${FRESH_ROOT_PYTHON:-python3}
declare -A commands=(
  [demo]="make demo"
  [sdist]="tests/from_sdist.sh $python duckdb 'kafka-python>=3.0.7'"
  [test]="make test"
  [plain]="make plain"
  [ci]=".ci/run"
)
steps=("$@"); [ ${#steps[@]} -gt 0 ] || steps=(demo sdist test ci)
for step in "${steps[@]}"; do
  [ -n "${commands[$step]:-}" ] || { echo "fresh_root.sh: what is $step? (demo, sdist, test, ci, plain)" >&2; exit 2; }
done
[ "$(id -u)" = 0 ] || { echo "fresh_root.sh: only root can make a root file system" >&2; exit 2; }
command -v debootstrap >/dev/null || { echo "fresh_root.sh: no debootstrap: apt-get install debootstrap" >&2; exit 2; }
checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
root=$(mktemp -d "${TMPDIR:-/tmp}/fresh-root-XXXXXX")
chmod 755 "$root"  # other users than root are there, too
trap 'rm -rf --one-file-system "$root"' EXIT

begun=$SECONDS
debootstrap --variant=minbase --include="ca-certificates,git,$python" "$suite" "$root" ${FRESH_ROOT_MIRROR:+"$FRESH_ROOT_MIRROR"} \
  > "$root.log" 2>&1 || { tail -5 "$root.log" >&2; exit 1; }
cp /etc/resolv.conf "$root/etc/resolv.conf"
printf '%s\n' "127.0.0.1 localhost" "127.0.1.1 $(hostname)" >> "$root/etc/hosts"  # as the installer does; Spark asks for both
settings=(HOME=/root LANG=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive)
[ -z "${FRESH_ROOT_PYTHON:-}" ] || settings+=(PYTHON="$python")
if [ -n "${FRESH_ROOT_CA:-}" ]; then
  # One certificate a file: of a file of several, Java's store would take none.
  awk -v to="$root/usr/local/share/ca-certificates/given-" '/BEGIN CERT/ {on = 1; n++} on {print > (to n ".crt")}
    /END CERT/ {on = 0; close(to n ".crt")}' "$FRESH_ROOT_CA"
  # Without our TMPDIR, which is not there; a certificate that Debian has, too, is warned of.
  chroot "$root" env -i "${settings[@]}" update-ca-certificates > "$root.log" 2>&1 || { tail -5 "$root.log" >&2; exit 1; }
  settings+=(PIP_CERT=/etc/ssl/certs/ca-certificates.crt)
fi
rm -f "$root.log"
git clone -q "$checkout" "$root/opt/pylogseg"
echo "== $suite: made in $((SECONDS - begun)) s"

export root
inside() {  # a command in the checkout in the root; in name spaces of its own: what it mounts and starts ends with it
  unshare --mount --pid --fork bash -euc '
    mount --bind /dev "$root/dev"; mount -t proc proc "$root/proc"; mount -t sysfs sysfs "$root/sys"
    mount -t devpts devpts "$root/dev/pts"
    mount -t tmpfs tmpfs "$root/dev/shm" 2>/dev/null || true
    exec chroot "$root" env -i "${@:2}" bash -c "cd /opt/pylogseg && $1"' _ "$1" "${settings[@]}"
}

fail() { echo "fresh_root.sh: $*" >&2; exit 1; }

install() { inside "apt-get install -y -qq --no-install-recommends $1 > /dev/null 2>&1" || fail "cannot install $1"; }

# What is missing is said; `make` by the shell, and all that CI cannot install when it is not root.
inside "apt-get update -qq > /dev/null"
version=$(inside "$python -c 'import sys; print(\"python%d.%d\" % sys.version_info[:2])'")
said=$(chroot --userspec=65534 "$root" env -i "${settings[@]}" bash /opt/pylogseg/.ci/run 2>&1) && fail ".ci/run ran without make"
echo "without all: $said"
[[ $said == *" make"* ]] || fail "nobody says that make is missing"
install make
for package in gcc libc6-dev "$version-dev" "$version-venv"; do
  said=$(inside "make demo" 2>&1) && fail "make demo ran without $package"
  said=$(grep 'apt-get install' <<< "$said") || fail "no line says what is missing"
  echo "without $package: $said"
  [[ " $said " == *" $package "* ]] || fail "nobody says that $package is missing"
  install "$package"
done

for step in "${steps[@]}"; do
  echo "== $suite: ${commands[$step]}"
  begun=$SECONDS
  inside "${commands[$step]}"
  echo "== $suite: $step took $((SECONDS - begun)) s"
done
