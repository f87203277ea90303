#include <cstdio>
#include <memory>

#include "slimpipe/core/counted.h"
#include "slimpipe/data/prepare.h"

#include "app/command_line.h"
#include "app/commands.h"

namespace slimpipe::app {
namespace {

data::TextFormat text_format(const std::string& name) {
  if (name == "text") return data::TextFormat::kText;
  if (name == "jsonl") return data::TextFormat::kJsonLines;
  return data::TextFormat::kAuto;
}

void add_prepare(CLI::App& command, Action& action) {
  struct Options {
    data::PrepareOptions prepare;
    std::string format = "auto";
  };
  auto options = std::make_shared<Options>();
  CLI::App* prepare = command.add_subcommand("prepare", "Make a token file from text or JSON lines");
  prepare->add_option("input", options->prepare.inputs, "Text files (one document each) or JSON lines files")
      ->type_name("FILE")
      ->check(one_line())
      ->required();
  prepare->add_option("-o,--output", options->prepare.output, "Token file to write")
      ->type_name("FILE")
      ->check(one_line())
      ->required();
  prepare
      ->add_option("--format", options->format,
                   "text, jsonl or auto; auto: .jsonl and .json are JSON lines, the rest is text")
      ->type_name("FORMAT")
      ->check(one_of({"auto", "text", "jsonl"}))
      ->capture_default_str();
  prepare->add_option("--text-key", options->prepare.text_key, "JSON key that holds a document's text")
      ->check(one_line())
      ->capture_default_str();
  prepare->footer(
      "Tokens are the bytes of the text, and 256 ends a document: set model.vocabulary to 257 or more.\n"
      "Example:\n"
      "  slimpipe data prepare --output data.tok book.txt web.jsonl");
  prepare->callback([options, &action] {
    action = [options] {
      options->prepare.format = text_format(options->format);
      const data::PrepareResult result = data::prepare(options->prepare);
      std::printf("%s: %s in %s\n", options->prepare.output.c_str(), counted(result.tokens, "token").c_str(),
                  counted(result.documents, "document").c_str());
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
  inspect->add_option("file", options->file, "Token file")->type_name("FILE")->check(one_line())->required();
  inspect->add_option("--samples", options->samples, "Documents whose beginning is shown")
      ->capture_default_str()
      ->check(integer_in(0, 1000));
  inspect->footer(
      "Reads every token once, so a file that passes is whole. Example:\n"
      "  slimpipe data inspect data.tok --samples 10");
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
  command->footer("Training reads token files: set data.train, and data.validation where there is one.");
  add_prepare(*command, action);
  add_inspect(*command, action);
}

}  // namespace slimpipe::app
