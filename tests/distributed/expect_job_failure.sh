#!/bin/sh
# expect_job_failure.sh [--told TEXT] COMMAND...: COMMAND must end within 10 s with a non-zero status, TEXT must
# be in what it prints, and the processes whose numbers it printed as "pid N" must be gone.
told=
if [ "$1" = --told ]; then
  told=$2
  shift 2
fi
output=$(timeout --kill-after=5 10 "$@" 2>&1)
status=$?
echo "$output"
echo "exit status $status"
if [ "$status" -eq 0 ]; then
  echo "expected a failure" >&2
  exit 1
fi
if [ "$status" -eq 124 ] || [ "$status" -eq 137 ]; then
  echo "expected the job to end by itself within 10 s" >&2
  exit 1
fi
case $output in
  *"$told"*) ;;
  *)
    echo "expected to be told \"$told\"" >&2
    exit 1
    ;;
esac
pids=$(echo "$output" | sed -n 's/.*pid \([0-9][0-9]*\).*/\1/p')
if [ -z "$pids" ]; then
  echo "no process told its pid: the job did not get as far as its failure" >&2
  exit 1
fi
for pid in $pids; do
  # A zombie is gone as far as the job is concerned: it only waits to be collected.
  if [ -r "/proc/$pid/stat" ] && ! grep -q "^$pid ([^)]*) [ZX]" "/proc/$pid/stat"; then
    echo "process $pid was left behind" >&2
    exit 1
  fi
done
