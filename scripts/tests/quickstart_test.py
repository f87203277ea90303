#!/usr/bin/env python3
"""scripts/quickstart.sh: wrong uses (class Usage), and that it trains, or fails where the model has not learnt.

Training uses the tree's build/ and runs/quickstart.tokens, as the script does; a token file that was there is put
aside and back. The runs are shorter than the quickstart's own, by options that its users have.
"""
import json
import random
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts/quickstart.sh"
TOKENS = ROOT / "runs/quickstart.tokens"
LIMIT_S = 500


class Folder(unittest.TestCase):
    """With a folder to call the script from, which is not the repository's."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="slimpipe-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def call(self, *arguments):
        return subprocess.run([SCRIPT, *arguments], cwd=self.folder, capture_output=True, text=True, check=False,
                              timeout=LIMIT_S, stdin=subprocess.DEVNULL)


class Usage(Folder):
    def test_a_wrong_use_is_named_and_does_nothing(self):
        for arguments, problem in ((["--frobnicate"], "unknown option '--frobnicate'"),
                                   (["--text"], "--text needs at least one file"),
                                   (["--text", "none.txt"], "cannot read the text file 'none.txt'"),
                                   (["--run-dir"], "--run-dir needs a folder"),
                                   (["--run-dir", ""], "--run-dir needs a folder"),
                                   (["--set", "training.steps"], "--set needs KEY=VALUE")):
            result = self.call(*arguments)
            self.assertEqual((result.returncode, result.stdout), (2, ""), arguments)
            self.assertTrue(result.stderr.endswith(f"quickstart: {problem}\n"), result.stderr)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_a_run_folder_is_the_same_with_a_slash_at_its_end(self):
        run = self.folder / "run"
        run.mkdir()
        (run / "metrics.jsonl").write_text("{}\n")
        for name in ("run", "run/", "run/.", f"{run}//"):
            result = self.call("--run-dir", name)
            self.assertEqual((result.returncode, result.stdout), (2, ""), name)
            self.assertTrue(result.stderr.endswith(f"quickstart: {run} holds a run already; give another --run-dir\n"),
                            result.stderr)

    def test_help_names_every_option(self):
        result = self.call("--help")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        for option in ("--text", "--run-dir", "--set", "--no-install", "--help"):
            self.assertRegex(result.stdout, rf"(?m)^  {option}\b.* \w+")


class Training(Folder):
    def setUp(self):
        super().setUp()
        self.addCleanup(self.put_tokens_back, TOKENS.read_bytes() if TOKENS.exists() else None)
        TOKENS.unlink(missing_ok=True)

    @staticmethod
    def put_tokens_back(content):
        if content is None:
            TOKENS.unlink(missing_ok=True)
            return
        aside = TOKENS.with_suffix(".kept")
        aside.write_bytes(content)
        aside.replace(TOKENS)

    def train(self, run, *arguments, steps):
        result = self.call("--no-install", "--run-dir", run, "--set", f"training.steps={steps}", *arguments)
        self.assertIn("== Training\n", result.stdout, result.stderr)
        return result

    def learns(self, run, *arguments):
        """A run that succeeds; its summary."""
        result = self.train(run, *arguments, steps=40)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        folder = self.folder / run
        summary = json.loads((folder / "summary.json").read_text())
        first, last = summary["initial_validation_loss"], summary["final_validation_loss"]
        self.assertLessEqual(last, 0.75 * first)
        self.assertIn(f"\nvalidation loss {first:.3f} -> {last:.3f} in 40 steps, ", result.stdout)
        self.assertIn(f"\nrun folder      {folder}\n", result.stdout)
        for named in ("summary.json", "metrics.jsonl", "config.yaml", "logs", "checkpoints"):
            self.assertIn(named, result.stdout.partition("\nrun folder ")[2])
            self.assertTrue((folder / named).exists(), named)
        return summary

    def fails(self, run, problem, *arguments):
        result = self.train(run, "--set", "training.warmup_steps=0", *arguments, steps=2)
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        self.assertRegex(result.stderr.splitlines()[-1], problem)
        self.assertNotIn("Next, from", result.stdout)

    def test_it_trains_from_any_folder_and_again(self):
        first = self.learns("first")
        words = random.Random(1)
        text = " ".join("".join(words.choices("abcdefgh", k=words.randint(1, 8))) for _ in range(20000))
        (self.folder / "own text.txt").write_text(text, encoding="utf-8")
        second = self.learns("second/", "--text", "own text.txt")  # its tokens lie beside it, slash or not
        self.assertNotEqual(second["final_loss"], first["final_loss"])
        # A run folder is not used twice, and the run in it stays, with its tokens.
        kept = {path: path.read_bytes() for path in (self.folder / "second/metrics.jsonl", self.folder / "second.tokens")}
        again = self.call("--no-install", "--run-dir", "second", "--text", SCRIPT)
        self.assertEqual(again.returncode, 2, again.stderr)
        self.assertIn("holds a run already", again.stderr)
        self.assertEqual({path: path.read_bytes() for path in kept}, kept)
        # Each run goes on with the tokens it was trained on, whatever was trained on since.
        for run, tokens in (("first", TOKENS), ("second", self.folder / "second.tokens")):
            resumed = subprocess.run(
                [ROOT / "build/slimpipe", "train", ROOT / "configs/quickstart.yaml", "--resume", "--run-dir", run,
                 "--set", f"data.train={tokens}", "--set", "training.steps=41"],
                cwd=self.folder, capture_output=True, text=True, check=False, timeout=LIMIT_S)
            self.assertEqual(resumed.returncode, 0, resumed.stderr)

    def test_it_fails_where_the_model_has_not_learnt(self):
        self.fails("idle", r"^quickstart: the model has not learnt: its validation loss is \d\.\d{3}, expected at most "
                           r"\d\.\d{3} ", "--set", "training.lr=1e-9")
        self.fails("blind", r"^quickstart: .*summary\.json has no validation loss .*validation_fraction",
                   "--set", "data.validation_fraction=0")


if __name__ == "__main__":
    unittest.main()
