// The flags according to the command line's own definitions, for man pages, completions and the
// reference page.
#ifndef CHAIRLIFT_CLI_REFERENCE_ENTRIES_H_
#define CHAIRLIFT_CLI_REFERENCE_ENTRIES_H_

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace chairlift::reference {

struct Entry {
  std::vector<std::string> names;  // "--version", "-V"; for a positional: "MODEL"
  bool positional = false;
  bool several = false;  // may be given more than once
  bool required = false;
  std::string value;                 // "PORT"; empty: it has no value
  std::vector<std::string> choices;  // empty: any value
  std::string default_value;         // empty: no default, or a flag
  std::string about;                 // lines
  bool is_path = false;              // the value is the name of a file or folder
};

struct Group {
  std::string name;  // "Options", "Network"
  std::vector<Entry> entries;
};

// The entries of one command in the order of its help: positionals first.
std::vector<Group> GroupsOf(const CLI::App& command);

// "--http-port PORT", "-V, --version".
std::string Heading(const Entry& entry);
// The description with its choices and default, as one paragraph.
std::string Paragraph(const Entry& entry);

}  // namespace chairlift::reference

#endif  // CHAIRLIFT_CLI_REFERENCE_ENTRIES_H_
