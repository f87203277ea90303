#!/usr/bin/env python3
"""Whole training runs, in one process and under mpirun: what they give and how they end.

Only the scenario that stops a process waits for time to pass.
"""
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time

from whole_run import STEPS, alive, check, main, wait_for


def same_in_every_layout(bench, prefix, **settings):
    one = f"{prefix}-one"
    bench.run(one, **settings)
    check(len(bench.numbers(one)) == STEPS, "a line a step")
    for processes in (2, 4):
        name = f"{prefix}-mpi{processes}"
        bench.run(name, processes=processes, **settings)
        check(bench.numbers(name) == bench.numbers(one), f"{name}: numbers differ")
        check(bench.checkpoint(name) == bench.checkpoint(one), f"{name}: parameters differ")
    return bench.numbers(one)


def same_numbers_in_every_layout(bench):
    same_in_every_layout(bench, "fp32")


def same_numbers_in_every_layout_with_bf16_and_recompute(bench):
    fp32 = {"training__dtype": "fp32"}
    bf16 = {"training__dtype": "bf16"}
    selective = {"memory__recompute": "selective"}
    numbers = {name: same_in_every_layout(bench, name, **settings) for name, settings in {
        "fp32-selective": fp32 | selective, "bf16": bf16, "bf16-selective": bf16 | selective}.items()}
    # What is computed again is what was kept; another type is another run.
    check(numbers["bf16-selective"] == numbers["bf16"], "recompute changes the numbers of bf16")
    bench.run("fp32", **fp32)
    check(numbers["fp32-selective"] == bench.numbers("fp32"), "recompute changes the numbers of fp32")
    check(numbers["bf16"] != numbers["fp32-selective"], "bf16 computes as fp32 does")

    def saved(name):
        return sum(device["peak_bytes_saved_activations"] for device in bench.metrics(name)[STEPS]["devices"])

    check(saved("bf16-selective-one") < saved("bf16-one"), "recompute saves nothing")
    check(saved("bf16-one") < saved("fp32"), "bf16 saves nothing")


def resumed_run_is_the_undisturbed_one(bench):
    bench.run("whole")
    # The learning rate's course depends on training.steps, so the first part is stopped by its checkpoint.
    bench.run("parts", checkpoint__every=3, checkpoint__keep=9)
    parts = bench.folder / "parts"
    for step in (6, STEPS):
        shutil.rmtree(parts / "checkpoints" / f"step-{step:08}")
    output = bench.run("parts", "--resume", processes=2)
    check("step-00000003" in output, f"not resumed from step 3:\n{output}")
    check(bench.numbers("parts") == bench.numbers("whole"), "numbers differ")
    check(bench.checkpoint("parts") == bench.checkpoint("whole"), "parameters differ")
    # A finished run that is resumed has nothing to do and changes nothing.
    bench.run("parts", "--resume")
    check(bench.checkpoint("parts") == bench.checkpoint("whole"), "parameters differ")


def killed_run_goes_on(bench):
    steps = 24
    bench.run("whole", training__steps=steps)
    moments = random.Random(7)
    checkpoints = bench.folder / "killed" / "checkpoints"
    kills = 0
    arguments = []
    while not (checkpoints / f"step-{steps:08}").exists():
        job = bench.start("killed", *arguments, training__steps=steps, checkpoint__every=1)
        if kills == 6:  # enough: the last one may finish
            check(job.wait() == 0, job.output())
            break
        # A first checkpoint must exist; then any moment will do.
        wait_for(lambda: job.process.poll() is not None or bench.steps_done("killed") >= kills * 2 + 2,
                 "two steps more")
        time.sleep(moments.uniform(0, 0.05))
        job.process.kill()
        job.wait()
        kills += 1
        arguments = ["--resume"]
    check(kills > 1, "the run was over before it was killed twice")
    check(bench.numbers("killed") == bench.numbers("whole"), "numbers differ")
    check(bench.checkpoint("killed", steps) == bench.checkpoint("whole", steps), "parameters differ")


def dead_rank_ends_the_job(bench):
    for rank in (0, 1):
        name = f"dead{rank}"
        job = bench.start(name, processes=2, training__steps=100000)
        wait_for(lambda: bench.steps_done(name) >= 2 or job.process.poll() is not None, "two steps")
        pids = job.ranks()
        check(sorted(pids) == [0, 1], f"ranks {pids}:\n{job.output()}")
        os.kill(pids[rank], signal.SIGKILL)
        try:
            status = job.process.wait(10)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the job goes on 10 s after rank {rank} has died") from None
        check(status != 0, "exit status 0 with a dead rank")
        wait_for(lambda: not any(map(alive, pids.values())), "the processes of the job to go")


