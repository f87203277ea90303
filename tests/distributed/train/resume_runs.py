#!/usr/bin/env python3
"""Whole runs that go on from a checkpoint: what may change in between, and what is refused."""
import json
import os
import shutil
import signal
import subprocess
import sys

from whole_run import STEPS, check, main

HALF = STEPS // 2
STEADY = {"training__lr_schedule": "constant"}  # a learning rate that does not depend on training.steps


def half_a_run(bench, name="half", **settings):
    bench.run(name, training__steps=HALF, **STEADY, **settings)


def goes_on(bench, what, *, processes=0, **settings):
    """Resumes a copy of the half run; returns its output."""
    shutil.copytree(bench.folder / "half", bench.folder / what)
    output = bench.run(what, "--resume", processes=processes, **{**STEADY, **settings})
    check(f"resumed from {bench.folder / what}/checkpoints/step-{HALF:08}" in output, f"{what}:\n{output}")
    return output


def other_samples_are_refused(bench):
    half_a_run(bench)
    metrics = (bench.folder / "half" / "metrics.jsonl").read_bytes()
    checkpoint = bench.checkpoint("half", HALF)
    reversed_text = bench.folder / "reversed.txt"
    reversed_text.write_text((bench.folder / "text.txt").read_text()[::-1])
    subprocess.run([bench.slimpipe, "data", "prepare", "-o", bench.folder / "other", reversed_text], check=True,
                   stdout=subprocess.DEVNULL)

    def refused(*lines, processes=0, **settings):
        output = bench.run("half", "--resume", status=2, processes=processes, **{**STEADY, **settings})
        for part in (f"step-{HALF:08} was trained on other samples", f"sample {3 * HALF}", "another --run-dir",
                     *lines):
            check(output.count(part) == 1, f"{settings}: \"{part}\" is not told once:\n{output}")
        found = [line for line in output.splitlines() if " in the checkpoint, " in line]
        check(len(found) == len(lines), f"{settings}: expected {lines}:\n{output}")
        check((bench.folder / "half" / "metrics.jsonl").read_bytes() == metrics, "the metrics are changed")
        check(bench.checkpoint("half", HALF) == checkpoint, "the checkpoint is changed")
        check(not (bench.folder / "half" / "failure.json").exists(), "a run that is whole is called failed")

    refused("  data.train: ", data__train=bench.folder / "other")
    refused("  training.seed: 1 in the checkpoint, 9 now", training__seed=9)
    refused("  training.seed: 1 in the checkpoint, 9 now", training__seed=9, processes=2)
    refused("  data.shuffle_window: 4096 in the checkpoint, 4 now", data__shuffle_window=4)
    refused("  data.sequence_length: 32 in the checkpoint, 16 now", "  tokens to train on (",
            data__sequence_length=16)
    split = "  tokens to train on (data.validation_fraction, data.validation): "
    refused(split, data__validation_fraction=0.3)
    refused(split, data__validation=bench.folder / "other")
    refused("  training.seed: ", "  data.shuffle_window: ", training__seed=9, data__shuffle_window=4)
    # With nothing left to do it is still another run.
    refused("  training.seed: ", training__seed=9, training__steps=HALF)


def parameters(bench, name, step):
    """The fp32 values of all parameters in a checkpoint, by name."""
    values = {}
    for data in (content for file, content in bench.checkpoint(name, step).items() if file != "manifest.json"):
        start = 8 + int.from_bytes(data[:8], "little")
        for tensor, entry in json.loads(data[8:start]).items():
            if tensor != "__metadata__" and not tensor.startswith("moment"):
                begin, end = entry["data_offsets"]
                values[tensor] = data[start + begin:start + end]
    check(values, f"{name}: no parameters in step {step}")
    return values


def dtype_may_change(bench):
    half_a_run(bench, training__dtype="bf16")
    # With a learning rate of 0 what was saved is what is saved again: all bits, though bf16 holds half of them.
    for what, settings in (("fp32", {"training__dtype": "fp32"}), ("bf16", {"training__dtype": "bf16"})):
        goes_on(bench, what, training__lr=0, **settings)
        check(parameters(bench, what, STEPS) == parameters(bench, "half", HALF), f"{what}: parameters differ")
    check(bench.numbers("fp32") != bench.numbers("bf16"), "the resumed run computes in the type it had before")


def what_samples_do_not_depend_on_may_change(bench):
    half_a_run(bench)
    bench.run("whole", **STEADY)
    shutil.copy(bench.folder / "tokens", bench.folder / "moved")
    for what, processes, settings in (
            ("pipeline", 0, {"parallel__pipeline": 2}),
            ("processes", 2, {}),
            ("file", 0, {"data__train": bench.folder / "moved"}),
            ("window", 0, {"data__shuffle_window": 1 << 20})):
        goes_on(bench, what, processes=processes, **settings)
        check(bench.numbers(what) == bench.numbers("whole"), f"numbers differ with another {what}")
    for what, settings in (
            ("slices", {"schedule__slices": 8}),
            ("learning rate", {"training__lr": 1e-4}),
            ("steps", {"training__steps": STEPS + 3}),
            ("microbatches", {"training__microbatches": 5}),
            ("validation", {"training__validation_samples": 2})):
        goes_on(bench, what, **settings)
        check(len(bench.metrics(what)) == settings.get("training__steps", STEPS), f"{what}: steps are missing")
    tokens = bench.metrics("microbatches")[STEPS]["tokens"]
    check(tokens == (3 * HALF + 5 * (STEPS - HALF)) * 32, f"{tokens} tokens with other microbatches")


