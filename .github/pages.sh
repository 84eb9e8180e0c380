#!/usr/bin/env bash
# What the site shows, in the branch gh-pages of a remote:
#
#   .github/pages.sh docs NAME          this checkout's documents: NAME is `main`, or a tag vX.Y.Z, which becomes X.Y and latest
#   .github/pages.sh benchmarks [...]   asv's results of this commit, which are added to those kept in the branch
#                                       `benchmarks`, and the pages of them all; further words are those of `asv run`
#
# BIN is where mike and asv are (.venv/bin), REMOTE the remote (origin). Pushes both branches, and changes nothing else.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bin=$(cd "${BIN:-.venv/bin}" && pwd) remote=${REMOTE:-origin}
export NO_MKDOCS_2_WARNING=1
export GIT_AUTHOR_NAME=${GIT_AUTHOR_NAME:-pages} GIT_AUTHOR_EMAIL=${GIT_AUTHOR_EMAIL:-pages@localhost}
export GIT_COMMITTER_NAME=$GIT_AUTHOR_NAME GIT_COMMITTER_EMAIL=$GIT_AUTHOR_EMAIL

kept() {  # BRANCH FOLDER: a work tree of a branch of the remote, empty if there is none yet
  if git fetch -q "$remote" "$1" 2>/dev/null; then
    git worktree add -q --detach "$2" FETCH_HEAD
  else
    git worktree add -q --detach "$2"
    git -C "$2" checkout -q --orphan "new-$1"
    git -C "$2" rm -rqf .
  fi
}

push() {  # BRANCH FOLDER MESSAGE
  git -C "$2" add -A -f .
  git -C "$2" diff --cached --quiet HEAD -- 2>/dev/null || git -C "$2" commit -q -m "$3"
  git -C "$2" push -q "$remote" "HEAD:refs/heads/$1"
}

case ${1:-} in
  docs)
    name=${2:?a branch or a tag}
    # mike makes a commit of its own in the local branch, from what the remote has.
    git fetch -q "$remote" +gh-pages:gh-pages 2>/dev/null || true
    if [[ $name =~ ^v([0-9]+\.[0-9]+)\.[0-9]+$ ]]; then
      PATH=$bin:$PATH mike deploy --remote "$remote" --push --update-aliases "${BASH_REMATCH[1]}" latest
      PATH=$bin:$PATH mike set-default --remote "$remote" --push latest
    else
      PATH=$bin:$PATH mike deploy --remote "$remote" --push "$name"
    fi
    ;;
  benchmarks)
    work=$(mktemp -d)
    trap 'git worktree remove --force "$work/results" 2>/dev/null; git worktree remove --force "$work/pages" 2>/dev/null; rm -rf "$work"' EXIT
    commit=$(git rev-parse HEAD)
    results=asv_benchmarks/.asv/results
    asv=("$bin/python" -m asv)
    kept benchmarks "$work/results"
    mkdir -p "$results"
    cp -r "$work/results/." "$results"
    rm -f "$results/.git"
    "${asv[@]}" machine --config asv_benchmarks/asv.conf.json --yes --machine "${MACHINE:-hosted}"
    "${asv[@]}" run --config asv_benchmarks/asv.conf.json --machine "${MACHINE:-hosted}" "${@:2}" "$commit^!"
    cp -r "$results/." "$work/results"
    push benchmarks "$work/results" "results of $commit"
    "${asv[@]}" publish --config asv_benchmarks/asv.conf.json
    kept gh-pages "$work/pages"
    rm -rf "$work/pages/benchmarks"
    cp -r asv_benchmarks/.asv/html "$work/pages/benchmarks"
    push gh-pages "$work/pages" "benchmarks up to $commit"
    ;;
  *) sed -n '2,/^set -euo/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit 2 ;;
esac