def a_memory_limit_is_checked_before_the_run(bench):
    bench.run("enough")
    most = int(max(device["peak_bytes"] for device in bench.metrics("enough")[STEPS]["devices"]))
    bench.run("exact", memory__limit=most)  # the plan is exact: not a byte more is needed
    for processes in (0, 2):
        output = bench.run(f"short{processes}", processes=processes, status=2, memory__limit=most - 1)
        check(output.count("memory.limit: a device would need") == 1, f"named not once:\n{output}")
        for column in ("weights", "saved_activations", "peak of all"):
            check(output.count(column) == 1, f"no table of {column}:\n{output}")
        fitting = re.findall(r"([\d.]+) MiB with((?: --set [\w.]+=\w+)+)", output)
        check(fitting, f"no setting that would fit:\n{output}")
    settings = dict(pair.split("=") for pair in fitting[0][1].split(" --set ")[1:])
    bench.run("fitting", memory__limit=most - 1, **{key.replace(".", "__"): value for key, value in settings.items()})
    # Not even the parameters fit: nothing is offered that would not help.
    output = bench.run("tiny", status=2, memory__limit=1000)
    check("do not make it fit" in output and " MiB with" not in output, output)


def too_many_skipped_steps_end_the_run(bench):
    for processes in (0, 2):
        name = f"diverges{processes}"
        output = bench.run(name, processes=processes, status=1, training__lr=1e30, training__warmup_steps=0,
                           training__max_skipped_steps=3)
        check(output.count("3 steps in a row were not finite") == 1, output)
        check(len(re.findall(r"step \d+ is skipped: .+ is not finite", output)) == 3, output)
        check([line["skipped"] for line in bench.metrics(name).values()] == [0, 1, 1, 1], output)
        check((bench.folder / name / "failure.json").exists(), "no failure.json")


def bad_input_is_told_once(bench):
    def bad(name, part, processes=0, **settings):
        output = bench.run(name, processes=processes, status=2, **settings)
        check(output.count(part) == 1, f"{name}: \"{part}\" not told once:\n{output}")
        check(not (bench.folder / name).exists(), f"{name}: something was written")

    for processes in (0, 2):
        bad("unknown", "training.stepz", processes, training__stepz=3)
        bad("absent", "no such file", processes, data__train=bench.folder / "no such file")
    bad("processes", "4 devices (tensor 1 x context 1 x data 1 x pipeline 4) cannot be shared equally among 3 "
        "processes: start a number of processes that divides 4",
        processes=3)
    bad("fewer", "device.per_process is 2, so 1 process drives 2 devices, but the parallel sizes ask for 4: start 2 "
        "processes with mpirun", device__per_process=2)
    bad("one", "device.per_process is 1, so 1 process drives 1 device, but the parallel sizes ask for 4: start 4 "
        "processes with mpirun", device__per_process=1)
    bad("uneven", "4 devices cannot be divided into processes of 3 devices; use 2 or 4", device__per_process=3)
    bad("half", "device.per_process is 1, so 2 processes drive 2 devices, but the parallel sizes ask for 4: start 4 "
        "processes with mpirun", processes=2, device__per_process=1)
    bad("slices", "schedule.slices", schedule__slices=5)
    bad("damaged", "run.yaml", data__train=bench.folder / "run.yaml")
    bad("short", "are less than one sequence (data.sequence_length 1048576",
        data__sequence_length=1 << 20, data__validation_fraction=0)
    bad("vocabulary", "model.vocabulary is 100", model__vocabulary=100)
    output = bench.run("nothing", "--resume", status=2)
    check(output.count("there is no checkpoint") == 1, output)
    bench.run("twice")
    before = bench.checkpoint("twice")
    check("holds a run already" in bench.run("twice", status=2), "a run's folder is used again")
    check(bench.checkpoint("twice") == before, "the run that was there is changed")


