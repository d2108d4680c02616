// chairlift_reference FOLDER [SOURCE]: writes man pages and completions there and, if the folder of
// the sources is given, the pages of docs/reference. Run by `make reference` and by packages; not
// installed.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "cli/command_line.h"
#include "cli/reference/pages.h"

int main(int argc, char** argv) {
  if (argc != 2 && argc != 3) {
    fmt::print(stderr, "usage: chairlift_reference FOLDER [SOURCE]\n");
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  bool written = true;
  const auto write = [&](const std::filesystem::path& name, const std::string& text) {
    std::error_code error;
    std::filesystem::create_directories((folder / name).parent_path(), error);
    std::ofstream file(folder / name, std::ios::binary);
    file << text;
    file.close();
    if (!file) fmt::print(stderr, "cannot write {}\n", (folder / name).string());
    written = written && file;
  };
  namespace reference = chairlift::reference;
  const auto line = chairlift::MakeCommandLine();
  write("man/chairlift.1", reference::ManPage(line->app, nullptr));
  for (const auto& [command, run] : line->commands) {
    write("man/chairlift-" + command->get_name() + ".1", reference::ManPage(line->app, command));
  }
  write("completions/chairlift.bash", reference::BashCompletion(line->app));
  write("completions/_chairlift", reference::ZshCompletion(line->app));
  write("completions/chairlift.fish", reference::FishCompletion(line->app));
  if (argc == 3) {
    write("command-line.md", reference::Markdown(line->app));
    write("model-yaml.md", reference::SettingsPage());
    write("operators.md", reference::OperatorsPage(argv[2]));
  }
  return written ? 0 : 1;
}
