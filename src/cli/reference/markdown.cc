#include <fmt/format.h>

#include "cli/reference/entries.h"
#include "cli/reference/pages.h"

namespace chairlift::reference {
namespace {

// Text in a table cell.
std::string Cell(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '|' || c == '*' || c == '<' || c == '_') out += '\\';
    out += c;
  }
  return out;
}

std::string Tables(const CLI::App& command) {
  std::string page;
  for (const Group& group : GroupsOf(command)) {
    page += fmt::format("\n**{}**\n\n| | |\n|---|---|\n", group.name);
    for (const Entry& entry : group.entries) {
      page += fmt::format("| `{}` | {} |\n", Heading(entry), Cell(Paragraph(entry)));
    }
  }
  return page;
}

// A code block.
std::string Indented(const std::string& text) {
  std::string out = "\n    ";
  for (const char c : text) {
    out += c;
    if (c == '\n') out += "    ";
  }
  return out + "\n";
}

}  // namespace

std::string Markdown(const CLI::App& app) {
  std::string page =
      "# Command line\n\n"
      "Every command and flag of `chairlift`. This page is generated from the program: `make "
      "reference` writes it again.\n\n"
      "    chairlift serve model.onnx      # see `chairlift COMMAND --help` for the same text\n";
  page += Tables(app) + Indented(app.get_footer());
  for (const CLI::App* command : app.get_subcommands({})) {
    page += fmt::format("\n## chairlift {}\n\n{}.\n", command->get_name(),
                        Cell(command->get_description()));
    page += Tables(*command);
    if (!command->get_footer().empty()) page += Indented(command->get_footer());
  }
  return page;
}

}  // namespace chairlift::reference