def other_models_of_the_same_shapes_are_refused(bench):
    half_a_run(bench)
    checkpoint = bench.checkpoint("half", HALF)
    for processes, lines, settings in (
            (0, ["model.heads: 4 in the checkpoint, 2 now", "model.kv_heads: 2 in the checkpoint, 1 now",
                 "model.head_size: 8 in the checkpoint, 16 now"],
             {"model__heads": 2, "model__kv_heads": 1, "model__head_size": 16}),
            (2, ["model.norm_epsilon: 1e-05 in the checkpoint, 0.001 now"], {"model__norm_epsilon": 1e-3}),
            (0, ["model.rope.theta: 10000 in the checkpoint, 500000 now"], {"model__rope__theta": 500000}),
            (0, ["model.rope.kind: plain in the checkpoint, ntk now", "model.rope.factor: 1 in the checkpoint, 2 now"],
             {"model__rope__kind": "ntk", "model__rope__factor": 2})):
        output = bench.run("half", "--resume", status=2, processes=processes, **{**STEADY, **settings})
        check(f"step-{HALF:08} is of a model with other settings" in output, output)
        found = [line.strip() for line in output.splitlines() if " in the checkpoint, " in line]
        check(sorted(found) == sorted(lines), f"expected {lines}:\n{output}")
        check(bench.checkpoint("half", HALF) == checkpoint, "the checkpoint is changed")
    # How weights were drawn is no part of what they mean.
    goes_on(bench, "init", model__init_std=0.5)
    # A setting that this build has not is none it could honour; one that the writer had not was at its default.
    path = bench.folder / "half" / "checkpoints" / f"step-{HALF:08}" / "manifest.json"
    manifest = json.loads(path.read_text())
    del manifest["xxh3_64"], manifest["model"]["model.norm_epsilon"]
    path.write_text(json.dumps(manifest))
    goes_on(bench, "default")
    output = bench.run("half", "--resume", status=2, model__norm_epsilon=1e-3, **STEADY)
    check("model.norm_epsilon: 1e-05 in the checkpoint, 0.001 now" in output, output)
    manifest["model"]["model.experts"] = "8"
    path.write_text(json.dumps(manifest))
    output = bench.run("half", "--resume", status=2, **STEADY)
    check("model.experts: 8 in the checkpoint, not known to this build" in output, output)


def checkpoint_of_another_version_is_not_called_damaged(bench):
    half_a_run(bench)
    path = bench.folder / "half" / "checkpoints" / f"step-{HALF:08}" / "manifest.json"
    path.write_text(path.read_text().replace('"version": 1', '"version": 2'))
    output = bench.run("half", "--resume", status=2, **STEADY)
    check("expected version 1 of the format, found 2: use the slimpipe that wrote it" in output, output)
    check("damaged" not in output, output)


def checkpoint_without_stream_and_model_is_resumed_with_a_warning(bench):
    half_a_run(bench)
    path = bench.folder / "half" / "checkpoints" / f"step-{HALF:08}" / "manifest.json"
    manifest = json.loads(path.read_text())
    for added_since in ("stream", "model", "xxh3_64"):
        del manifest[added_since]
    path.write_text(json.dumps(manifest))
    output = bench.run("half", "--resume", **STEADY)
    check(output.count("does not record the data it was trained on") == 1, output)
    check(output.count("does not record the settings of its model") == 1, output)
    # The next checkpoint has it again.
    check("training.seed: 1 in the checkpoint, 9 now" in bench.run("half", "--resume", status=2, training__seed=9,
                                                                   **STEADY), "the stream is not recorded")


