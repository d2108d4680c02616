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

// Marks an error of the command line itself: exit code 2 instead of 1.
[[nodiscard]] Status Usage(const Status& status);
bool IsUsage(const Status& status);

// The error for `--set NAME` without a value.
std::string NoValueOf(const std::string& setting);

// A positional MODEL, which must be a file or a folder.
void TakesModel(CLI::Option* option);

// A flag with one or several numbers from `least` to `most`; refuses NaN.
void TakesNumber(CLI::Option* option, double least, double most);

// A flag with the name of a file or folder to write.
void TakesOutput(CLI::Option* option, const char* type = "FILE");

// Adds a flag with a number from `least` to `most`. `*value`, of type int, int64_t, double or an
// optional of the last two, must outlive the parsing. The help shows it as the default if it is in
// the range.
template <typename T>
CLI::Option* AddNumber(CLI::App& parser, const char* flag, T* value, double least, double most,
                       const char* type, const char* about);
// --seed.
CLI::Option* AddSeed(CLI::App& parser, uint64_t* seed, const char* about);
// --workers.
CLI::Option* AddWorkers(CLI::App& parser, int* workers);
// --device.
CLI::Option* AddDevice(CLI::App& parser, std::string* device);
// --precision.
CLI::Option* AddPrecision(CLI::App& parser, std::string* precision);
// --allow-plugins, for every command that loads models into this process.
void AddAllowPlugins(CLI::App& parser, bool* allow);

// A flag with names of batching policies, which PolicyHelp() lists.
void TakesPolicy(CLI::Option* option);
std::string PolicyHelp();  // "Policies:", followed by one line for each

// A flag with a number of bytes, at least `least`, written as 4096 or 64KiB.
void TakesBytes(CLI::Option* option, uint64_t least);

// Unavailable if `file` cannot be written; OK if the name is empty. Call it before starting long
// work.
Status CheckWritable(const std::string& file);
// The error of the last write, with the reason from errno.
Status CannotWrite(const std::string& file);

}  // namespace chairlift

#endif  // CHAIRLIFT_CLI_FLAGS_H_
