#!/usr/bin/env python3
"""Wrong uses of the program: each ends with status 2 and says on stderr what is wrong and where to read on.

Usage: command_line_test.py PROGRAM
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = ""
SIZED = ["--set", "model.preset=tiny", "--set", "data.sequence_length=256"]


class CommandLine(unittest.TestCase):
    def refused(self, *arguments):
        """stderr of a use that must be refused without output or a trace of an exception."""
        result = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=20, check=False)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertEqual(result.stdout, "")
        self.assertNotIn("terminate", result.stderr)
        return result.stderr

    def test_a_use_without_a_command_lists_the_commands(self):
        self.assertEqual(self.refused(), "slimpipe: expected a command: train, data, config, schedule, plan, bench\n"
                                         "See: slimpipe --help\n")

    def test_a_misspelt_command_is_named_with_the_ones_there_are(self):
        self.assertEqual(self.refused("trian"), "slimpipe: there is no command 'trian'; expected one of: train, "
                                                "data, config, schedule, plan, bench\nSee: slimpipe --help\n")

    def test_a_misspelt_command_of_a_command_points_at_that_ones_help(self):
        self.assertEqual(self.refused("config", "shwo"),
                         "slimpipe config: there is no command 'shwo'; expected one of: show, validate, reference\n"
                         "See: slimpipe config --help\n")

    def test_a_setting_without_a_value_is_named_with_the_form_it_takes(self):
        self.assertEqual(self.refused("config", "show", *SIZED, "--set", "training.steps"),
                         "slimpipe: --set training.steps: expected KEY=VALUE, such as training.steps=100\n")

    def test_a_setting_of_an_unknown_key_is_named(self):
        error = self.refused("config", "show", *SIZED, "--set", "trainig.steps=3")
        self.assertIn("--set trainig.steps=3: unknown key", error)

    def test_a_missing_argument_is_named(self):
        for command in (["train"], ["config", "validate"]):
            name = "slimpipe " + " ".join(command)
            self.assertEqual(self.refused(*command), f"{name}: config is required\nSee: {name} --help\n")

    def test_an_option_without_its_value_is_named(self):
        for command, option in ((["schedule"], "--kind"), (["config", "show"], "--set")):
            name = "slimpipe " + " ".join(command)
            error = self.refused(*command, option)
            self.assertTrue(error.startswith(f"{name}: {option}: "), error)
            self.assertTrue(error.endswith(f"See: {name} --help\n"), error)

    def test_an_unknown_option_is_named_with_the_command_that_lacks_it(self):
        self.assertEqual(self.refused("--frobnicate"),
                         "slimpipe: there is no option '--frobnicate' here\nSee: slimpipe --help\n")
        error = self.refused("schedule", "--frobnicate")
        self.assertTrue(error.startswith("slimpipe schedule: "), error)
        self.assertIn("--frobnicate", error)
        self.assertIn("See: slimpipe schedule --help", error)

    def test_a_benchmark_refuses_options_that_it_would_not_use(self):
        unused = {"gemm": ("--head-size", "--layers", "--slices", "--vocabulary", "--format"),
                  "attention": ("--hidden", "--head-size", "--layers", "--slices", "--format"),
                  "pipeline": ("--dtype", "--slices", "--vocabulary", "--recompute", "--format"),
                  "exchange": ("--dtype", "--vocabulary", "--recompute", "--format")}
        for benchmark, options in unused.items():
            for option in options:
                error = self.refused("bench", benchmark, option, "64")
                self.assertTrue(error.startswith(f"slimpipe bench {benchmark}: "), error)
                self.assertIn(option, error)

    def test_sizes_that_a_benchmark_cannot_have_are_named(self):
        for arguments, problem in ((("gemm", "--hidden", "100"), "--hidden 100: expected a multiple of the head size 64"),
                                   (("step", "--head-size", "12"), "--head-size 12: expected a multiple of 8"),
                                   (("attention", "--sequence-length", "12"), "--sequence-length 12: expected a multiple"),
                                   (("step", "--slices", "3"), "--slices 3: expected a divisor"),
                                   (("exchange", "--slices", "1"), "--slices 1: expected at least 2"),
                                   (("pipeline", "--layers", "3"), "--layers 3: expected a multiple of 2")):
            self.assertIn(problem, self.refused("bench", *arguments))

    def test_a_time_that_sums_cannot_hold_is_refused(self):
        for times in ("1e308,1", "1,inf", "nan,1", "0,1", "1,-1", "1e-320,1", "1,0x10"):
            error = self.refused("schedule", "--cost", times)
            self.assertIn("--cost: expected a number from 1e-100 to 1e+100, found", error)
        for latency in ("1e308", "-1", "nan", "inf"):
            error = self.refused("schedule", "--latency", latency)
            self.assertIn("--latency: expected a number from 0 to 1e+100, found", error)

    def test_the_longest_and_shortest_times_are_drawn_in_numbers(self):
        for times in ("1e100,1e100", "1e-100,1e-100", "1e-100,1e100", "1e100,1e-100"):
            for latency in ("0", "1e100"):
                result = subprocess.run([PROGRAM, "schedule", "--cost", times, "--latency", latency],
                                        capture_output=True, text=True, timeout=20, check=False)
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertRegex(result.stdout, r"bubble [0-9.]+ %, makespan [0-9.]+e[+-][0-9]+")

    def test_a_value_of_another_build_is_named_with_those_of_this_one(self):
        self.assertIn("auto is not available in this build (this build has: 0)",
                      self.refused("config", "show", *SIZED, "--set", "memory.offload=auto"))

    def test_an_output_that_is_no_regular_file_is_not_replaced(self):
        with tempfile.TemporaryDirectory(prefix="slimpipe-") as folder:
            text = os.path.join(folder, "text")
            with open(text, "w", encoding="utf-8") as stream:
                stream.write("some text")
            pipe, link = os.path.join(folder, "pipe"), os.path.join(folder, "link")
            os.mkfifo(pipe)
            os.symlink(os.path.join(folder, "elsewhere"), link)
            for output, what in (("/dev/null", "a device, pipe or socket"), (pipe, "a device, pipe or socket"),
                                 (link, "a symbolic link"), (folder, "a folder")):
                self.assertIn(f"cannot write {output}: it is {what}, and only a regular file is replaced",
                              self.refused("data", "prepare", "-o", output, text))
            self.assertEqual(sorted(os.listdir(folder)), ["link", "pipe", "text"])

    def test_a_configuration_that_is_not_there_is_named(self):
        error = self.refused("train", "/nowhere/run.yaml")
        self.assertTrue(error.startswith("slimpipe: cannot open /nowhere/run.yaml: No such file"), error)

    def test_an_input_that_is_no_regular_file_is_refused_and_not_waited_for(self):
        with tempfile.TemporaryDirectory(prefix="slimpipe-") as folder:
            pipe, tokens = os.path.join(folder, "pipe"), os.path.join(folder, "tokens")
            os.mkfifo(pipe)
            data = ["--set", "training.steps=1", "--set", "data.validation_fraction=0"]
            config = os.path.join(folder, "run.yaml")
            with open(config, "w", encoding="utf-8") as stream:
                stream.write("model:\n  preset: tiny\n")
            for name, what in ((pipe, "a device or pipe"), ("/dev/null", "a device or pipe"), (folder, "a folder")):
                for command in (["config", "show", name], ["config", "validate", name], ["train", name],
                                ["data", "inspect", name], ["data", "prepare", "-o", tokens, name],
                                ["data", "prepare", "--format", "jsonl", "-o", tokens, name],
                                ["train", config, *SIZED, *data, "--set", f"data.train={name}",
                                 "--run-dir", os.path.join(folder, "run")]):
                    self.assertIn(f"cannot open {name}: it is {what}, expected a regular file", self.refused(*command))
            self.assertEqual(sorted(os.listdir(folder)), ["pipe", "run.yaml"])

    def test_an_empty_name_is_refused(self):
        for command, option in ((["train", "x.yaml", "--run-dir", ""], "--run-dir"), (["train", ""], "config"),
                                (["config", "show", ""], "config"), (["config", "validate", ""], "config"),
                                (["data", "inspect", ""], "file"), (["data", "prepare", "-o", "x", "a", ""], "input"),
                                (["data", "prepare", "-o", "", "a"], "--output"),
                                (["data", "prepare", "-o", "x", "--text-key", "", "a"], "--text-key")):
            self.assertIn(f"{option}: expected a name, found an empty text", self.refused(*command))
        for setting in ("", "=3"):
            self.assertIn(f"--set {setting}: expected KEY=VALUE", self.refused("config", "show", *SIZED, "--set", setting))

    def test_a_name_that_would_act_on_the_terminal_is_refused(self):
        for command, option in ((["train", "x.yaml", "--run-dir", "a\nslimpipe: all is well"], "--run-dir"),
                                (["config", "show", "a\x1b[2Jb"], "config"), (["data", "inspect", "a\x7f"], "file")):
            error = self.refused(*command)
            self.assertIn(f"{option}: expected a name of printable characters, found 0x", error)
            self.assertNotIn(command[-1], error)

    def test_a_run_folder_with_too_long_a_name_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            tokens = os.path.join(folder, "tokens")
            subprocess.run([PROGRAM, "data", "prepare", "-o", tokens, __file__], check=True, capture_output=True)
            config = os.path.join(folder, "run.yaml")
            pathlib.Path(config).write_text("training: {steps: 1}\n")
            run = ["train", config, *SIZED, "--set", f"data.train={tokens}", "--run-dir", os.path.join(folder, "n" * 300)]
            self.assertIn("cannot make the run folder", self.refused(*run))
            self.assertIn("--resume: there is no run folder", self.refused(*run, "--resume"))

    def test_a_schedule_too_large_to_build_is_refused(self):
        self.assertEqual(self.refused("schedule", "--slices", "1048576"),
                         "slimpipe: cannot build this schedule: microbatches 2 × slices 1048576 × stages 4 are more "
                         "than the 2097152 a step can have: lower microbatches or slices\n")

    def test_a_right_use_is_not_refused(self):
        for arguments in (["--help"], ["--version"], ["config", "show", *SIZED]):
            result = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=20, check=False)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(result.stderr, "")
            self.assertNotEqual(result.stdout, "")


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
