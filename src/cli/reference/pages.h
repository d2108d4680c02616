// The program's own definitions, written down: man pages, completions of shells, and pages of
// docs/reference.
#ifndef CHAIRLIFT_CLI_REFERENCE_PAGES_H_
#define CHAIRLIFT_CLI_REFERENCE_PAGES_H_

#include <CLI/CLI.hpp>
#include <filesystem>
#include <string>

namespace chairlift::reference {

// troff, section 1: for the program, or for one of its commands.
std::string ManPage(const CLI::App& app, const CLI::App* command);
std::string Markdown(const CLI::App& app);
std::string SettingsPage();
// `source`: the folder of the sources, for the kernels that this build may not have.
std::string OperatorsPage(const std::filesystem::path& source);
// Inside a cell of a table.
std::string TableCell(const std::string& text);
std::string BashCompletion(const CLI::App& app);
std::string ZshCompletion(const CLI::App& app);
std::string FishCompletion(const CLI::App& app);

}  // namespace chairlift::reference

#endif  // CHAIRLIFT_CLI_REFERENCE_PAGES_H_
