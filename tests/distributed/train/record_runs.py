#!/usr/bin/env python3
"""What whole runs leave in their folders: fields, that they agree with one another and with what is documented."""
import json
import math
import re
import subprocess
import sys
from pathlib import Path

from whole_run import DEVICES, STEPS, check, main

README = (Path(__file__).resolve().parents[3] / "README.md").read_text(encoding="utf-8")
PARAMETERS = 47456  # of the model in whole_run.py
VOCABULARY, HIDDEN, LAYERS, HEADS, HEAD_SIZE, SEQUENCE, MICROBATCHES = 257, 32, 4, 4, 8, 32, 3
VALIDATED = (4, STEPS)

SCOPES = {"weights", "master_weights", "gradients", "optimizer", "saved_activations", "deferred", "kv_gradients", "exchange",
          "transfer", "workspace", "input"}
DEVICE_FIELDS = {"device", "compute_ms", "wait_ms", "send_ms", "send_hidden_ms", "exchange_bytes", "exchange_wait_ms",
                 "exchange_overlap", "wall_ms", "peak_bytes"} | {f"peak_bytes_{s}" for s in SCOPES}
RECORD_FIELDS = {"step", "loss", "grad_norm", "lr", "tokens", "step_ms", "tokens_per_s", "tflops",
                 "tflops_full_attention", "mfu", "mfu_full_attention", "bubble", "skipped", "devices"}
SUMMARY_FIELDS = {"steps", "samples", "skipped", "final_loss", "initial_validation_loss", "final_validation_loss",
                  "parameters", "devices", "processes", "seconds"}


def same(found, expected, what):
    check(found == expected, f"{what}: found {found}, expected {expected}")


def near(found, expected, what):
    check(math.isclose(found, expected, rel_tol=1e-9, abs_tol=1e-12), f"{what}: found {found}, expected {expected}")


def table_after(heading):
    """Rows of README's first table behind `heading`, as lists of cells."""
    rows = README.partition(heading)[2].partition("\n|")[2].partition("\n\n")[0].splitlines()[2:]
    check(rows, f"README has no table after {heading!r}")
    return [row.strip("|").split(" | ") for row in rows]


def documented_fields():
    """Fields of a record and of a device as README has them."""
    rows = {name: meaning for names, meaning in table_after("Fields of `metrics.jsonl`:")
            for name in re.findall(r"`(\w+)`", names)}
    named, scopes = rows["devices"].split("`peak_bytes_SCOPE` for ")
    return set(rows), {"device"} | set(re.findall(r"`(\w+)`", named)) | {
        f"peak_bytes_{scope}" for scope in re.findall(r"\w+", scopes)}


def metrics_hold_the_documented_fields(bench):
    record_fields, device_fields = documented_fields()
    same(record_fields, RECORD_FIELDS | {"validation_loss", "skip_cause"}, "README's fields of a record")
    same(device_fields, DEVICE_FIELDS, "README's fields of a device")
    for name, processes, settings, validated in (("one", 0, {}, VALIDATED), ("two", 2, {}, VALIDATED),
                                                 ("last", 0, {"training__validation_every": 0}, (STEPS,)),
                                                 ("none", 0, {"data__validation_fraction": 0}, ())):
        bench.run(name, processes=processes, **settings)
        records = bench.metrics(name)
        same(list(records), list(range(1, STEPS + 1)), f"{name}: steps")
        for step, record in records.items():
            validation = {"validation_loss"} if step in validated else set()
            same(set(record), RECORD_FIELDS | validation, f"{name}, step {step}")
            same([device["device"] for device in record["devices"]], list(range(DEVICES)), f"{name}: devices")
            for device in record["devices"]:
                same(set(device), DEVICE_FIELDS, f"{name}, step {step}, device {device['device']}")
    output = bench.run("wild", status=1, training__lr=1e30, training__warmup_steps=0, training__max_skipped_steps=1,
                       log__level="warning")
    check("is skipped" in output, output)
    log = (bench.folder / "wild/logs/rank-0.log").read_text()
    check(" warning step 2 is skipped" in log and " info " not in log, f"log of warnings:\n{log}")
    records = bench.metrics("wild")
    same([record["skipped"] for record in records.values()], [0, 1], "skipped")
    same(set(records[1]), RECORD_FIELDS, "a step that is not skipped")
    same(set(records[2]), RECORD_FIELDS | {"skip_cause"}, "a skipped step")


