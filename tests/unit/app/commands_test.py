#!/usr/bin/env python3
"""Right uses of the commands that train nothing: what they print, and that it is right.

Usage: commands_test.py PROGRAM
"""
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM = ""
ROOT = Path(__file__).resolve().parents[3]
KINDS = ("gpipe", "1f1b", "terapipe", "slimpipe")


def output_of(*arguments):
    """Standard output of a use that succeeds without a word on standard error."""
    result = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=30,
                            check=False, cwd=ROOT)
    if result.returncode != 0 or result.stderr:
        raise AssertionError(f"{arguments}: exit status {result.returncode}, on stderr: {result.stderr}")
    return result.stdout


class Help(unittest.TestCase):
    def commands(self, *command):
        """Every command with its --help, as they list one another."""
        text = output_of(*command, "--help")
        listed = text.partition("\nSubcommands:\n")[2].partition("\n\n")[0]
        below = re.findall(r"^  (\S+)", listed, re.MULTILINE)
        yield command, text
        for name in below:
            yield from self.commands(*command, name)

    def test_every_command_is_listed(self):
        self.assertEqual([" ".join(command) for command, _ in self.commands()], [
            "", "train", "data", "data prepare", "data inspect", "config", "config show", "config validate",
            "config reference", "schedule", "plan", "bench", "bench gemm", "bench attention", "bench step",
            "bench pipeline", "bench exchange"])

    def test_every_option_is_explained(self):
        for command, text in self.commands():
            entries = re.findall(r"^  (-\S.*?)(?:  +|$)(.*)", text.partition("\nOptions:\n")[2].partition("\n\n")[0],
                                 re.MULTILINE)
            with self.subTest(command=command):
                self.assertIn("-h,--help", [option for option, _ in entries])
                for option, meaning in entries:
                    self.assertRegex(meaning, r"\w{2,}", f"{option} is not explained")

    def test_every_command_has_an_example_that_parses(self):
        for command, text in self.commands():
            if "\nSubcommands:\n" in text:
                continue
            name = " ".join(("slimpipe", *command))
            examples = [line.strip() for line in text.splitlines() if line.startswith((f"  {name} ", "  mpirun"))]
            with self.subTest(command=name):
                self.assertTrue(examples, text)
                for example in examples:
                    used = set(re.findall(r" (--[\w-]+)", example.partition(name)[2]))
                    self.assertLessEqual(used, set(re.findall(r"--[\w-]+", text.partition("Options:")[2])), example)

    def test_examples_of_what_needs_no_other_file_run(self):
        ran = 0
        for command, text in self.commands():
            if command[:1] not in (("schedule",), ("config",), ("plan",)):
                continue
            for example in re.findall(r"^  slimpipe (.*)", text, re.MULTILINE):
                words = shlex.split(example.partition(" | ")[0])
                self.assertTrue(output_of(*words), example)
                ran += 1
        self.assertGreaterEqual(ran, 6)


class Output(unittest.TestCase):
    def test_output_that_cannot_be_written_is_a_failure(self):
        with tempfile.TemporaryDirectory(prefix="slimpipe-") as folder:
            text = Path(folder) / "a.txt"
            text.write_text("abc")
            for command in (["--help"], ["--version"], ["train", "--help"], ["schedule", "--help"],
                            ["config", "show", "configs/quickstart.yaml"],
                            ["config", "validate", "configs/quickstart.yaml"], ["config", "reference"],
                            ["schedule"], ["schedule", "--format", "json"],
                            ["data", "prepare", "-o", f"{folder}/t", str(text)], ["data", "inspect", f"{folder}/t"],
                            ["bench", "gemm", "--repeats", "1", "--hidden", "64", "--sequence-length", "64"]):
                with self.subTest(command=command), open("/dev/full", "wb") as full:
                    result = subprocess.run([PROGRAM, *command], stdout=full, stderr=subprocess.PIPE, text=True,
                                            timeout=30, check=False, cwd=ROOT)
                    self.assertEqual((result.returncode, result.stderr), (
                        1, "slimpipe: standard output could not be written: No space left on device\n"))


