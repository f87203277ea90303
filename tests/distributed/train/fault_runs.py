#!/usr/bin/env python3
"""Whole runs that something around them fails: the terminal, the data, another run, a training gone wild."""
import json
import os
import resource
import shutil
import subprocess
import sys

from whole_run import LIMIT_S, STEPS, check, main, wait_for


def same_result(bench, name):
    check(bench.numbers(name) == bench.numbers("whole"), f"{name}: numbers differ")
    check(bench.checkpoint(name) == bench.checkpoint("whole"), f"{name}: parameters differ")


def standard_descriptors_may_be_closed(bench):
    bench.run("whole")
    for name, closed in (("stdin", "<&-"), ("stdout", ">&-"), ("stderr", "2>&-"), ("all", "<&- >&- 2>&-")):
        shell = ["sh", "-c", f'exec "$@" {closed}', "sh"]
        run = subprocess.run([*shell, *bench.command(name)], timeout=LIMIT_S, check=False,
                             stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        check(run.returncode == 0, f"{name} closed: exit status {run.returncode}")
        same_result(bench, name)
    # What cannot be told is still in the exit status.
    run = subprocess.run([*shell, *bench.command("bad", training__stepz=3)], timeout=LIMIT_S, check=False)
    check(run.returncode == 2, f"bad input with all closed: exit status {run.returncode}")


def output_that_cannot_be_written_stops_no_run(bench):
    bench.run("whole")
    with open("/dev/full", "wb") as full:
        run = subprocess.run(bench.command("stdout"), timeout=LIMIT_S, check=False, stdout=full,
                             stderr=subprocess.PIPE, text=True)
        check(run.returncode == 1, f"stdout full: exit status {run.returncode}")
        check(run.stderr.count("standard output could not be written: No space left") == 1, run.stderr)
        same_result(bench, "stdout")
        run = subprocess.run(bench.command("stderr"), timeout=LIMIT_S, check=False, stderr=full,
                             stdout=subprocess.DEVNULL)
        check(run.returncode == 0, f"stderr full: exit status {run.returncode}")
        same_result(bench, "stderr")
    # A pipe whose reader has left.
    reading_end, writing_end = os.pipe()
    os.close(reading_end)
    run = subprocess.run(bench.command("pipe"), timeout=LIMIT_S, check=False, stdout=writing_end,
                         stderr=subprocess.PIPE, text=True)
    os.close(writing_end)
    check(run.returncode == 1, f"reader gone: exit status {run.returncode}")
    check(run.stderr.count("standard output could not be written: Broken pipe") == 1, run.stderr)
    same_result(bench, "pipe")


def limited(command, resource_kind, limit):
    """Runs a command under a limit of the system; returns its exit status and what it printed."""
    run = subprocess.run(command, timeout=LIMIT_S, check=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, text=True,
                         preexec_fn=lambda: resource.setrlimit(resource_kind, (limit, limit)))
    return run.returncode, run.stdout


def file_that_may_not_grow_is_told_like_a_full_disk(bench):
    bench.run("whole")
    advice = "File too large (raise the limit on file sizes, ulimit -f)"
    # The checkpoint is the largest of what a run writes, the metrics are next.
    metrics = (bench.folder / "whole" / "metrics.jsonl").stat().st_size
    for limit, what in ((2 * metrics, f"checkpoints/step-{STEPS:08}.partial/device-0000"),
                        (metrics // 2, "metrics.jsonl")):
        name = f"limit{limit}"
        status, output = limited(bench.command(name), resource.RLIMIT_FSIZE, limit)
        check(status == 1, f"{name}: exit status {status}:\n{output}")
        told = next((line for line in output.splitlines() if advice in line), "")
        check(str(bench.folder / name / what) in told, f"{name}: {what} is not told:\n{output}")
        check(what in json.loads((bench.folder / name / "failure.json").read_text())["cause"], "failure.json")
    # Not even a line of the log: told once, in words of our own.
    status, output = limited(bench.command("log"), resource.RLIMIT_FSIZE, 64)
    check(status == 1 and output.count("cannot write the log") == 1 and "LOG ERROR" not in output, output)
    status, output = limited([bench.slimpipe, "data", "prepare", "-o", bench.folder / "short", bench.folder / "text.txt"],
                             resource.RLIMIT_FSIZE, 4096)
    check(status == 1 and f"{bench.folder / 'short'}: {advice}" in output, f"prepare: exit status {status}:\n{output}")
    check(not list(bench.folder.glob("short*")), "a part of a token file is left")


def files_that_may_not_be_opened_are_told(bench):
    bench.run("whole")
    last = bench.folder / "whole" / "checkpoints" / f"step-{STEPS:08}"
    for limit in (4, 5, 7, 8):
        for name, arguments in ((f"few{limit}", ()), ("whole", ("--resume",))):
            status, output = limited(bench.command(name, *arguments, training__steps=STEPS + 1),
                                     resource.RLIMIT_NOFILE, limit)
            check(status in (1, 2), f"{name}, {limit} files: exit status {status}:\n{output}")
            check(output.count("Too many open files") >= 1, f"{name}, {limit} files:\n{output}")
            # What cannot be opened is not called damaged, nor is it said to be absent.
            check("damaged" not in output and "there is no" not in output, f"{name}, {limit} files:\n{output}")
    check(last.is_dir(), "a checkpoint is gone")
    check("ulimit -n" in output, f"no advice:\n{output}")


def token_file_that_is_cut_ends_the_run(bench):
    for processes in (0, 2):
        name = f"cut{processes}"
        tokens = bench.folder / f"tokens{processes}"
        shutil.copy(bench.folder / "tokens", tokens)
        job = bench.start(name, processes=processes, training__steps=1000000, checkpoint__every=2,
                          data__train=tokens)
        wait_for(lambda: bench.steps_done(name) >= 3 or job.process.poll() is not None, "three steps")
        os.truncate(tokens, 4096)
        status = job.wait()
        check(status == 2, f"{name}: exit status {status}:\n{job.output()}")
        told = f"token file {tokens}: it has become shorter since it was opened"
        check(job.output().count(told) == 1, f"{name}: not told once:\n{job.output()}")
        cause = json.loads((bench.folder / name / "failure.json").read_text())["cause"]
        check(told in cause, f"failure.json: {cause}")
        # With the file back the run goes on.
        shutil.copy(bench.folder / "tokens", tokens)
        bench.run(name, "--resume", data__train=tokens, training__steps=bench.steps_done(name) + 2)


def checkpoints(bench, name):
    return sorted(path.name for path in (bench.folder / name / "checkpoints").iterdir()
                  if (path / "manifest.json").exists())


def skipped_steps_are_not_saved(bench):
    output = bench.run("diverges", status=1, training__lr=1e30, training__warmup_steps=0, checkpoint__every=1,
                       checkpoint__keep=1, training__max_skipped_steps=3)
    check(output.count("is skipped") == 3 and output.count("not saved: step ") == 3, output)
    check(checkpoints(bench, "diverges") == ["step-00000001"], f"{checkpoints(bench, 'diverges')}:\n{output}")


def update_that_is_not_finite_is_not_saved(bench):
    steady = {"training__lr_schedule": "constant"}
    bench.run("whole", **steady)
    bench.run("wild", training__steps=4, **steady)
    output = bench.run("wild", "--resume", status=1, training__lr=3e38, checkpoint__every=1, checkpoint__keep=1,
                       **steady)
    check(output.count("after the last update, so nothing is saved: lower training.lr") == 1, output)
    check(checkpoints(bench, "wild") == ["step-00000004"], f"{checkpoints(bench, 'wild')}:\n{output}")
    bench.run("wild", "--resume", **steady)
    same_result(bench, "wild")


def checkpoint_of_another_model_is_refused(bench):
    bench.run("model")
    before = bench.checkpoint("model")

    def refused(part, **settings):
        output = bench.run("model", "--resume", status=2, training__steps=STEPS + 1, **settings)
        check(output.count(part) == 1, f"{settings}: \"{part}\" is not told once:\n{output}")
        check(bench.checkpoint("model") == before, "the checkpoint is changed")
        check(not (bench.folder / "model" / "failure.json").exists(), "a run that is whole is called failed")

    def all_are_refused(ffn, vocabulary, layers, tied):
        refused(ffn, model__ffn=64)
        refused(vocabulary, model__vocabulary=300)
        refused(layers, model__layers=8)
        refused(tied, model__tied_embeddings="true")

    all_are_refused("  model.ffn: 48 in the checkpoint, 64 now", "  model.vocabulary: 257 in the checkpoint, 300 now",
                    "  model.layers: 4 in the checkpoint, 8 now",
                    "  model.tied_embeddings: false in the checkpoint, true now")
    # Earlier manifests do not have the settings: the tensors tell.
    manifest = bench.folder / "model" / "checkpoints" / f"step-{STEPS:08}" / "manifest.json"
    content = json.loads(manifest.read_text())
    del content["model"], content["xxh3_64"]
    manifest.write_text(json.dumps(content))
    before = bench.checkpoint("model")
    all_are_refused("has the shape [48, 32], this run's model needs [64, 32]",
                    "has the shape [257, 32], this run's model needs [300, 32]",
                    "it is a checkpoint of another model (model.layers is 8,",
                    "it is a checkpoint of another model (model.layers is 4, model.tied_embeddings true)")


def pipe_for_a_log_is_refused(bench):
    """Whoever opens one to write waits for a reader, which may never come."""
    for processes in (0, 2):
        logs = bench.folder / f"pipe{processes}" / "logs"
        logs.mkdir(parents=True)
        os.mkfifo(logs / "rank-0.log")
        output = bench.run(logs.parent.name, processes=processes, status=1)
        check(output.count(f"cannot write the log file {logs}/rank-0.log: it is there and no regular file") == 1, output)


def folder_of_a_live_run_is_locked(bench):
    job = bench.start("live", training__steps=1000000, checkpoint__every=1)
    wait_for(lambda: bench.steps_done("live") >= 2 or job.process.poll() is not None, "two steps")
    for arguments in ((), ("--resume",)):
        for processes in (0, 2):
            output = bench.run("live", *arguments, processes=processes, status=2)
            check(output.count("is in use by another run") == 1, output)
    seen = bench.steps_done("live")
    wait_for(lambda: bench.steps_done("live") > seen or job.process.poll() is not None, "another step")
    check(job.process.poll() is None, f"the run that was there is disturbed:\n{job.output()}")
    job.end()
    # The lock goes with the process.
    bench.run("live", "--resume", training__steps=bench.steps_done("live") + 2)


def lack_of_host_memory_or_threads_is_told_and_can_be_mended(bench):
    # Stacks of 8 MiB, 255 of them, and a step's program of hundreds of MB: more than the addresses there are.
    for name, kibibytes, setting, cause in (
            ("threads", 1500000, {"device__threads": 256},
             "the system starts no more: Resource temporarily unavailable; lower device.threads"),
            ("memory", 300000, {"training__microbatches": 32768},
             "this process is out of host memory\nTo need less on the host: fewer training.microbatches (is 32768)")):
        limited = ["sh", "-c", f'ulimit -s 8192; ulimit -v {kibibytes}; exec "$@"', "sh"]
        run = subprocess.run([*limited, *bench.command(name, **setting)], timeout=LIMIT_S, check=False,
                             capture_output=True, text=True)
        check(run.returncode == 1 and run.stderr.count(cause) == 1, run.stderr)
        check(cause in json.loads((bench.folder / name / "failure.json").read_text())["cause"], "failure.json")
        bench.run(name)  # the folder holds no run yet
        check(not (bench.folder / name / "failure.json").exists(), "failure.json is left")


def finished_run_is_left_as_it_is(bench):
    bench.run("done")

    def content():
        return {path: path.read_bytes() for path in sorted((bench.folder / "done").rglob("*"))
                if path.is_file() and path.suffix != ".log" and path.name != ".lock"}

    before = content()
    for steps in (STEPS, STEPS - 3):
        for processes in (0, 2):
            output = bench.run("done", "--resume", processes=processes, training__steps=steps)
            check(output.count(f"nothing to do: {STEPS} steps are done, training.steps is {steps}") == 1, output)
            check(content() == before, "the run folder is changed")


if __name__ == "__main__":
    sys.exit(main(
        standard_descriptors_may_be_closed,
        output_that_cannot_be_written_stops_no_run,
        file_that_may_not_grow_is_told_like_a_full_disk,
        files_that_may_not_be_opened_are_told,
        token_file_that_is_cut_ends_the_run,
        skipped_steps_are_not_saved,
        update_that_is_not_finite_is_not_saved,
        checkpoint_of_another_model_is_refused,
        pipe_for_a_log_is_refused,
        folder_of_a_live_run_is_locked,
        lack_of_host_memory_or_threads_is_told_and_can_be_mended,
        finished_run_is_left_as_it_is,
    ))
