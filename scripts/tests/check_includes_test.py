#!/usr/bin/env python3
"""Each rule of check_includes.py is broken once in a small tree, and must be reported."""
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import check_includes  # noqa: E402

CMAKE = """
# slimpipe_area(ghost LINK PUBLIC slimpipe::core) in a comment is no area
slimpipe_area(core LINK PUBLIC fmt::fmt PRIVATE spdlog::spdlog)
slimpipe_area(comm LINK PUBLIC slimpipe::core PRIVATE MPI::MPI_CXX)
slimpipe_area(model LINK PUBLIC slimpipe::comm
  PRIVATE hwy::hwy)
slimpipe_area(train LINK PRIVATE slimpipe::model)
target_link_libraries(slimpipe PRIVATE slimpipe::options slimpipe::train CLI11::CLI11)
"""
SOUND = {
    "include/slimpipe/core/check.h": "#include <fmt/core.h>\n#include <vector>\n",
    "include/slimpipe/comm/group.h": '#include "slimpipe/core/check.h"\n',
    "src/core/log.cpp": '#include <spdlog/spdlog.h>\n#include "slimpipe/core/check.h"\n',
    "src/comm/queue.h": "#include <sys/types.h>\n",
    "src/comm/group.cpp": '#include <mpi.h>\n#include "comm/queue.h"\n#include "queue.h"\n',
    "src/model/layer.cpp": '#include "hwy/highway.h"\n#include <fmt/core.h>\n#include "slimpipe/core/check.h"\n',
    "src/app/main.cpp": "#include <CLI/CLI.hpp>\n",
    "tests/support/catch.h": "#include <catch2/catch.hpp>\n",
    "tests/unit/comm/group_test.cpp": '#include "comm/queue.h"\n#include "support/catch.h"\n#include <mpi.h>\n',
}


class CheckIncludes(unittest.TestCase):
    def check(self, changes, cmake=CMAKE):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            (root / "CMakeLists.txt").write_text(cmake)
            for name, text in {**SOUND, **changes}.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            return check_includes.check_tree(root)

    def assert_problem(self, changes, *words, cmake=CMAKE):
        problems, _, _ = self.check(changes, cmake)
        self.assertEqual(len(problems), 1, problems)
        for word in words:
            self.assertIn(word, problems[0])

    def test_a_sound_tree_has_no_problem(self):
        problems, warnings, count = self.check({})
        self.assertEqual((problems, warnings, count), ([], [], len(SOUND)))

    def test_an_area_must_not_look_up(self):
        self.assert_problem({"src/core/up.cpp": '\n#include "slimpipe/comm/group.h"\n'},
                            "src/core/up.cpp:2", "does not link slimpipe::comm")

    def test_public_links_reach_through_and_private_ones_do_not(self):
        self.assert_problem({"src/train/step.cpp": '#include "slimpipe/comm/group.h"\n#include <hwy/highway.h>\n'},
                            "does not link hwy::hwy")

    def test_an_external_library_stays_in_the_area_that_links_it(self):
        self.assert_problem({"src/model/send.cpp": "#include <mpi.h>\n"}, "does not link MPI::MPI_CXX")
        self.assert_problem({"src/core/test.cpp": "#include <catch2/catch.hpp>\n"}, "Catch2")

    def test_an_unknown_external_library_is_refused(self):
        self.assert_problem({"src/core/map.cpp": "#include <boost/any.hpp>\n"}, "does not know")
        self.assert_problem({}, "'Boost::any' has no entry", cmake=CMAKE.replace("hwy::hwy", "hwy::hwy Boost::any"))

    def test_a_private_header_stays_in_its_area(self):
        self.assert_problem({"src/model/peek.cpp": '#include "comm/queue.h"\n'}, "private to 'comm'")
        self.assert_problem({"src/model/peek.cpp": '#include "../comm/queue.h"\n'}, "private to")

    def test_a_public_header_needs_no_private_one(self):
        self.assert_problem({"include/slimpipe/comm/peek.h": '#include "comm/queue.h"\n'}, "must not need a private")

    def test_a_public_header_includes_the_standard_headers_of_what_it_names(self):
        text = "#include <string>\n// std::vector\nstd::string a;\n"
        self.assertEqual(self.check({"include/slimpipe/core/a.h": text})[0], [])
        for name, header in (("std::atomic<int> b;", "atomic"), ("std::int64_t b;", "cstdint"),
                             ("std::string_view b;", "string_view"), ("std::function<int()> b;", "functional")):
            self.assert_problem({"include/slimpipe/core/a.h": text + name}, "core/a.h", f"<{header}>")
        self.assertEqual(self.check({"src/core/a.cpp": "std::int64_t a;\n"})[0], [])

    def test_headers_must_exist(self):
        self.assert_problem({"src/core/a.cpp": '#include "slimpipe/core/gone.h"\n'}, "no include/slimpipe/core/gone.h")
        self.assert_problem({"src/core/a.cpp": '#include "gone.h"\n'}, "found neither")

    def test_a_file_belongs_to_an_area(self):
        self.assert_problem({"src/ghost/a.cpp": "\n"}, "not in the folder of an area")

    def test_vague_names_are_refused(self):
        for name in ("utils.h", "string_helpers.h", "common.cpp", "misc_io.h"):
            self.assert_problem({f"src/core/{name}": "\n"}, "by its concept")
        self.assertEqual(self.check({"src/core/commons_cache.h": "\n"})[0], [])

    def test_long_files_are_named_and_very_long_ones_refused(self):
        problems, warnings, _ = self.check({"src/core/long.cpp": "\n" * 450})
        self.assertEqual((problems, len(warnings)), ([], 1))
        self.assert_problem({"src/core/long.cpp": "\n" * 650}, "the limit is 600")

    def test_postponed_work_is_refused(self):
        for word in ("TO" "DO", "FIX" "ME", "XX" "X"):
            self.assert_problem({"src/core/a.cpp": f"\n\n// {word}: later\n"}, "src/core/a.cpp:3", word)
        self.assertEqual(self.check({"scripts/a.sh": "mktemp /tmp/a.XX" "XXXX\n"})[0], [])


if __name__ == "__main__":
    unittest.main()