def bubble(kind, p, m, n):
    """Idle share of the step at equal costs, as README has it; one model chunk a device."""
    return (p - 1) / (m * (n if kind in ("terapipe", "slimpipe") else 1) + p - 1)


def peak(kind, p, m, n, slope):
    """Slices whose activations the first device holds at most, as README has it."""
    return {"gpipe": m, "1f1b": min(m, p), "terapipe": m * n, "slimpipe": min(m * n, n + slope * (p - 1))}[kind]


class Schedule(unittest.TestCase):
    def sizes(self):
        for kind in KINDS:
            for p, m, n in ((1, 1, 1), (2, 3, 4), (4, 2, 8), (4, 6, 4)):
                yield kind, p, m, n if kind in ("terapipe", "slimpipe") else 1

    def options(self, kind, p, m, n):
        return ["schedule", "--kind", kind, "--pipeline", p, "--microbatches", m, "--slices", n]

    def test_the_json_has_every_action_and_the_closed_forms(self):
        for kind, p, m, n in self.sizes():
            with self.subTest(kind=kind, p=p, m=m, n=n):
                schedule = json.loads(output_of(*self.options(kind, p, m, n), "--format", "json"))
                self.assertEqual({key: schedule[key] for key in ("name", "p", "v", "m", "n", "placement", "split_w")},
                                 {"name": kind, "p": p, "v": 1, "m": m, "n": n, "placement": "loop",
                                  "split_w": False})
                self.assertEqual(schedule["stage_of"], [[stage] for stage in range(p)])
                for device, actions in enumerate(schedule["devices"]):
                    self.assertEqual(sorted(map(tuple, actions)), sorted(
                        (what, 0, device, microbatch, part)
                        for what in "FB" for microbatch in range(m) for part in range(n)))
                self.assertAlmostEqual(schedule["bubble"], bubble(kind, p, m, n), places=12)
                self.assertAlmostEqual(schedule["makespan"], 3 * (m * n + p - 1), places=9)
                self.assertEqual(schedule["peak"][0], peak(kind, p, m, n, 2))

    def test_the_drawing_says_the_same_as_the_json(self):
        for kind, p, m, n in self.sizes():
            with self.subTest(kind=kind, p=p, m=m, n=n):
                options = self.options(kind, p, m, n)
                schedule = json.loads(output_of(*options, "--format", "json"))
                lines = output_of(*options, "--width", 100000).splitlines()
                self.assertRegex(lines[0], rf"^{kind}: {p} devices?, {m} microbatch(es)?( of {n} slices)?\b")
                for device, actions in enumerate(schedule["devices"]):
                    drawn = re.findall(r"[FB][\d.]*\d", lines[1 + device])
                    self.assertEqual(drawn, [f"{what}{microbatch}" + (f".{part}" if n > 1 else "")
                                             for what, _, _, microbatch, part in actions])
                self.assertEqual(lines[1 + p], f"bubble {100 * schedule['bubble']:.2f} %, "
                                               f"makespan {schedule['makespan']:g}")
                peaks = " ".join(map(str, schedule["peak"]))
                self.assertTrue(lines[2 + p].startswith(f"peak slices in flight: {peaks}; worst device: "), lines)

    def test_slices_are_those_of_the_kind_where_none_are_given(self):
        for kind in KINDS:
            schedule = json.loads(output_of("schedule", "--kind", kind, "--format", "json"))
            self.assertEqual(schedule["n"], 8 if kind in ("terapipe", "slimpipe") else 1)

    def test_costs_and_latency_count(self):
        options = [*self.options("1f1b", 2, 3, 1), "--format", "json"]

        def makespan(*more):
            return json.loads(output_of(*options, *more))["makespan"]

        self.assertEqual(makespan(), 12)
        self.assertEqual(output_of(*options, "--cost", "1,2"), output_of(*options))
        self.assertEqual(makespan("--cost", "10,20"), 120)
        self.assertEqual(makespan("--cost", "1,1"), 8)
        self.assertEqual(makespan("--cost", "2,1"), 12)
        # One sequence through two devices: two forwards, two backwards, a message each way.
        lone = [*self.options("gpipe", 2, 1, 1), "--format", "json", "--cost", "3,5", "--latency", "0.5"]
        self.assertEqual(json.loads(output_of(*lone))["makespan"], 2 * 3 + 2 * 5 + 2 * 0.5)

    def test_the_drawing_of_the_readme_is_drawn(self):
        readme = (ROOT / "README.md").read_text(encoding="utf-8")
        command, drawing = re.search(r"\$ build/slimpipe (schedule .*)\n((?:.+\n)+)```", readme).groups()
        self.assertEqual(output_of(*shlex.split(command)), drawing)

    def test_the_picture_of_the_readme_is_drawn(self):
        picture = ROOT / "scripts/plot/schedule.svg"
        drawn = subprocess.run([sys.executable, picture.with_name("schedule_svg.py"), "--binary", PROGRAM],
                               capture_output=True, text=True, timeout=30, check=True).stdout
        self.assertEqual(drawn, picture.read_text(), f"draw it again: scripts/plot/schedule_svg.py > {picture}")


