// Complete error texts: tests/golden/config/NAME.yaml (its leading comments `# --set a.b=c` are the
// overrides) must give NAME.expected.

#include <filesystem>
#include <fstream>
#include <sstream>

#include "slimpipe/config/load.h"
#include "slimpipe/core/check.h"

#include "support/catch.h"

namespace slimpipe::config {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

std::vector<std::string> overrides_in(const std::string& yaml) {
  const std::string marker = "# --set ";
  std::vector<std::string> overrides;
  std::istringstream stream(yaml);
  for (std::string line; std::getline(stream, line) && line.starts_with("#");)
    if (line.starts_with(marker)) overrides.push_back(line.substr(marker.size()));
  return overrides;
}

std::string error_of(const fs::path& path) {
  const std::string yaml = text_of(path);
  try {
    (void)load_text(yaml, path.filename().string(), overrides_in(yaml));
  } catch (const InputError& error) {
    return std::string(error.what()) + "\n";
  }
  return "no error\n";
}

}  // namespace

TEST_CASE("refused configurations say all that is wrong, word for word", "[unit]") {
  int cases = 0;
  for (const auto& entry : fs::directory_iterator(SLIMPIPE_SOURCE_DIR "/tests/golden/config")) {
    if (entry.path().extension() != ".yaml") continue;
    ++cases;
    const std::string found = error_of(entry.path());
    fs::path expected = entry.path();
    expected.replace_extension(".expected");
    if (found == text_of(expected)) continue;
    const fs::path actual = fs::path(SLIMPIPE_BINARY_DIR) / expected.filename();
    std::ofstream(actual, std::ios::binary) << found;
    UNSCOPED_INFO("where the new text is right: cp " << actual.string() << " " << expected.string());
    CHECK(found == text_of(expected));
  }
  CHECK(cases >= 10);
}

}  // namespace slimpipe::config