def processes_that_were_started_unlike_are_refused(bench):
    """mpirun starts a program of its own in each process: another setting, another folder."""
    def unlike(name, found, *, folders=(".", "."), **second):
        command = [*bench.mpirun]
        for folder, settings in zip(folders, ({}, second)):
            part = bench.command(name, training__steps=8, **settings)
            part[part.index("--run-dir") + 1] = name  # in the folder that the process starts in
            command += [":"] * (":" in command or "-wdir" in command) + ["-np", "1", "-wdir", bench.folder / folder]
            command += part
        job = bench.start_command(name, list(map(str, command)))
        status = job.wait()
        check(status == 2 and job.output().count(found) == 1, f"{name}: status {status}, not once: {found}\n{job.output()}")

    unlike("settings", 'rank 1: the configuration is not that of rank 0: found "training.lr: 1", rank 0 has '
           '"training.lr: 0.001"', training__lr=1)
    (bench.folder / "elsewhere").mkdir()
    unlike("folders", "(its .lock) is not that of rank 0", folders=(".", "elsewhere"))
    check(not (bench.folder / "folders/metrics.jsonl").exists(), "a refused run has metrics")


def run_ends_where_its_folder_is_moved(bench):
    job = bench.start("moved", training__steps=100000)
    wait_for(lambda: bench.steps_done("moved") > 2, "steps of the run")
    (bench.folder / "moved").rename(bench.folder / "away")
    status = job.wait()
    check(status == 1 and "was moved, removed or replaced during the run" in job.output(), job.output())
    check(not (bench.folder / "moved").exists(), "the folder is made anew")


def stopped_process_is_reported_and_waited_for(bench):
    steps = 100
    bench.run("whole", training__steps=steps)
    job = bench.start("stopped", processes=2, training__steps=steps, log__watchdog_seconds=1)
    wait_for(lambda: bench.steps_done("stopped") >= 2 or job.process.poll() is not None, "two steps")
    pids = job.ranks()
    check(sorted(pids) == [0, 1], f"ranks {pids}:\n{job.output()}")
    os.kill(pids[1], signal.SIGSTOP)
    try:
        wait_for(lambda: "watchdog" in job.output(), "a report of the watchdog")
    finally:
        os.kill(pids[1], signal.SIGCONT)
    check(job.wait() == 0, job.output())
    report = r"watchdog: nothing has moved for .+ s:\s+device 0: waiting, (step \d+ of \d+: .+|sum of .+)"
    check(re.search(report, job.output()), f"expected {report}:\n{job.output()}")
    check(bench.numbers("stopped") == bench.numbers("whole"), "numbers differ")


def process_that_stays_stopped_ends_the_job(bench):
    job = bench.start("stays", processes=2, training__steps=100000, log__watchdog_seconds=0.5)
    wait_for(lambda: bench.steps_done("stays") >= 2 or job.process.poll() is not None, "two steps")
    pids = job.ranks()
    check(sorted(pids) == [0, 1], f"ranks {pids}:\n{job.output()}")
    os.kill(pids[1], signal.SIGSTOP)
    check(job.wait() == 1, job.output())
    cause = json.loads((bench.folder / "stays" / "failure.json").read_text())["cause"]
    told = r"given up: nothing has moved for .+ s:\n  device 0: waiting, .+\n  device 1: waiting, .+"
    check(re.search(told, cause), f"expected {told}:\n{cause}")


def process_that_never_starts_ends_the_job(bench):
    command = bench.command("absent", processes=2, log__watchdog_seconds=0.2)
    program = command.index(bench.slimpipe)
    stop_rank_1 = 'test "$OMPI_COMM_WORLD_RANK" != 1 || kill -STOP $$; exec "$@"'
    command[program:program] = ["sh", "-c", stop_rank_1, "sh"]
    job = bench.start_command("absent", command)
    check(job.wait() == 1, job.output())
    told = r"given up: rank 0 has waited .+ s for all processes of the run to initialise MPI"
    check(re.search(told, job.output()), f"expected {told}:\n{job.output()}")


if __name__ == "__main__":
    sys.exit(main(
        same_numbers_in_every_layout,
        same_numbers_in_every_layout_with_bf16_and_recompute,
        resumed_run_is_the_undisturbed_one,
        killed_run_goes_on,
        dead_rank_ends_the_job,
        a_memory_limit_is_checked_before_the_run,
        too_many_skipped_steps_end_the_run,
        bad_input_is_told_once,
        processes_that_were_started_unlike_are_refused,
        run_ends_where_its_folder_is_moved,
        stopped_process_is_reported_and_waited_for,
        process_that_stays_stopped_ends_the_job,
        process_that_never_starts_ends_the_job,
    ))