CONFIGURATION = """\
model:
  preset: tiny
  ffn: 512
data: {sequence_length: 256}
training:
  lr: 1e-3
"""


class Configuration(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="slimpipe-")
        self.addCleanup(folder.cleanup)
        self.file = Path(folder.name) / "run.yaml"
        self.file.write_text(CONFIGURATION, encoding="utf-8")

    def test_show_tells_each_value_and_where_it_came_from(self):
        text = output_of("config", "show", self.file, "--set", "schedule.slices=4", "--set", "training.lr=2e-3")
        for key, value, origin in (("hidden", "256", "preset tiny"), ("ffn", "512", f"{self.file}:3"),
                                   ("sequence_length", "256", f"{self.file}:4"), ("slices", "4", "--set"),
                                   ("lr", "0.002", "--set"), ("pipeline", "1", "default"),
                                   ("preset", "tiny", f"{self.file}:2")):
            self.assertRegex(text, rf"(?m)^  {key}: {value} +# {re.escape(origin)}$")
        # It is a configuration itself.
        again = self.file.with_name("again.yaml")
        again.write_text(text, encoding="utf-8")

        def values(shown):
            return [line.rpartition("  # ")[0].rstrip() for line in shown.splitlines()]

        self.assertEqual(values(output_of("config", "show", again)), values(text))

    def test_show_has_every_key_of_the_reference(self):
        keys = re.findall(r"^\| `((?:\w+\.)+(\w+))` \|", output_of("config", "reference"), re.MULTILINE)
        self.assertGreater(len(keys), 50)
        shown = re.findall(r"^ +(?:# )?(\w+): .*#", output_of("config", "show", self.file), re.MULTILINE)
        self.assertEqual(sorted(shown), sorted(name for _, name in keys))

    def test_validate_says_valid(self):
        self.assertEqual(output_of("config", "validate", self.file), f"{self.file}: valid\n")

    def test_the_files_of_the_repository_are_valid(self):
        files = sorted((ROOT / "configs").glob("*.yaml"))
        self.assertGreaterEqual(len(files), 3)
        for file in files:
            self.assertEqual(output_of("config", "validate", file), f"{file}: valid\n")

    def test_the_reference_is_the_one_of_the_repository(self):
        self.assertEqual(output_of("config", "reference"),
                         (ROOT / "configs/REFERENCE.md").read_text(encoding="utf-8"))


