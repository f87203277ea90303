#!/usr/bin/env bash
# From a fresh clone to a trained model. See --help.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

usage() {
  cat <<TEXT
Usage: scripts/quickstart.sh [--text FILE...] [--run-dir DIR] [--no-install] [--set KEY=VALUE]...

Installs missing packages, builds slimpipe (Release), makes a token file from real text, and trains the small
Llama of configs/quickstart.yaml on four pipeline devices inside one process, with sliced sequences. Fails where
the validation loss has not come down to three quarters of what it was before the first step.

  --text FILE...   train on these text or JSON-lines files (default: this repository's sources and documents)
  --run-dir DIR    where the run goes (default: runs/quickstart-<date>-<time> in the repository)
  --set KEY=VALUE  change one setting of the configuration, e.g. --set training.steps=50
  --no-install     do not look for missing packages
  --help           this text
TEXT
}

usage_error() {
  usage >&2
  echo "quickstart: $1" >&2
  exit 2
}

# Paths are relative to the caller's folder; the script itself works in the repository's. Without a slash or a dot at
# the end, so that what is put beside a folder does not land in it.
absolute() { realpath --canonicalize-missing --no-symlinks -- "$1"; }

install=true
run_dir=$root/runs/quickstart-$(date +%Y%m%d-%H%M%S)
texts=()
settings=()
while (($#)); do
  case "$1" in
    --text)
      while [[ $# -ge 2 && $2 != --* ]]; do
        [[ -r $(absolute "$2") ]] || usage_error "cannot read the text file '$2'"
        texts+=("$(absolute "$2")")
        shift
      done
      ((${#texts[@]})) || usage_error "--text needs at least one file" ;;
    --run-dir) [[ $# -ge 2 && -n $2 ]] || usage_error "--run-dir needs a folder"
      run_dir=$(absolute "$2"); shift ;;
    --set) [[ $# -ge 2 && $2 == *=* ]] || usage_error "--set needs KEY=VALUE"
      settings+=(--set "$2"); shift ;;
    --no-install) install=false ;;
    -h | --help) usage; exit 0 ;;
    *) usage_error "unknown option '$1'" ;;
  esac
  shift
done

# Before anything is built, and before the tokens that it was trained on are written over.
[[ ! -s $run_dir/metrics.jsonl ]] || usage_error "$run_dir holds a run already; give another --run-dir"

heading() { printf '\n== %s\n' "$1"; }

# The repository's own text. Its order is shuffled, the same way each time: validation uses the end of the
# token file, which should be like the rest.
repository_texts() {
  local names=(-name '*.md' -o -name '*.h' -o -name '*.cpp' -o -name '*.cmake' -o -name '*.txt'
    -o -name '*.py' -o -name '*.sh' -o -name '*.yaml')
  find . \( -path ./build -o -path ./runs -o -path '*/.*' \) -prune -o -type f -size +0 \( "${names[@]}" \) -print |
    LC_ALL=C sort | shuf --random-source=<(yes)
}

cd "$root"
heading "Packages"
if $install; then
  scripts/setup
else
  echo "not looked at (--no-install)"
fi

heading "Build"
cmake --preset release
cmake --build build --parallel "$(nproc)" --target slimpipe

heading "Text to tokens"
mkdir -p runs
tokens=$root/runs/quickstart.tokens # what configs/quickstart.yaml reads
if ((${#texts[@]})); then
  # Beside the run: each run can be resumed with the tokens it was trained on.
  tokens=$run_dir.tokens
  settings=(--set "data.train=$tokens" "${settings[@]}")
  mkdir -p "$(dirname "$tokens")"
  build/slimpipe data prepare --output "$tokens" "${texts[@]}"
elif [[ -f $tokens ]] && build/slimpipe data inspect "$tokens" >/dev/null 2>&1; then
  echo "$tokens is there already: runs that were trained on it can be resumed (remove it to take the text anew)"
else
  mapfile -t texts < <(repository_texts)
  build/slimpipe data prepare --output "$tokens" "${texts[@]}"
fi

heading "Training"
build/slimpipe train configs/quickstart.yaml --run-dir "$run_dir" --set "data.train=$tokens" "${settings[@]}"

heading "Result"
python3 - "$run_dir/summary.json" <<'PYTHON'
import json, sys
summary = json.load(open(sys.argv[1]))
first, last = summary["initial_validation_loss"], summary["final_validation_loss"]
if first is None or last is None:  # not finite, or no validation
    sys.exit(f"quickstart: {sys.argv[1]} has no validation loss from before and after the training, so nothing shows "
             "that the model has learnt; data.validation_fraction must leave some text to validate on")
expected = 0.75 * first
print(f"validation loss {first:.3f} -> {last:.3f} in {summary['steps']} steps, {summary['seconds']:.0f} s")
if not last <= expected:
    sys.exit(f"quickstart: the model has not learnt: its validation loss is {last:.3f}, expected at most {expected:.3f} "
             "(0.75 of the first). With settings of your own: more training.steps, another training.lr, more text")
PYTHON

own_settings=
((${#settings[@]} == 0)) || own_settings=$(printf ' %q' "${settings[@]}")
# Open MPI counts cores as slots, and refuses root unless told.
mpirun="mpirun -np 4"
(($(nproc) >= 4)) || mpirun+=" --oversubscribe"
((EUID != 0)) || mpirun+=" --allow-run-as-root"
cat <<TEXT
run folder      $run_dir
                summary.json, metrics.jsonl, config.yaml (every value, resolved), logs/ and checkpoints/
token file      $tokens

Next, from $root:
  the same, over four processes
    $mpirun build/slimpipe train configs/quickstart.yaml$own_settings
  another layout, with a time line of one step (trace-0.json in the run folder, for ui.perfetto.dev)
    build/slimpipe train configs/quickstart.yaml --set parallel.pipeline=2 --set schedule.slices=16 --set log.trace=true$own_settings
  your own text
    scripts/quickstart.sh --text FILE...
  every setting, and a schedule drawn without a run
    build/slimpipe config reference
    build/slimpipe schedule --kind slimpipe --pipeline 4 --microbatches 2 --slices 8
TEXT
