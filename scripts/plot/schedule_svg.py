#!/usr/bin/env python3
"""Prints the README's picture as SVG: 1F1B above SlimPipe on one time axis, and below each the activations that
its first device holds. The actions are those that `slimpipe schedule` prints.

    scripts/plot/schedule_svg.py > scripts/plot/schedule.svg
"""
import argparse
import json
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FORWARD = ("#9ecae9", "#ffcf9e", "#a9dca3", "#d6b8e6")  # by microbatch
BACKWARD = ("#3f7fb5", "#e08214", "#4c9a45", "#8e5bab")
WIDTH, LEFT, ROW, MEMORY, TITLE, GAP = 960, 78, 22, 64, 26, 22


def load(binary, kind, options, slices, forward):
    """The schedule's JSON; a sequence's forward takes `options.slices` units whatever it is cut into."""
    command = [binary, "schedule", "--format", "json", "--kind", kind, "--slices", str(slices),
               "--pipeline", str(options.pipeline), "--microbatches", str(options.microbatches),
               "--cost", f"{forward},{2 * forward}"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def time_line(schedule, forward):
    """[device] -> [(start, end, kind, microbatch, slice)]: each action as soon as its device is free and its
    input is there. The end must be the makespan that the program itself gives."""
    stages = schedule["p"] * schedule["v"]
    ended, clock = {}, [0.0] * schedule["p"]
    lines = [[] for _ in clock]
    while sum(map(len, lines)) < sum(map(len, schedule["devices"])):
        for device, actions in enumerate(schedule["devices"]):
            while len(lines[device]) < len(actions):
                kind, _, stage, microbatch, part = actions[len(lines[device])]
                source = stage + (-1 if kind == "F" else 1)
                needed = (kind, source, microbatch, part)
                if 0 <= source < stages and needed not in ended:
                    break
                start = max(clock[device], ended.get(needed, 0.0))
                end = start + forward * (1 if kind == "F" else 2)
                clock[device] = ended[kind, stage, microbatch, part] = end
                lines[device].append((start, end, kind, microbatch, part))
    if max(clock) != schedule["makespan"]:
        raise SystemExit(f"{schedule['name']}: drawn {max(clock)}, simulated {schedule['makespan']}")
    return lines


def held(line, unit):
    """Activations over time, [(time, units of one microbatch on this device)]: a slice counts from its
    forward's start to its backward's end."""
    changes = sorted([(a[0], 1) for a in line if a[2] == "F"] + [(a[1], -1) for a in line if a[2] == "B"])
    level, steps = 0, []
    for time, change in changes:
        level += change
        steps.append((time, level * unit))
    return steps


def text(x, y, content, size=13, weight="normal", anchor="start"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}" '
            f'text-anchor="{anchor}" fill="#222">{content}</text>')


def panel(title, schedule, lines, top, scale):
    """SVG of one schedule; returns (elements, bottom)."""
    peak = schedule["peak"][0] / (schedule["n"] * schedule["v"])
    out = [text(LEFT, top + 16, f'{title}: {100 * schedule["bubble"]:.1f} % idle, device 0 holds '
                f'{peak:.2f} microbatches at most', 14, "bold")]
    top += TITLE
    for device, line in enumerate(lines):
        y = top + device * ROW
        out.append(text(LEFT - 8, y + 15, f"device {device}", anchor="end"))
        out.append(f'<rect x="{LEFT}" y="{y}" width="{WIDTH - LEFT - 10}" height="{ROW - 3}" fill="#eee"/>')
        for start, end, kind, microbatch, _ in line:
            colour = (FORWARD if kind == "F" else BACKWARD)[microbatch % len(FORWARD)]
            out.append(f'<rect x="{LEFT + start * scale:.2f}" y="{y}" width="{(end - start) * scale:.2f}" '
                       f'height="{ROW - 3}" fill="{colour}" stroke="#fff" stroke-width="0.6"/>')
    top += len(lines) * ROW + 4
    unit = (MEMORY - 8) / schedule["m"]
    base = top + MEMORY
    out.append(text(LEFT - 8, base - MEMORY / 2, "held by", anchor="end"))
    out.append(text(LEFT - 8, base - MEMORY / 2 + 15, "device 0", anchor="end"))
    path = [f"M {LEFT} {base}"]
    for time, level in held(lines[0], 1 / (schedule["n"] * schedule["v"])):
        path.append(f"H {LEFT + time * scale:.2f} V {base - level * unit:.2f}")
    out.append(f'<path d="{" ".join(path)} Z" fill="#bbb" stroke="#666" stroke-width="1"/>')
    for level in range(1, schedule["m"] + 1):
        y = base - level * unit
        out.append(f'<path d="M {LEFT} {y:.2f} H {WIDTH - 10}" stroke="#999" stroke-dasharray="2 4"/>')
        out.append(text(WIDTH - 6, y + 4, str(level), 11))
    return out, base + GAP


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--binary", default=str(ROOT / "build" / "slimpipe"))
    parser.add_argument("--pipeline", type=int, default=4)
    parser.add_argument("--microbatches", type=int, default=4)
    parser.add_argument("--slices", type=int, default=8)
    options = parser.parse_args()

    panels = []
    for title, kind, slices in (("1F1B", "1f1b", 1), (f"SlimPipe, {options.slices} slices", "slimpipe",
                                                      options.slices)):
        forward = options.slices // slices
        schedule = load(options.binary, kind, options, slices, forward)
        panels.append((title, schedule, time_line(schedule, forward)))
    scale = (WIDTH - LEFT - 10) / max(schedule["makespan"] for _, schedule, _ in panels)
    elements, top = [], 6
    for title, schedule, lines in panels:
        drawn, top = panel(title, schedule, lines, top, scale)
        elements += drawn
    elements.append(text(LEFT, top + 2, "Time runs to the right. A colour is a microbatch, light its forward, "
                         "dark its backward; grey is idle."))
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH + 12} {top + 14}" '
          f'font-family="sans-serif">\n<rect width="100%" height="100%" fill="#fff"/>')
    print("\n".join(elements))
    print("</svg>")


if __name__ == "__main__":
    main()