class Data(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="slimpipe-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def prepared(self, documents, tokens, *arguments):
        output = self.folder / "tokens"
        count = f"{documents} document{'' if documents == 1 else 's'}"
        self.assertEqual(output_of("data", "prepare", "--output", output, *arguments),
                         f"{output}: {tokens} tokens in {count}\n")
        return output

    def write(self, name, text):
        (self.folder / name).write_bytes(text.encode())
        return self.folder / name

    def test_text_and_json_lines_become_counted_tokens(self):
        text = self.write("a.txt", "abc\n")
        lines = self.write("b.jsonl", '{"text": "x\\ty"}\n\n{"id": 7, "text": "\\u00e9"}\n{"text": ""}\n')
        # Bytes of a document and its end: 4 + 1, 3 + 1, 2 + 1; the blank line and the empty document are none.
        output = self.prepared(3, 12, text, lines)
        self.assertEqual(output_of("data", "inspect", output),
                         f"{output}\n"
                         "  tokens      12\n"
                         "  documents   3 (shortest 3, mean 4.0, longest 5 tokens)\n"
                         "  vocabulary  257 (bytes and the end of a document)\n"
                         "  document 0 (5 tokens): abc\\n<|end|>\n"
                         "  document 1 (4 tokens): x\\ty<|end|>\n"
                         "  document 2 (3 tokens): \u00e9<|end|>\n")
        shown = output_of("data", "inspect", output, "--samples", 1)
        self.assertIn("  document 0 ", shown)
        self.assertNotIn("  document 1 ", shown)

    def test_a_long_document_is_shown_in_part(self):
        output = self.prepared(1, 1001, self.write("long.txt", "y" * 1000))
        self.assertTrue(output_of("data", "inspect", output).endswith(
            "  document 0 (1001 tokens): " + "y" * 64 + " ...\n"))

    def test_format_and_key_are_as_asked_for(self):
        line = '{"body": "four", "text": "no"}\n'
        file = self.write("c.txt", line)
        self.prepared(1, 3, "--format", "jsonl", file)
        self.prepared(1, 5, "--format", "jsonl", "--text-key", "body", file)
        self.prepared(1, len(line) + 1, file)
        self.prepared(1, len(line) + 1, "--format", "text", self.write("d.jsonl", line))


RATE = r"\d+\.\d"
RATIO = r"\d+\.\d\d"


class Bench(unittest.TestCase):
    """That the benchmarks run and print what they promise, at sizes that measure nothing."""

    def rows(self, text, *headings):
        """Cells by heading of the table that has them all."""
        lines = text.splitlines()
        for at, line in enumerate(lines):
            titles = re.split(r"  +", line.strip())
            if set(headings) <= set(titles):
                rows = []
                for row in lines[at + 1:]:
                    cells = re.split(r"  +", row.strip())
                    if len(cells) != len(titles):
                        break
                    rows.append(dict(zip(titles, cells)))
                self.assertTrue(rows, text)
                return rows
        self.fail(f"no table with {headings} in\n{text}")

    def test_gemm(self):
        text = output_of("bench", "gemm", "--repeats", 1, "--hidden", 64, "--sequence-length", 64, "--dtype", "fp32")
        rates = ("forward GF/s", "d input GF/s", "d weight GF/s")
        rows = self.rows(text, "product", "T x out x in", *rates)
        self.assertEqual([row["product"] for row in rows], ["qkv", "attention output", "gate and up", "down"])
        self.assertEqual([row["T x out x in"] for row in rows],
                         ["64 x 192 x 64", "64 x 64 x 64", "64 x 512 x 64", "64 x 64 x 256"])
        for row in rows:
            for rate in rates:
                self.assertRegex(row[rate], rf"^{RATE}$")
        self.assertRegex(text, rf"fp32 in all: {RATE} GF/s, peak of multiply-adds {RATE} GF/s, ratio {RATIO}")
        self.assertNotIn("bf16", text)
        both = output_of("bench", "gemm", "--repeats", 1, "--hidden", 64, "--sequence-length", 64)
        self.assertRegex(both, rf"fp32 in all: {RATE} GF/s")
        self.assertRegex(both, rf"bf16 in all: {RATE} GF/s")

    def test_attention(self):
        text = output_of("bench", "attention", "--repeats", 1, "--sequence-length", 64)
        rates = ("forward GF/s", "backward GF/s", "FMA GF/s", "GEMM GF/s")
        rows = self.rows(text, "type", "head size", "K,V blocks", "of FMA", "of GEMM", *rates)
        self.assertEqual([(row["type"], row["head size"], row["K,V blocks"]) for row in rows],
                         [(dtype, size, blocks) for dtype in ("fp32", "bf16") for size in ("64", "128")
                          for blocks in ("1", "8")])
        for row in rows:
            for rate in rates:
                self.assertRegex(row[rate], rf"^{RATE}$")

    def test_step(self):
        sizes = ("--repeats", 2, "--hidden", 64, "--sequence-length", 64)
        output_of("bench", "step", *sizes, "--layers", 3)
        text = output_of("bench", "step", *sizes)
        for dtype in ("fp32", "bf16"):
            self.assertRegex(text, rf"{dtype} step, 2 layers, hidden 64, sequence 64, head size 64: {RATE} GF/s of "
                                   rf"model FLOPs, \d+ tokens/s \(2 repeats\)\n  matrix products alone {RATE} GF/s, "
                                   rf"ratio {RATIO}")
        self.assertRegex(text, rf"peak of multiply-adds {RATE} GF/s, ratio {RATIO}")
        self.assertEqual(len(re.findall(r"^  peak tensor memory \d+\.\d MiB$", text, re.MULTILINE)), 2)
        lines = [json.loads(line) for line in output_of("bench", "step", *sizes, "--slices", 4, "--recompute",
                                                        "selective", "--format", "json").splitlines()]
        self.assertEqual([line["dtype"] for line in lines], ["fp32", "bf16"])
        for line in lines:
            self.assertEqual((line["benchmark"], line["layers"], line["hidden"], line["sequence_length"],
                              line["slices"], line["recompute"]), ("step", 2, 64, 64, 4, "selective"))
            self.assertEqual((len(line["tokens_per_second"]), len(line["gemm_flops_per_second"])), (2, 2))
            self.assertGreater(min(*line["tokens_per_second"], *line["gemm_flops_per_second"]), 0)
            self.assertGreater(line["peak_bytes"], 0)
            self.assertAlmostEqual(line["first_loss"], 5.549, delta=0.1)  # ln 257

    def test_pipeline(self):
        command = ("bench", "pipeline", "--repeats", 1, "--hidden", 64, "--sequence-length", 64)
        cores = os.sched_getaffinity(0)
        alone = subprocess.run([PROGRAM, *map(str, command)], capture_output=True, text=True, timeout=60, check=False,
                               preexec_fn=lambda: os.sched_setaffinity(0, {min(cores)}))
        self.assertEqual((alone.returncode, alone.stdout, alone.stderr), (1, "", "slimpipe: two devices need two cores, "
                                                                          "and this process may use one\n"))
        if len(cores) < 2:
            self.skipTest("this process may use one core")
        text = output_of(*command)
        self.assertRegex(text, r"executor: -?\d+\.\d+ % .* of the busier device's time is neither compute nor waiting")
        counts = ("ms a step", "tokens/s", "peak MiB of a device")
        rows = self.rows(text, "layout", "bubble", *counts)
        self.assertEqual([row["layout"] for row in rows],
                         ["one device", "1f1b, 2 devices", "slimpipe, 2 devices, 8 slices"])
        for row in rows:
            for count in counts:
                self.assertRegex(row[count], r"^\d+$")
            self.assertRegex(row["bubble"], r"^\d+ %$")
        self.assertRegex(text, rf"slimpipe over 1f1b: {RATIO} .*; over one device: {RATIO} ")

    def test_exchange(self):
        if len(os.sched_getaffinity(0)) < 2:
            self.skipTest("this process may use one core")
        text = output_of("bench", "exchange", "--repeats", 1, "--hidden", 64, "--sequence-length", 2048)
        self.assertRegex(text, r"two devices, two sequences, 8 slices; attention is \d+ % of a layer's FLOPs")
        rows = self.rows(text, "layout", "bubble", "ms a step", "tokens/s", "peak MiB of a device")
        self.assertEqual([row["layout"] for row in rows],
                         ["1f1b", "slimpipe", "slimpipe, balanced, late", "slimpipe, balanced"])
        for slower in ("1f1b", "slimpipe without exchange", "a late exchange"):
            self.assertRegex(text, rf"slimpipe with balanced exchange over {slower}: {RATIO} ")
        bytes_sent = re.findall(r"exchange, (?:late|early): (\d+\.\d) MiB a step, \d+\.\d ms waited", text)
        self.assertEqual(len(bytes_sent), 2)
        self.assertEqual(bytes_sent[0], bytes_sent[1])
        self.assertGreater(float(bytes_sent[0]), 0)


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
