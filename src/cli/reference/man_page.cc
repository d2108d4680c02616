// https://man7.org/linux/man-pages/man7/man.7.html
#include <absl/strings/ascii.h>
#include <fmt/format.h>

#include "base/version.h"
#include "cli/reference/entries.h"
#include "cli/reference/pages.h"

namespace chairlift::reference {
namespace {

// A line that begins with a dot or an apostrophe would be a macro.
std::string Troff(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool first = i == 0 || text[i - 1] == '\n';
    if (first && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  return out;
}

std::string Verbatim(const std::string& text) { return ".nf\n" + Troff(text) + "\n.fi\n"; }

std::string Entries(const CLI::App& command) {
  std::string page;
  for (const Group& group : GroupsOf(command)) {
    page += fmt::format(".SH {}\n", Troff(absl::AsciiStrToUpper(group.name)));
    for (const Entry& entry : group.entries) {
      page += fmt::format(".TP\n.B {}\n{}\n", Troff(Heading(entry)), Troff(Paragraph(entry)));
    }
  }
  return page;
}

}  // namespace

std::string ManPage(const CLI::App& app, const CLI::App* command) {
  const std::string name = app.get_name() + (command == nullptr ? "" : "-" + command->get_name());
  std::string about = (command == nullptr ? &app : command)->get_description();
  std::string page = fmt::format(".TH {} 1 \"\" \"Chairlift {}\" \"Chairlift\"\n", name, Version());
  page += fmt::format(".SH NAME\n{} \\- {}\n", Troff(name),
                      command == nullptr ? "serve ONNX models" : Troff(about));
  if (command != nullptr) {
    page += fmt::format(".SH SYNOPSIS\n.B {} {}\n[OPTIONS]", app.get_name(), command->get_name());
    for (const Group& group : GroupsOf(*command)) {
      for (const Entry& entry : group.entries) {
        if (entry.positional) page += " [" + Heading(entry) + "]";
      }
    }
    page += "\n" + Entries(*command);
    page += ".SH NOTES\n" + Verbatim(command->get_footer());
    return page + fmt::format(".SH SEE ALSO\n.BR {} (1)\n", app.get_name());
  }
  page += fmt::format(".SH SYNOPSIS\n.B {}\nCOMMAND [OPTIONS]\n", app.get_name());
  page += ".SH DESCRIPTION\n" + Troff(about) + "\n";
  page += ".SH COMMANDS\n";
  for (const CLI::App* each : app.get_subcommands({})) {
    page += fmt::format(".TP\n.BR {}\\-{} (1)\n{}\n", app.get_name(), each->get_name(),
                        Troff(each->get_description()));
  }
  return page + Entries(app) + ".SH NOTES\n" + Verbatim(app.get_footer());
}

}  // namespace chairlift::reference
