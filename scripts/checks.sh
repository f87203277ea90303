#!/usr/bin/env bash
# Everything that is checked about a change besides the tests of scripts/test.sh. See --help.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

all_checks=(format includes shell tidy asan tsan)
# clang-format's output changes between major versions; the tree is formatted by this one.
format_version=14
# clang-tidy looks at the files changed by so many commits, and at so many files at most (about 4 s each): how
# many commits a change has cannot be told in a fresh clone. --all looks at every file.
tidy_commits=30
tidy_limit=40
# Areas whose code meets in more than one thread: what the thread sanitizer is there for. --full looks at all.
threaded_areas="core|io|comm|device|runtime|train"

usage() {
  cat <<TEXT
Usage: scripts/checks.sh [--all] [--full] [--base REV] [--only CHECK,...] [--no-install]

  format    clang-format $format_version leaves every C++ file as it is
  includes  areas include only what CMakeLists.txt lets them; names and lengths of files
  shell     shellcheck, where installed
  tidy      clang-tidy on the $tidy_limit C++ files changed last, uncommitted changes first
  asan      the tests in C++ in one process under the address and undefined-behaviour sanitizers
  tsan      those of the areas with threads under the thread sanitizer

  --all         clang-tidy on every file
  --full        the thread sanitizer on all areas
  --base REV    clang-tidy on the files changed since this revision, $tidy_limit at most
  --only LIST   only these checks, e.g. --only format,includes
  --no-install  do not look for missing packages
  --help        this text

All checks run, also after one failed; the failed ones are listed at the end.
TEXT
}

usage_error() { usage >&2; echo "checks: $1" >&2; exit 2; }

install=true
tidy_all=false
base=
selected=("${all_checks[@]}")
while (($#)); do
  case "$1" in
    --all) tidy_all=true ;;
    --full) threaded_areas="[a-z]+" ;;
    --base) [[ $# -ge 2 ]] || usage_error "--base needs a revision"; base=$2; shift ;;
    --only) [[ $# -ge 2 ]] || usage_error "--only needs a list"; IFS=, read -r -a selected <<<"$2"; shift ;;
    --no-install) install=false ;;
    -h | --help) usage; exit 0 ;;
    *) usage_error "unknown option '$1'" ;;
  esac
  shift
done
for check in "${selected[@]}"; do
  [[ " ${all_checks[*]} " == *" $check "* ]] || usage_error "no check is called '$check'; there are: ${all_checks[*]}"
done

cd "$root"
exec </dev/null
if $install; then
  scripts/setup --checks
fi
jobs=$(nproc)

# Tracked and new files that match the patterns, deleted ones left out.
tree_files() { git ls-files -co --exclude-standard --deduplicate -- "$@" | existing; }
existing() { while read -r file; do [[ ! -f $file ]] || echo "$file"; done; }

check_format() {
  local version
  version=$(clang-format --version | sed -E 's/.*version ([0-9]+).*/\1/')
  if [[ $version != "$format_version" ]]; then
    echo "left out: this is clang-format $version, the tree is formatted by $format_version"
    return 0
  fi
  tree_files '*.h' '*.cpp' '*.cu' '*.cuh' | xargs -r clang-format --dry-run --Werror
}

check_includes() { python3 scripts/check_includes.py; }

check_shell() {
  command -v shellcheck >/dev/null || { echo "left out: shellcheck is not installed"; return 0; }
  tree_files .ci/run scripts/setup '*.sh' | xargs shellcheck
}

# The .cpp files to look at, the last changed first.
changed_sources() {
  if $tidy_all; then
    tree_files 'src/*.cpp' 'tests/*.cpp'
    return
  fi
  {
    git ls-files -o --exclude-standard
    git diff --name-only "${base:-HEAD}"
    [[ -n $base ]] || git log -n "$tidy_commits" --name-only --pretty=format:
  } | awk '!seen[$0]++' | existing | compiled_with | awk '!seen[$0]++'
}