def rates_and_bytes_follow_from_the_run(bench):
    bench.run("run")
    # README: FLOPs of a token: 6 P + 6 L N D S, with P all parameters but the input embedding; 12 L N D S counts
    # attention whole.
    weights = 6 * (PARAMETERS - VOCABULARY * HIDDEN)
    attention = 6 * LAYERS * HEADS * HEAD_SIZE * SEQUENCE
    before = [0] * DEVICES
    for step, record in bench.metrics("run").items():
        tokens = MICROBATCHES * SEQUENCE
        same(record["tokens"], step * tokens, "tokens")
        near(record["tokens_per_s"], tokens / record["step_ms"] * 1e3, "tokens_per_s")
        near(record["tflops"], record["tokens_per_s"] * (weights + attention) / 1e12, "tflops")
        near(record["tflops_full_attention"], record["tokens_per_s"] * (weights + 2 * attention) / 1e12,
             "tflops_full_attention")
        check(record["mfu"] > 0, f"mfu {record['mfu']}")
        near(record["mfu_full_attention"] / record["mfu"], record["tflops_full_attention"] / record["tflops"],
             "ratio of the two mfu")
        check(0 < record["lr"] <= 1e-3 and record["grad_norm"] > 0, f"step {step}: {record}")
        devices = record["devices"]
        longest = max(device["wall_ms"] for device in devices)
        near(record["bubble"], 1 - sum(device["compute_ms"] for device in devices) / (DEVICES * longest), "bubble")
        check(longest <= record["step_ms"], f"step {step}: {longest} ms on a device of {record['step_ms']} ms")
        for device, peak in zip(devices, before):
            scopes = {scope: device[f"peak_bytes_{scope}"] for scope in SCOPES}
            check(device["compute_ms"] + device["wait_ms"] <= device["wall_ms"] * (1 + 1e-9), f"{device}")
            check(0 <= device["send_hidden_ms"] <= device["send_ms"] * (1 + 1e-9), f"{device}")
            check(max(scopes.values()) <= device["peak_bytes"] <= sum(scopes.values()), f"{device}")
            check(device["peak_bytes"] >= peak, f"step {step}: a peak since the start has fallen: {device}")
            check(all(isinstance(count, int) for count in scopes.values()), f"{device}")
        before = [device["peak_bytes"] for device in devices]
        for scope, each in (("weights", 4), ("gradients", 4), ("optimizer", 8), ("master_weights", 0)):
            same(sum(device[f"peak_bytes_{scope}"] for device in devices), each * PARAMETERS, f"bytes of {scope}")
        check(all(device["peak_bytes_saved_activations"] > 0 for device in devices), f"{devices}")
    bench.run("bf16", training__dtype="bf16")
    for scope in ("weights", "master_weights"):  # an fp32 value in two halves
        held = sum(device[f"peak_bytes_{scope}"] for device in bench.metrics("bf16")[STEPS]["devices"])
        same(held, 2 * PARAMETERS, f"bytes of {scope} in bf16")


def summary_of(bench, name):
    return json.loads((bench.folder / name / "summary.json").read_text())