def damaged_newest_checkpoint_is_refused(bench):
    bench.run("whole", **STEADY)
    bench.run("source", checkpoint__every=2, checkpoint__keep=9, **STEADY)
    names = {step: f"step-{step:08}" for step in (2, 4, 6, 8)}

    def refused(name, *parts, processes=0):
        output = bench.run(name, "--resume", status=2, processes=processes, training__steps=STEPS + 2, **STEADY)
        for part in parts:
            check(output.count(part) == 1, f"{name}: \"{part}\" is not told once:\n{output}")

    def cut(checkpoint):
        file = checkpoint / "device-00001.safetensors"
        file.write_bytes(file.read_bytes()[:100])
        return "its file device-00001.safetensors has 100 bytes"

    def lose(checkpoint):
        (checkpoint / "device-00001.safetensors").unlink()
        return "its file device-00001.safetensors is missing"

    def flip(checkpoint):
        file = checkpoint / "device-00001.safetensors"
        data = bytearray(file.read_bytes())
        data[-1] ^= 1
        file.write_bytes(data)
        return "device-00001.safetensors: the file is damaged"

    def rename(checkpoint):
        shutil.rmtree(checkpoint)
        shutil.copytree(checkpoint.with_name(names[2]), checkpoint)
        return f"its manifest.json is of step 2: the folder's name was {names[2]}"

    for damage in (cut, lose, flip, rename):
        name = damage.__name__
        shutil.copytree(bench.folder / "source", bench.folder / name)
        checkpoints = bench.folder / name / "checkpoints"
        shutil.rmtree(checkpoints / names[8])
        what = damage(checkpoints / names[6])
        for processes in (0, 2):
            refused(name, what, f"Remove or rename {checkpoints / names[6]} to go on from the newest whole checkpoint "
                    f"before it, {checkpoints / names[4]}", processes=processes)
        # As told; what is set aside stays as it is.
        aside = checkpoints / "aside"
        (checkpoints / names[6]).rename(aside)
        content = sorted(path.read_bytes() for path in aside.iterdir())
        output = bench.run(name, "--resume", **STEADY)
        check(f"resumed from {checkpoints / names[4]}" in output, output)
        check(bench.numbers(name) == bench.numbers("whole"), f"{name}: numbers differ")
        check(sorted(path.read_bytes() for path in aside.iterdir()) == content, "what was set aside is changed")


def damaged_metrics_are_mended_or_told(bench):
    bench.run("whole", **STEADY)
    half_a_run(bench)
    path = bench.folder / "half" / "metrics.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    missing = f"metrics.jsonl: it has {{}} of the {HALF} steps before this one"
    unreadable = "metrics.jsonl: {} lines that are no steps are left out"
    for what, content, told, untold in (
            ("cut", b"".join(lines) + b'{"step":5,"lo', unreadable.format(1), missing.partition("{}")[0]),
            ("garbage last", b"".join(lines) + b"\xff\0\xfe garbage\n", unreadable.format(1),
             missing.partition("{}")[0]),
            ("garbage within", b"".join([lines[0], b"\0" * 5000 + b"\n", *lines[2:]]), missing.format(HALF - 1),
             "no checkpoint"),
            ("gone", None, missing.format(0), "lines that are no steps")):
        shutil.copytree(bench.folder / "half", bench.folder / what)
        if content is None:
            (bench.folder / what / "metrics.jsonl").unlink()
            # Without --resume it would be a new run among the checkpoints of this one.
            output = bench.run(what, status=2, **STEADY)
            check(output.count("holds a run already (checkpoints)") == 1, output)
        else:
            (bench.folder / what / "metrics.jsonl").write_bytes(content)
        output = bench.run(what, "--resume", **STEADY)
        check(output.count(told) == 1 and untold not in output, f"{what}:\n{output}")
        done = [json.loads(line) for line in (bench.folder / what / "metrics.jsonl").read_text().splitlines()]
        whole = bench.metrics("whole")
        check([line["step"] for line in done][-(STEPS - HALF):] == list(range(HALF + 1, STEPS + 1)),
              f"{what}: the steps after the checkpoint are not there")
        check(all(line["loss"] == whole[line["step"]]["loss"] for line in done), f"{what}: numbers differ")
        check(bench.checkpoint(what) == bench.checkpoint("whole"), f"{what}: parameters differ")


def run_killed_while_it_saves_goes_on(bench):
    steps = 400
    settings = {"training__steps": steps, "checkpoint__every": 1, "log__every": 100, **STEADY}
    checkpoints = bench.folder / "killed" / "checkpoints"
    job = bench.start("killed", **settings)
    complete, left = None, []
    # Stopped first: what is seen then is what the kill leaves.
    while not (complete and left):
        job.process.send_signal(signal.SIGCONT)
        job.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, job.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        check(job.process.poll() is None, f"it was never met writing:\n{job.output()}")
        complete = max(checkpoints.glob("step-????????"), default=None)
        left = [path.name for path in checkpoints.glob("*.partial")]
    job.end()
    check(not (checkpoints / left[0].removesuffix(".partial")).exists(), "both a part of it and the whole")
    step = int(complete.name.removeprefix("step-"))
    output = bench.run("killed", "--resume", **{**settings, "training__steps": step + 3})
    check(f"resumed from {complete}" in output, output)
    check("damaged" not in output, output)
    check(not list(checkpoints.glob("*.partial")), "what was half written stays for ever")
    bench.run("whole", **{**settings, "training__steps": step + 3})
    check(bench.numbers("killed") == bench.numbers("whole"), "numbers differ")
    check(bench.checkpoint("killed", step + 3) == bench.checkpoint("whole", step + 3), "parameters differ")


if __name__ == "__main__":
    sys.exit(main(
        other_samples_are_refused,
        dtype_may_change,
        what_samples_do_not_depend_on_may_change,
        other_models_of_the_same_shapes_are_refused,
        checkpoint_of_another_version_is_not_called_damaged,
        checkpoint_without_stream_and_model_is_resumed_with_a_warning,
        damaged_newest_checkpoint_is_refused,
        damaged_metrics_are_mended_or_told,
        run_killed_while_it_saves_goes_on,
    ))
