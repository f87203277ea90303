#include <cstdio>
#include <map>
#include <memory>

#include "slimpipe/data/prepare.h"

#include "app/commands.h"

namespace slimpipe::app {
namespace {

void add_prepare(CLI::App& command, Action& action) {
  static const std::map<std::string, data::TextFormat> kFormats = {{"auto", data::TextFormat::kAuto},
                                                                   {"text", data::TextFormat::kText},
                                                                   {"jsonl", data::TextFormat::kJsonLines}};
  auto options = std::make_shared<data::PrepareOptions>();
  CLI::App* prepare = command.add_subcommand("prepare", "Make a token file from text or JSON lines");
  prepare->add_option("input", options->inputs, "Text files (one document each) or JSON lines files")
      ->required();
  prepare->add_option("-o,--output", options->output, "Token file to write")->required();
  prepare->add_option("--format", options->format, "auto (by name), text or jsonl")
      ->transform(CLI::CheckedTransformer(kFormats, CLI::ignore_case))
      ->default_str("auto");
  prepare->add_option("--text-key", options->text_key, "JSON key that holds a document's text")
      ->capture_default_str();
  prepare->footer(
      "Tokens are the bytes of the text, 256 ends a document: set model.vocabulary to 257 or more.\n"
      "Example: slimpipe data prepare --output data.tok book.txt web.jsonl");
  prepare->callback([options, &action] {
    action = [options] {
      const data::PrepareResult result = data::prepare(*options);
      std::printf("%s: %lld tokens in %lld documents\n", options->output.c_str(),
                  static_cast<long long>(result.tokens), static_cast<long long>(result.documents));
      return 0;
    };
  });
}

void add_inspect(CLI::App& command, Action& action) {
  struct Options {
    std::string file;
    int samples = 3;
  };
  auto options = std::make_shared<Options>();
  CLI::App* inspect = command.add_subcommand("inspect", "Print what a token file holds");
  inspect->add_option("file", options->file, "Token file")->required();
  inspect->add_option("--samples", options->samples, "Documents whose beginning is shown")
      ->capture_default_str()
      ->check(CLI::Range(0, 1000));
  inspect->callback([options, &action] {
    action = [options] {
      std::fputs(data::inspect(options->file, options->samples).c_str(), stdout);
      return 0;
    };
  });
}

}  // namespace

void add_data(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("data", "Prepare and inspect token files");
  command->require_subcommand(1);
  add_prepare(*command, action);
  add_inspect(*command, action);
}

}  // namespace slimpipe::app