# Of each file the .cpp to look at: a header stands for the .cpp of its name, or else for one that includes it,
# directly or by way of another header.
compiled_with() {
  local file source
  while read -r file; do
    case $file in
      src/*.cpp | tests/*.cpp) echo "$file" ;;
      include/*.h | src/*.h | tests/*.h)
        source=${file/#include\/slimpipe/src}
        source=${source%.h}.cpp
        [[ -f $source ]] || source=$(first_includer "$file" cpp)
        [[ -n $source ]] || source=$(first_includer "$file" h | compiled_with)
        [[ -z $source ]] || echo "$source"
        ;;
    esac
  done
}
first_includer() {
  { git grep --untracked -lF "#include \"${1#*/}\"" -- "src/*.$2" "tests/*.$2" "include/*.$2" || true; } | sed -n 1p
}

check_tidy() {
  local files
  mapfile -t files < <(changed_sources)
  if ! $tidy_all && ((${#files[@]} > tidy_limit)); then
    printf 'left out, over the limit of %d files: %s\n' "$tidy_limit" "${files[*]:tidy_limit}"
    files=("${files[@]:0:tidy_limit}")
  fi
  echo "${#files[@]} files"
  ((${#files[@]})) || return 0
  cmake --preset release >build/tidy-configure.log 2>&1 || { cat build/tidy-configure.log; return 1; }
  printf '%s\n' "${files[@]}" | xargs -P "$jobs" -n 1 clang-tidy -p build --quiet 2>&1 |
    sed -E '/^[0-9]+ warnings? generated\.$/d'
}

# sanitized PRESET KINDS AREAS: builds and runs tests/<kind>/<area> of these (both are regular expressions).
sanitized() {
  local preset=$1 kinds=$2 areas=$3 targets without_aslr=()
  # Randomised addresses can collide with the thread sanitizer's shadow memory.
  ! setarch "$(uname -m)" --addr-no-randomize true 2>/dev/null ||
    without_aslr=(setarch "$(uname -m)" --addr-no-randomize)
  cmake --preset "$preset" >/dev/null
  mapfile -t targets < <(ninja -C "build/$preset" -t targets all |
    sed -nE "s/^(test_($kinds)_($areas)): phony$/\1/p")
  ((${#targets[@]})) || { echo "no test matches ($kinds) ($areas)"; return 1; }
  "${without_aslr[@]}" cmake --build --preset "$preset" --parallel "$jobs" --target "${targets[@]}"
  "${without_aslr[@]}" ctest --preset "$preset" --parallel "$jobs" --tests-regex "^($kinds)\.($areas):" --progress
}
check_asan() { sanitized asan "unit|ops|runtime" "[a-z]+"; }
check_tsan() { sanitized tsan "unit|runtime" "$threaded_areas"; }

mkdir -p build
failed=()
for check in "${selected[@]}"; do
  printf '\n== %s\n' "$check"
  started=$SECONDS
  # A subshell of its own: 'set -e' is off inside functions that a condition calls.
  set +e
  (set -e; "check_$check") 2>&1 | tee "build/check-$check.log"
  status=${PIPESTATUS[0]}
  set -e
  echo "-- $check: $( ((status == 0)) && echo passed || echo FAILED), $((SECONDS - started)) s"
  ((status == 0)) || failed+=("$check")
done
if ((${#failed[@]})); then
  # Again at the end: what failed may be thousands of lines up.
  for check in "${failed[@]}"; do
    printf '\n== %s, from build/check-%s.log\n' "$check" "$check"
    grep -E 'error|warning:|FAILED|\*\*\*|Sanitizer' "build/check-$check.log" | tail -n 30 || tail -n 30 "build/check-$check.log"
  done
  printf '\nchecks: failed: %s\n' "${failed[*]}" >&2
  exit 1
fi
printf '\nchecks: all passed\n'
