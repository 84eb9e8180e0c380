#!/usr/bin/env bash
# Every comparison with a real Kafka, of one version, one after the other: a line for each says how it ended.
#
#   [KAFKA_VERSION=4.4.0] tests/kafka/all.sh [NAME...]     those of these names; all if none is given
#   tests/kafka/all.sh --list                              names, and their commands
#
# A line has the name, `ok`, `FAILED` or `not run`, the seconds, and the last line that the command printed. Everything
# else is in LOGS (default: a folder that is named at the end). Exit code 0 all ok, 1 one failed, 2 one was not run.
# Hours on two busy cores, `rates` (what the servers cost; nothing is compared) last. PYTHON (default: python3) has the
# package with its extras `test` and `tier`; SPARK_PYTHON, for `spark-source` and `spark-sink`, has it with pyspark 4.2 and kafka-python.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$here/../.."
export KAFKA_VERSION=${KAFKA_VERSION:-4.3.0}
python=${PYTHON:-python3}

list() {  # names and commands; $golden is where the golden data are unpacked
  cat <<LIST
schemas          $python tests/kafka/schemas.py --compare
server-table     $python tests/kafka/server_table.py --compare
named            $python tests/kafka/fuzz.py --named
fuzz             $python tests/kafka/fuzz.py --lists 100
tests            env CI=1 $python -m pytest -q -m kafka tests
lost-cluster     $python tests/kafka/broker/lost_cluster.py
producers        $python tests/kafka/broker/restored_producers.py
producers-tier   $python tests/kafka/broker/restored_producers.py --tier
takes-over       env PYTHONPATH=${PYTHONPATH:+$PYTHONPATH:}tests $python tests/kafka/broker/takes_over.py
acls             env PYTHONPATH=${PYTHONPATH:+$PYTHONPATH:}tests $python tests/kafka/broker/acls.py
fetch-sessions   $python tests/kafka/broker/fetch_sessions.py
archives         $python tests/kafka/broker/archives.py
restored-transactions  $python tests/kafka/broker/restored_transactions.py
tiers            $python tests/kafka/broker/tiers.py $golden
tier-histories   $python tests/kafka/broker/tier_histories.py
quorums          env PYTHONPATH=${PYTHONPATH:+$PYTHONPATH:}tests $python tests/kafka/broker/quorums.py a b c d f g h r --random 2 --seed 511
merges           $python tests/kafka/broker/merges.py
live-reads       $python tests/kafka/broker/live_reads.py
live-cluster     $python tests/kafka/broker/live_cluster.py --rounds 3
live-histories   $python tests/kafka/broker/live_histories.py --rounds 3
produced-restores  $python tests/kafka/broker/produced_restores.py
whole-clusters   env PYTHONPATH=${PYTHONPATH:+$PYTHONPATH:}tests $python tests/kafka/broker/whole_clusters.py 2 3 5
old-followers    env PYTHONPATH=${PYTHONPATH:+$PYTHONPATH:}tests $python tests/kafka/broker/old_followers.py
opens            $python tests/kafka/broker/opens.py
manages          $python tests/kafka/broker/manages.py
handover         env PYTHONPATH=${PYTHONPATH:+$PYTHONPATH:}tests $python tests/soak handover
live-committed   $python tests/soak live-committed --broker
live-state       $python tests/soak live-state --seconds 20
serves           $python tests/kafka/broker/serves.py $golden/broker-4.3
remedies         env PYTHONPATH=${PYTHONPATH:+$PYTHONPATH:}tests $python tests/kafka/broker/remedies.py
damaged          $python tests/kafka/broker/damaged.py
offline          $python tests/kafka/broker/offline.py
recipes          $python tests/kafka/broker/recipes.py
clients          $python tests/kafka/clients/matrix.py $golden/broker-4.3
table-sinks      $python tests/kafka/broker/table_sinks.py connect
table-nested     $python tests/kafka/broker/table_sinks.py connect nested
spark-source     ${SPARK_PYTHON:-} tests/kafka/broker/spark_source.py $golden/broker-4.3
spark-sink       ${SPARK_PYTHON:-} tests/kafka/broker/table_sinks.py spark
rates            $python tests/soak serve-rates --kafka fetches clients
broker-rates     $python tests/soak broker-rates --kafka
LIST
}

case ${1:-} in
  -h | --help) sed -n '2,/^set -euo/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit ;;
  --list) golden=GOLDEN list; exit ;;
esac
for name in "$@"; do
  golden='' list | cut -d' ' -f1 | grep -qxF -- "$name" || { echo "all.sh: what is $name? (--list names all)" >&2; exit 2; }
done
logs=${LOGS:-$(mktemp -d "${TMPDIR:-/tmp}/pylogseg-comparisons.XXXXXX")}
mkdir -p "$logs"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
golden=$scratch/golden
"$python" - "$golden" <<'PY'
import sys
from pathlib import Path
sys.path.insert(0, "tests")
from helpers.golden import GOLDEN, unpack
unpack(sorted(GOLDEN.rglob("*.tar.xz")), Path(sys.argv[1]))
PY
failed=0 left=0
while read -r name command; do
  [ $# = 0 ] || [[ " $* " == *" $name "* ]] || continue
  log=$logs/$name-$KAFKA_VERSION.txt began=$SECONDS
  if [[ $name == spark-* ]] && [ -z "${SPARK_PYTHON:-}" ]; then
    word='not run' said='SPARK_PYTHON names no Python with pyspark 4.2' left=1
  elif $command >"$log" 2>&1 </dev/null; then
    word=ok said=$(grep -v '^ *$' "$log" | tail -1 | cut -c1-120) || true
  else
    word=FAILED said=$(grep -v '^ *$' "$log" | tail -1 | cut -c1-120) failed=1 || true
  fi
  printf '%-16s %-8s %5d s  %s\n' "$name" "$word" $((SECONDS - began)) "$said"
done < <(list)
echo "Kafka $KAFKA_VERSION; what they printed is in $logs"
[ $failed = 0 ] || exit 1
[ $left = 0 ] || exit 2
