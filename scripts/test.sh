#!/usr/bin/env bash
# Installs the packages, builds everything (Release) and runs the tests. See --help.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

usage() {
  cat <<TEXT
Usage: scripts/test.sh [--full] [--no-install] [--filter REGEX]

Installs missing packages, builds the preset 'release' into build/ and runs the tests with ctest.

  --full          also the tests labelled 'slow', which are too long for every change
  --no-install    do not look for missing packages
  --filter REGEX  only the tests whose name matches, e.g. --filter '^unit.config'
  --help          this text
TEXT
}

install=true
selection=(--label-exclude '^slow$')
filter=()
while (($#)); do
  case "$1" in
    --full) selection=() ;;
    --no-install) install=false ;;
    --filter) [[ $# -ge 2 ]] || { echo "test.sh: --filter needs a regular expression" >&2; exit 2; }
      filter=(--tests-regex "$2"); shift ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; echo "test.sh: unknown option '$1'" >&2; exit 2 ;;
  esac
  shift
done

cd "$root"
if $install; then
  scripts/setup
fi
jobs=$(nproc)
cmake --preset release
cmake --build build --parallel "$jobs"

# Open MPI refuses to start as root (containers, CI) unless told twice.
if ((EUID == 0)); then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
# Tests that start several processes (label 'distributed') tell ctest how many, and it runs so many fewer others
# beside them.
exec ctest --test-dir build --output-on-failure --no-tests=error --parallel "$jobs" \
  "${selection[@]}" "${filter[@]}" </dev/null
