// Flags that several subcommands share.
#ifndef CHAIRLIFT_CLI_FLAGS_H_
#define CHAIRLIFT_CLI_FLAGS_H_

#include <cstdint>
#include <string>

#include "base/status.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace chairlift {

// Marks that the command line itself is wrong: the program ends with 2 instead of 1.
[[nodiscard]] Status Usage(const Status& status);
bool IsUsage(const Status& status);

// A positional MODEL that must be a file or a folder.
void TakesModel(CLI::Option* option);

// A flag that takes a number, or several, from `least` to `most`; NaN is none.
void TakesNumber(CLI::Option* option, double least, double most);

// A flag that takes the name of a file or folder to be written.
void TakesOutput(CLI::Option* option, const char* type = "FILE");

// Adds a flag that takes a number from `least` to `most`. `*value`, of type int, int64_t, double or
// an optional of the last two, must outlive the parsing; the help shows it where it is in the
// range.
template <typename T>
CLI::Option* AddNumber(CLI::App& parser, const char* flag, T* value, double least, double most,
                       const char* type, const char* about);
// --seed.
CLI::Option* AddSeed(CLI::App& parser, uint64_t* seed, const char* about);
// --workers.
CLI::Option* AddWorkers(CLI::App& parser, int* workers);
// --device.
CLI::Option* AddDevice(CLI::App& parser, std::string* device);
// --allow-plugins, of every command that loads models into this process.
void AddAllowPlugins(CLI::App& parser, bool* allow);

// A flag that takes names of batching policies, which PolicyHelp() lists.
void TakesPolicy(CLI::Option* option);
std::string PolicyHelp();  // "Policies:", and what each does, a line each

// A flag that takes a number of bytes, at least so many, as 4096 or 64KiB.
void TakesBytes(CLI::Option* option, uint64_t least);

// Unavailable where `file` cannot be written; OK where it is empty. To be called before the work.
Status CheckWritable(const std::string& file);
// The error of the last write; errno has the reason.
Status CannotWrite(const std::string& file);

}  // namespace chairlift

#endif  // CHAIRLIFT_CLI_FLAGS_H_
