#include <fmt/format.h>

#include "cli/reference/entries.h"
#include "cli/reference/pages.h"

namespace chairlift::reference {
namespace {

std::string Tables(const CLI::App& command) {
  std::string page;
  for (const Group& group : GroupsOf(command)) {
    page += fmt::format("\n**{}**\n\n| | |\n|---|---|\n", group.name);
    for (const Entry& entry : group.entries) {
      page += fmt::format("| `{}` | {} |\n", Heading(entry), TableCell(Paragraph(entry)));
    }
  }
  return page;
}

std::string Fenced(const std::string& text) { return "\n```text\n" + text + "\n```\n"; }

}  // namespace

std::string TableCell(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '|' || c == '*' || c == '<' || c == '_') out += '\\';
    out += c;
  }
  return out;
}

std::string Markdown(const CLI::App& app) {
  std::string page =
      "# Command line\n\n"
      "Every command and flag of `chairlift`. This page is generated from the program: `make "
      "reference` writes it again.\n\n"
      "```bash\nchairlift serve --help      # the same text, for each command\n```\n\n"
      "## Every command\n";
  page += Tables(app) + Fenced(app.get_footer());
  for (const CLI::App* command : app.get_subcommands({})) {
    page += fmt::format("\n## chairlift {}\n\n{}.\n", command->get_name(),
                        TableCell(command->get_description()));
    page += Tables(*command);
    if (!command->get_footer().empty()) page += Fenced(command->get_footer());
  }
  return page;
}

}  // namespace chairlift::reference