def summary_agrees_with_the_metrics(bench):
    for name, processes, settings in (("one", 0, {}), ("two", 2, {}), ("none", 0, {"data__validation_fraction": 0})):
        output = bench.run(name, processes=processes, **settings)
        summary, records = summary_of(bench, name), bench.metrics(name)
        last = records[STEPS]
        same(set(summary), SUMMARY_FIELDS, f"{name}: fields of summary.json")
        for key, expected in (("steps", STEPS), ("samples", STEPS * MICROBATCHES), ("skipped", 0),
                              ("final_loss", last["loss"]), ("final_validation_loss", last.get("validation_loss")),
                              ("parameters", PARAMETERS), ("devices", DEVICES), ("processes", max(1, processes))):
            same(summary[key], expected, f"{name}: {key}")
        first = summary["initial_validation_loss"]
        if "data__validation_fraction" in settings:
            same(first, None, "validation loss without validation")
            check("validation" not in output, output)
        else:
            check(f"step 0: validation loss {first:.4f}\n" in output, f"{name}: {first} is not in\n{output}")
            check(first > summary["final_validation_loss"] > 0, f"{name}: {summary}")
        check(summary["seconds"] * 1e3 >= sum(record["step_ms"] for record in records.values()), f"{summary}")
    # Validation on files of its own: the training is that of a run without, whatever data.validation_fraction is.
    other = bench.folder / "other"
    (bench.folder / "reversed.txt").write_text((bench.folder / "text.txt").read_text()[::-1])
    subprocess.run([bench.slimpipe, "data", "prepare", "-o", other, bench.folder / "reversed.txt"], check=True,
                   stdout=subprocess.DEVNULL)
    first = {summary_of(bench, "one")["initial_validation_loss"]}
    for name, file in (("file", bench.folder / "tokens"), ("other file", other)):
        bench.run(name, data__validation=file)
        same([record["loss"] for record in bench.metrics(name).values()],
             [record["loss"] for record in bench.metrics("none").values()], f"{name}: losses")
        first.add(summary_of(bench, name)["initial_validation_loss"])
    check(len(first) == 3 and None not in first, f"validation losses of three validations: {first}")
    check(summary_of(bench, "two")["final_loss"] == summary_of(bench, "one")["final_loss"], "layouts differ")
    # A run that is resumed counts all of it.
    bench.run("parts", training__steps=STEPS // 2)
    bench.run("parts", "--resume")
    same(summary_of(bench, "parts")["samples"], STEPS * MICROBATCHES, "samples of a resumed run")
    same(summary_of(bench, "parts")["steps"], STEPS, "steps of a resumed run")


def values_of(yaml):
    """Lines without the comments that say where values came from, which are behind the last '  # '."""
    return [line.rpartition("  # ")[0].rstrip() for line in yaml.splitlines() if "  # " in line]


def resolved_configuration_trains_the_same_run(bench):
    # A name that YAML would read as something else without quotes.
    tokens = bench.folder / 'to "kens": #1'
    tokens.write_bytes((bench.folder / "tokens").read_bytes())
    bench.run("first", data__train=tokens, parallel__pipeline=2, memory__limit="1GiB")
    resolved = bench.folder / "first" / "config.yaml"
    text = resolved.read_text()
    shown = subprocess.run([bench.slimpipe, "config", "show", resolved], capture_output=True, text=True, check=True)
    same(values_of(shown.stdout), values_of(text), "values of `config show` of the run's config.yaml")
    for value in ("  pipeline: 2", "  limit: 1GiB", "  slices: 4", r'  train: "' + str(bench.folder)
                  + r'/to \"kens\": #1"'):
        check(value in values_of(text), f"{value!r} is not in\n{text}")
    for line, origin in (("  pipeline: 2", "--set"), ("  slices: 4", f"{bench.folder}/run.yaml:3"),
                         ("  beta2: 0.95", "default")):
        check(re.search(rf"^{re.escape(line)} +# {re.escape(origin)}$", text, re.MULTILINE),
              f"expected {line!r} from {origin!r} in\n{text}")
    bench.run("second", configuration=resolved)
    same(values_of((bench.folder / "second" / "config.yaml").read_text()), values_of(text), "config.yaml")
    same(bench.numbers("second"), bench.numbers("first"), "numbers")
    check(bench.checkpoint("second") == bench.checkpoint("first"), "parameters differ")


def run_folder_holds_the_documented_files(bench):
    patterns = {}
    for (name, _) in table_after("## What a run writes"):
        name = name.strip(" `")
        patterns[name] = re.escape(name).replace("NNNNNNNN", r"\d{8}").replace("N", r"\d+") + (
            r"[\w.-]+" if name.endswith("/") else "")

    def documented(name):
        folder = bench.folder / name
        files = [str(path.relative_to(folder)) for path in folder.rglob("*")
                 if path.is_file()]
        found = {}
        for file in files:
            matches = [row for row, pattern in patterns.items() if re.fullmatch(pattern, file)]
            same(len(matches), 1, f"{name}: rows of README's table that describe {file}")
            found.setdefault(matches[0], []).append(file)
        return found

    bench.run("whole", processes=2, log__trace="true")
    found = documented("whole")
    same(set(found), set(patterns) - {"failure.json"}, "files of a whole run")
    same(sorted(found["logs/rank-N.log"]), ["logs/rank-0.log", "logs/rank-1.log"], "a log a process")
    for rank in (0, 1):
        log = (bench.folder / f"whole/logs/rank-{rank}.log").read_text()
        check(f"rank {rank} of 2, " in log and "run folder " in log, f"what rank {rank} logged: {log}")
    same(sorted(found["trace-N.json"]), ["trace-0.json", "trace-1.json"], "a trace a process")
    same(sorted(found["checkpoints/step-NNNNNNNN/"]), sorted(
        f"checkpoints/step-{STEPS:08}/{file}" for file in
        ["manifest.json", *(f"device-{device:05}.safetensors" for device in range(DEVICES))]), "a file a device")
    bench.run("unsaved", checkpoint__at_end="false", log__level="warning")
    found = documented("unsaved")
    same(set(found), set(patterns) - {"failure.json", "trace-N.json", "checkpoints/step-NNNNNNNN/"},
         "files of a run that saves nothing")
    same((bench.folder / "unsaved/logs/rank-0.log").read_text(), "", "log of a run that has nothing to warn of")
    bench.run("failed", status=1, training__lr=3e38, training__lr_schedule="constant")
    check("failure.json" in documented("failed"), "a failed run has no failure.json")


TRACED = {"parallel__pipeline": 2, "log__trace": "true", "log__trace_step": 2}
CHUNK_LAYERS = LAYERS // 2
ROUNDING_US = 0.0015  # start and duration are written in whole nanoseconds


def trace_events(bench, name, processes):
    """Events of all trace files of a run, after what every event of the format must have is checked."""
    events = []
    for rank in range(max(1, processes)):
        trace = json.loads((bench.folder / name / f"trace-{rank}.json").read_text())
        check(isinstance(trace, dict) and isinstance(trace["traceEvents"], list), "not the JSON object form")
        for event in trace["traceEvents"]:
            check(isinstance(event["name"], str) and event["name"] and len(event["ph"]) == 1, f"{event}")
            same(event["pid"], rank, f"process of {event}")
            check(isinstance(event["tid"], int), f"{event}")
            if event["ph"] == "X":
                check(event["ts"] > 0 and event["dur"] >= 0 and event["cat"], f"{event}")
            events.append(event)
    return events


def compute_steps(kind, stage):
    """What an action of a stage of two computes, in order."""
    if kind == "F":
        steps = ["embed"] if stage == 0 else []
        for layer in range(CHUNK_LAYERS):
            steps += [f"{part}, layer {layer}" for part in ("pre-attention", "attention", "post-attention")]
        return steps + (["loss"] if stage == 1 else [])
    steps = []
    for layer in reversed(range(CHUNK_LAYERS)):
        steps += [f"{part} backward, layer {layer}"
                  for part in ("post-attention", "attention", "pre-attention", "weight")]
    return steps + (["embed backward"] if stage == 0 else []) + ["release slice"]


def scheduled_actions(bench):
    """Of each device, as `slimpipe schedule` lists them."""
    run = subprocess.run([bench.slimpipe, "schedule", "--kind", "slimpipe", "--pipeline", "2", "--microbatches",
                          str(MICROBATCHES), "--slices", "4", "--format", "json"],
                         capture_output=True, text=True, check=True)
    return json.loads(run.stdout)["devices"]


AFTER_THE_PROGRAM = [("squares of the gradients", "optimizer"),
                     ("sum of losses and gradient norms over the devices", "reduction"),
                     ("update of the parameters", "optimizer"), ("sum of the devices' reports", "reduction")]


def check_messages(events):
    """Each message is one span at its sender and one at its receiver, and none arrives before it is sent."""
    spans = {}
    for event in events:
        if event.get("cat") == "message":
            key = (event["name"], event["pid"], event["tid"], event["id"])
            ends = spans.setdefault(key, {})
            check(event["ph"] not in ends, f"twice: {event}")
            ends[event["ph"]] = event["ts"]
    times = {}
    for (name, _, device, _), ends in spans.items():
        same(set(ends), {"b", "e"}, f"ends of {name}")
        check(ends["b"] <= ends["e"] + ROUNDING_US, f"{name} ends before it begins")
        check((name, device) not in times, f"{name} is there twice on device {device}")
        times[name, device] = (ends["b"], ends["e"])
    slices = [f"0.{m}.{s}" for m in range(MICROBATCHES) for s in range(4)]
    expected = {(f"{way} activation F{s}", device) for s in slices for way, device in (("send", 0), ("receive", 1))}
    expected |= {(f"{way} gradient B{s}", device) for s in slices for way, device in (("send", 1), ("receive", 0))}
    same(set(times), expected, "messages")
    for (name, device), (posted, _) in times.items():
        if name.startswith("send"):
            _, arrived = times[name.replace("send", "receive"), 1 - device]
            check(arrived + ROUNDING_US >= posted, f"{name} arrives {posted - arrived} us before it is sent")


def trace_shows_every_action_once(bench):
    actions = scheduled_actions(bench)
    same(len(actions[0]), 2 * MICROBATCHES * 4, "actions of a device")
    for name, processes in (("one", 0), ("two", 2)):
        bench.run(name, processes=processes, **TRACED)
        events = trace_events(bench, name, processes)
        names = [(event["name"], event["pid"], event["tid"], event["args"]["name"])
                 for event in events if event["ph"] == "M"]
        rank_of = [0, 1] if processes else [0, 0]
        for device in (0, 1):
            for title in (("thread_name", rank_of[device], device, f"device {device}"),
                          ("process_name", rank_of[device], 0, f"process {rank_of[device]}")):
                same(names.count(title), 1, f"{title} in {names}")
            own = sorted((event for event in events if event["ph"] == "X" and event["tid"] == device),
                         key=lambda event: (event["ts"], event["ts"] + event["dur"]))
            for one, other in zip(own, own[1:]):
                check(one["ts"] + one["dur"] <= other["ts"] + ROUNDING_US, f"{one} overlaps {other}")
            computed = [(event["name"], event["cat"]) for event in own if event["cat"] != "communication"]
            expected = [(f"{kind}{chunk}.{microbatch}.{part} {step}", {"F": "forward", "B": "backward"}[kind])
                        for kind, chunk, stage, microbatch, part in actions[device]
                        for step in compute_steps(kind, stage)]
            same(computed, expected + AFTER_THE_PROGRAM, f"{name}: what device {device} computes, in order")
        check_messages(events)


def trace_shows_the_exchange_of_a_tied_embedding(bench):
    bench.run("tied", model__tied_embeddings="true", **TRACED)
    spans = [(event["name"], event["cat"], event["tid"]) for event in trace_events(bench, "tied", 0)
             if "tied" in event["name"] and event["ph"] != "e"]
    expected = [(f"{way} tied gradients", "message") for way in ("send", "receive")]
    expected += [(f"{verb} {way}: combine tied gradients", "communication")
                 for verb in ("post", "wait") for way in ("send", "receive")]
    expected += [("combine tied gradients", "reduction")]
    same(sorted(spans), sorted((name, category, device) for name, category in expected for device in (0, 1)), "spans")


def no_trace_is_written_unasked(bench):
    bench.run("untraced")
    check(not list((bench.folder / "untraced").glob("trace*")), "a trace that nobody asked for")
    # A resumed run that is past the step has none to write.
    bench.run("parts", training__steps=STEPS // 2)
    resumed = bench.run("parts", "--resume", log__trace="true", log__trace_step=2)
    check("no trace: step 2 (log.trace_step) is done already" in resumed, resumed)
    check(not list((bench.folder / "parts").glob("trace*")), "a trace of a step that was not executed")


if __name__ == "__main__":
    sys.exit(main(
        metrics_hold_the_documented_fields,
        rates_and_bytes_follow_from_the_run,
        summary_agrees_with_the_metrics,
        resolved_configuration_trains_the_same_run,
        run_folder_holds_the_documented_files,
        trace_shows_every_action_once,
        trace_shows_the_exchange_of_a_tied_embedding,
        no_trace_is_written_unasked,
    ))
