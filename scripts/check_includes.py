#!/usr/bin/env python3
"""Checks the include direction and the form of the source tree.

Who may use whom is read from the slimpipe_area(... LINK ...) lines of CMakeLists.txt, so there is one truth:
an area includes the public headers of what it links, directly or through PUBLIC links, and the headers of an
external library only where it links that. Headers in src/ are private to their area (tests may look inside);
include/ never looks into src/, and includes the standard headers of what it names. Also: no file named utils,
helpers, common or misc; files over 400 lines are named, over 600 refused; no notes to do something later.
"""
import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

# First part of an external header's path -> the CMake target one must link to include it.
EXTERNAL = {
    "fmt": "fmt::fmt", "spdlog": "spdlog::spdlog", "nlohmann": "nlohmann_json::nlohmann_json",
    "xxhash.h": "xxhash::xxhash", "oneapi": "DNNL::dnnl", "dnnl.hpp": "DNNL::dnnl", "dnnl.h": "DNNL::dnnl",
    "hwy": "hwy::hwy", "omp.h": "OpenMP::OpenMP_CXX", "mpi.h": "MPI::MPI_CXX",
    "yaml-cpp": "yaml-cpp::yaml-cpp", "CLI": "CLI11::CLI11", "catch2": "Catch2::Catch2WithMain",
}
# Standard header -> the names that a public header includes it for.
STANDARD = {
    "array": "array", "atomic": "atomic", "cstddef": "byte|ptrdiff_t|size_t", "cstdint": r"u?int\d+_t",
    "exception": "exception_ptr", "filesystem": "filesystem", "functional": "function", "map": "map",
    "memory": "unique_ptr|shared_ptr|weak_ptr", "mutex": "mutex", "optional": "optional", "span": "span",
    "string": "string", "string_view": "string_view", "thread": "thread", "utility": "forward|move|pair|swap",
    "vector": "vector",
}
COMMENT = re.compile(r"//[^\n]*")
SYSTEM_FOLDERS = {"sys", "sanitizer", "linux", "netinet", "arpa", "asm"}
BANNED_NAMES = re.compile(r"(^|[_\-])(utils?|helpers?|common|misc)($|[_\-])", re.IGNORECASE)
POSTPONED = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b")  # split: this file is checked too
SOFT_LINES, HARD_LINES = 400, 600
ROOTS = ("include", "src", "kernels", "tests", "scripts", "third_party", "configs", ".ci")
CODE = {".h", ".cpp", ".cu", ".cuh", ".py", ".sh", ".cmake", ".txt", ".yaml", ""}
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:<([^>]+)>|"([^"]+)")', re.MULTILINE)


class Graph:
    """What each area may include, from CMakeLists.txt."""

    def __init__(self, cmake_text):
        text = re.sub(r"#[^\n]*", "", cmake_text)
        self.public, self.private = {}, {}
        for name, links in re.findall(r"slimpipe_area\(\s*(\w+)\s+LINK\s+([^)]*)\)", text):
            self._add(name, links)
        app = re.search(r"target_link_libraries\(\s*slimpipe\s+([^)]*)\)", text)
        if app:
            self._add("app", app.group(1))

    def _add(self, area, links):
        self.public[area], self.private[area] = [], []
        into = None
        for word in links.split():
            if word in ("PUBLIC", "PRIVATE"):
                into = self.public[area] if word == "PUBLIC" else self.private[area]
            elif into is None:
                raise SystemExit(f"CMakeLists.txt: '{word}' of area '{area}' is neither PUBLIC nor PRIVATE")
            elif word != "slimpipe::options":
                into.append(word)

    def unknown_targets(self):
        known = set(EXTERNAL.values()) | {f"slimpipe::{area}" for area in self.public}
        used = {link for links in (self.public, self.private) for listed in links.values() for link in listed}
        return sorted(used - known)

    def allowed(self, area):
        """Targets whose headers the area may include: all it links, and the PUBLIC links of those."""
        seen, pending = set(), [f"slimpipe::{area}"] + self.public[area] + self.private[area]
        while pending:
            target = pending.pop()
            if target not in seen:
                seen.add(target)
                pending += self.public.get(target.removeprefix("slimpipe::"), [])
        return seen


def area_of(path):
    """Area of a file, by its path from the root: include/slimpipe/<area>/…, src/<area>/…, or 'tests'."""
    parts = path.parts
    if parts[0] == "include":
        return parts[2] if len(parts) > 3 else None
    if parts[0] == "src":
        return parts[1] if len(parts) > 2 else None
    return "tests" if parts[0] == "tests" else None


