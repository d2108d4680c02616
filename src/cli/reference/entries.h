// What the command line's own definitions say of each flag, for man pages, completions and the
// reference page.
#ifndef CHAIRLIFT_CLI_REFERENCE_ENTRIES_H_
#define CHAIRLIFT_CLI_REFERENCE_ENTRIES_H_

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace chairlift::reference {

struct Entry {
  std::vector<std::string> names;  // "--version", "-V"; of a positional: "MODEL"
  bool positional = false;
  bool several = false;  // may be given more than once
  bool required = false;
  std::string value;                 // "PORT"; empty: it takes none
  std::vector<std::string> choices;  // empty: any value
  std::string default_value;         // empty: none, or a flag
  std::string about;                 // lines
  bool is_path = false;              // the value names a file or a folder
};

struct Group {
  std::string name;  // "Options", "Network"
  std::vector<Entry> entries;
};

// Of one command, in the order of its help: positionals first.
std::vector<Group> GroupsOf(const CLI::App& command);

// "--http-port PORT", "-V, --version".
std::string Heading(const Entry& entry);
// The description with its choices and default: one paragraph.
std::string Paragraph(const Entry& entry);

}  // namespace chairlift::reference

#endif  // CHAIRLIFT_CLI_REFERENCE_ENTRIES_H_
