#!/usr/bin/env python3
"""What whole runs show while they train: on a terminal, on one that takes no escape sequences, and elsewhere."""
import contextlib
import fcntl
import os
import re
import select
import struct
import subprocess
import sys
import termios
import time

from whole_run import LIMIT_S, STEPS, check, main

COLUMNS = 80
ESCAPE = "\x1b"
CLEAR_LINE = f"\r{ESCAPE}[K"
COLOUR = re.compile(rf"{ESCAPE}\[[\d;]*m")
STEP = re.compile(rf"step (\d+)/{STEPS}  loss \d+\.\d{{4}}  norm \S+  lr \S+  \d+ tok/s  \d+ ms  "
                  r"bubble \d+ %  mfu (\d+ %|n/a)(  validation loss \d+\.\d{4})?")
LOG_LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} (info|warning) \S.*")


def shown_on_a_terminal(bench, name, *, environment, columns=COLUMNS, **options):
    """Everything that a run writes to a terminal of its own; its lines end with a bare newline."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    attributes = termios.tcgetattr(theirs)
    attributes[1] &= ~termios.OPOST  # the terminal adds no carriage returns of its own
    termios.tcsetattr(theirs, termios.TCSANOW, attributes)
    inherited = {key: value for key, value in os.environ.items() if key not in ("TERM", "COLORTERM", "NO_COLOR")}
    run = subprocess.Popen(bench.command(name, **options), stdin=theirs, stdout=theirs, stderr=theirs,
                           env=inherited | environment, start_new_session=True)
    os.close(theirs)
    text = b""
    end = time.monotonic() + LIMIT_S
    try:
        with contextlib.suppress(OSError):  # how a terminal without a writer ends
            while True:
                ready, _, _ = select.select([ours], [], [], max(0, end - time.monotonic()))
                check(ready, f"the run does not end:\n{text.decode()}")
                part = os.read(ours, 4096)
                if not part:
                    break
                text += part
        status = run.wait(LIMIT_S)
    finally:
        if run.poll() is None:
            run.kill()
            run.wait()
        os.close(ours)
    check(status == 0, f"{name}: exit status {status}:\n{text.decode()}")
    return text.decode()


def rows_left(text, columns=COLUMNS):
    """Lines that stand on the terminal in the end. One that is longer than a row goes on in the next, and a
    return leads to the start of the row alone, as on a real one."""
    lines, row, column, at = [""], 0, 0, 0  # `row`: where the current row begins in the last line
    while at < len(text):
        colour = COLOUR.match(text, at)
        if colour:
            at = colour.end()
        elif text.startswith(f"{ESCAPE}[K", at):
            lines[-1] = lines[-1][:row + column]
            at += 3
        else:
            letter = text[at]
            check(letter != ESCAPE, f"an escape sequence that is not known: {text[at:at + 10]!r}")
            at += 1
            if letter == "\n":
                lines.append("")
                row = column = 0
            elif letter == "\r":
                column = 0
            else:
                if column == columns:
                    row, column = row + columns, 0
                lines[-1] = lines[-1][:row + column] + letter + lines[-1][row + column + 1:]
                column += 1
    check(lines.pop() == "", f"the last line is not ended:\n{text!r}")
    return lines


def steps_of(lines):
    return [int(match[1]) for match in map(STEP.fullmatch, lines) if match]


def check_every_line_is_known(lines):
    """Each is one whole line of those a run writes, with nothing before or behind it."""
    known = (r"\d+ parameters, 4 devices \(cpu backend\) in . process(es)?; schedule slimpipe pipeline 4 slices 4 "
             r"microbatches 3 of 32 tokens; fp32", r"run folder /\S+", r"step 0: validation loss \d+\.\d{4}",
             rf"done: {STEPS} steps in \d+\.\d s, loss \d+\.\d{{4}}; see /\S+/summary\.json")
    for line in lines:
        check(any(re.fullmatch(pattern, line) for pattern in (*known, STEP, LOG_LINE)),
              f"not a line of a run: {line!r}")
    for pattern in known:
        check(sum(bool(re.fullmatch(pattern, line)) for line in lines) == 1, f"not there once: {pattern}")


def progress_on_a_terminal_rewrites_one_line(bench):
    text = shown_on_a_terminal(bench, "seen", environment={"TERM": "xterm"})
    rewritten = text.split(CLEAR_LINE)[1:]
    check(len(rewritten) == STEPS, f"rewritten {len(rewritten)} times:\n{text!r}")
    for step, part in enumerate(rewritten, 1):
        check(part.startswith(f"step {step}/{STEPS}  loss "), f"step {step} is shown as {part!r}")
        if step % 4:  # no validation
            check(len(part) < COLUMNS, f"{part!r} does not fit into a row of {COLUMNS}")
    check("\r" not in text.replace(CLEAR_LINE, ""), f"a return without a cleared line:\n{text!r}")
    lines = rows_left(text)
    check_every_line_is_known(lines)
    # What is of more than passing interest stays: steps with a validation.
    check(steps_of(lines) == [4, STEPS], f"left on the terminal:\n{lines}")
    # A terminal with room is given the whole line.
    text = shown_on_a_terminal(bench, "wide", environment={"TERM": "xterm"}, columns=200)
    check_every_line_is_known(rows_left(text, 200))
    for part in text.split(CLEAR_LINE)[1:4]:
        check(STEP.fullmatch(part), f"cut where there is room: {part!r}")


def log_lines_do_not_run_into_the_progress_line(bench):
    wide = 200
    lines = rows_left(shown_on_a_terminal(bench, "seen", environment={"TERM": "xterm"}, columns=wide,
                                          checkpoint__every=3), wide)
    check_every_line_is_known(lines)
    saved = [index for index, line in enumerate(lines) if LOG_LINE.fullmatch(line)]
    check(len(saved) == 3, f"steps 3, 6 and {STEPS} are saved:\n{lines}")
    for index, step in zip(saved, (3, 6, STEPS)):
        check(lines[index].endswith(f"checkpoints/step-{step:08}"), lines[index])
        check(lines[index - 1].startswith(f"step {step}/"), f"before the log's line: {lines[index - 1]!r}")


def check_plain(text, steps):
    check(ESCAPE not in text and "\r" not in text, f"control characters:\n{text!r}")
    lines = text.splitlines()
    check_every_line_is_known(lines)
    check(steps_of(lines) == list(steps), f"expected the steps {steps}:\n{text}")


def terminal_that_takes_no_escapes_gets_plain_lines(bench):
    for name, environment in (("dumb", {"TERM": "dumb", "COLORTERM": "truecolor"}), ("empty", {"TERM": ""}),
                              ("unset", {})):
        check_plain(shown_on_a_terminal(bench, name, environment=environment, log__every=3), (3, 4, 6, STEPS))


def colour_is_left_out_where_it_is_not_wanted(bench):
    def shown(name, **environment):
        return shown_on_a_terminal(bench, name, environment={"TERM": "xterm-256color", **environment})

    check(COLOUR.search(shown("colour")), "no colour where it could be")
    check(COLOUR.search(shown("empty", NO_COLOR="")), "an empty NO_COLOR is none")
    text = shown("plain", NO_COLOR="1")
    check(not COLOUR.search(text), f"colour in spite of NO_COLOR:\n{text!r}")
    check(text.count(CLEAR_LINE) == STEPS, "the line is rewritten without colour as well")


def progress_elsewhere_is_plain_lines(bench):
    check_plain(bench.run("file"), range(1, STEPS + 1))  # the bench keeps output in files
    run = subprocess.run(bench.command("pipe", log__every=5), capture_output=True, text=True, timeout=LIMIT_S,
                         check=True, env=os.environ | {"TERM": "xterm", "COLORTERM": "truecolor"})
    check_plain(run.stdout + run.stderr, (4, 5, STEPS))
    check(LOG_LINE.fullmatch(run.stderr.strip()), f"on standard error: {run.stderr!r}")
    # mpirun gives its processes terminals of its own, whatever its output is.
    check_plain(bench.run("mpi", processes=2), range(1, STEPS + 1))
    check_plain(shown_on_a_terminal(bench, "shown", environment={"TERM": "xterm"}, processes=2),
                range(1, STEPS + 1))


if __name__ == "__main__":
    sys.exit(main(
        progress_on_a_terminal_rewrites_one_line,
        log_lines_do_not_run_into_the_progress_line,
        terminal_that_takes_no_escapes_gets_plain_lines,
        colour_is_left_out_where_it_is_not_wanted,
        progress_elsewhere_is_plain_lines,
    ))