def include_problem(root, graph, path, header, quoted):
    """Why `path` may not include `header`, or None."""
    area, parts = area_of(path), Path(header).parts
    if parts[0] in EXTERNAL:
        target = EXTERNAL[parts[0]]
        if area == "tests" or target in graph.allowed(area):
            return None
        return f"area '{area}' does not link {target} in CMakeLists.txt"
    if not quoted:
        if len(parts) == 1 or parts[0] in SYSTEM_FOLDERS:
            return None  # the standard library or the system
        return "an external library that scripts/check_includes.py does not know; add it to EXTERNAL"
    if parts[0] == "slimpipe":
        if not (root / "include" / header).is_file():
            return f"there is no include/{header}"
        if area == "tests" or f"slimpipe::{parts[1]}" in graph.allowed(area):
            return None
        return f"area '{area}' does not link slimpipe::{parts[1]}: wrong direction, or a missing LINK"
    for base in (path.parent, Path("tests") if area == "tests" else Path("src"), Path("src")):
        found = Path(os.path.normpath(base / header))
        if (root / found).is_file():
            return private_problem(path, area, found)
    return "found neither beside the file nor under src/" + (" or tests/" if area == "tests" else "")


def private_problem(path, area, found):
    if path.parts[0] == "include" and found.parts[0] == "src":
        return "a public header must not need a private one"
    if area == "tests" or area_of(found) == area:
        return None
    return f"{found} is private to '{area_of(found)}'; areas meet through include/slimpipe only"


def missing_standard_headers(text):
    """Headers of the standard library whose names the text uses and that it does not include."""
    included, code = {angle for angle, _ in INCLUDE.findall(text)}, COMMENT.sub("", text)
    return [header for header, names in STANDARD.items()
            if header not in included and re.search(rf"\bstd::({names})\b", code)]


def check_file(root, graph, path, problems, warnings):
    if BANNED_NAMES.search(path.name.split(".")[0]):
        problems.append(f"{path}: name the file by its concept, not '{path.stem}'")
    if path.suffix not in CODE:
        return
    text = (root / path).read_text(encoding="utf-8", errors="replace")
    lines = text.count("\n") + 1
    if lines > HARD_LINES:
        problems.append(f"{path}: {lines} lines, the limit is {HARD_LINES}: split it by concept")
    elif lines > SOFT_LINES:
        warnings.append(f"{path}: {lines} lines, over {SOFT_LINES}")
    for match in POSTPONED.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        problems.append(f"{path}:{line}: '{match.group()}': do it now or leave it out")
    if path.suffix in (".h", ".cpp", ".cu", ".cuh"):
        area = area_of(path)
        if area is None or (area != "tests" and area not in graph.public):
            problems.append(f"{path}: not in the folder of an area that CMakeLists.txt names")
            return
        if path.parts[0] == "include":
            problems += [f"{path}: names what <{header}> has and does not include it"
                         for header in missing_standard_headers(text)]
        for match in INCLUDE.finditer(text):
            header = match.group(1) or match.group(2)
            problem = include_problem(root, graph, path, header, quoted=match.group(1) is None)
            if problem:
                line = text.count("\n", 0, match.start(1 if match.group(1) else 2)) + 1
                problems.append(f'{path}:{line}: includes "{header}": {problem}')


def source_files(root):
    """Files of the tree that git does not ignore; all of them where there is no git."""
    listed = subprocess.run(["git", "-C", str(root), "ls-files", "-z", "-co", "--exclude-standard", "--", *ROOTS],
                            capture_output=True, text=True, check=False) if (root / ".git").exists() else None
    if listed and listed.returncode == 0:
        names = {Path(name) for name in listed.stdout.split("\0") if name}
        return sorted(name for name in names if (root / name).is_file())
    return sorted(path.relative_to(root) for folder in ROOTS for path in (root / folder).rglob("*")
                  if path.is_file() and "__pycache__" not in path.parts)


def check_tree(root):
    """(problems, warnings, number of files) of the tree at `root`."""
    graph = Graph((root / "CMakeLists.txt").read_text(encoding="utf-8"))
    problems = [f"CMakeLists.txt: '{target}' has no entry in EXTERNAL of scripts/check_includes.py"
                for target in graph.unknown_targets()]
    warnings, files = [], source_files(root)
    for path in files:
        check_file(root, graph, path, problems, warnings)
    return problems, warnings, len(files)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).resolve().parent.parent,
                        help="the source tree (default: the one this script is in)")
    problems, warnings, count = check_tree(parser.parse_args().root)
    for warning in warnings:
        print(f"warning: {warning}")
    for problem in problems:
        print(f"error: {problem}")
    print(f"check_includes: {count} files, {len(problems)} errors, {len(warnings)} warnings")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
