// Documents generated from the command line: man pages, shell completions, and the reference page
// in docs/.
#ifndef CHAIRLIFT_CLI_REFERENCE_PAGES_H_
#define CHAIRLIFT_CLI_REFERENCE_PAGES_H_

#include <CLI/CLI.hpp>
#include <string>

namespace chairlift::reference {

// troff, section 1: for the program, or for one of its commands.
std::string ManPage(const CLI::App& app, const CLI::App* command);
std::string Markdown(const CLI::App& app);
std::string BashCompletion(const CLI::App& app);
std::string ZshCompletion(const CLI::App& app);
std::string FishCompletion(const CLI::App& app);

}  // namespace chairlift::reference

#endif  // CHAIRLIFT_CLI_REFERENCE_PAGES_H_
