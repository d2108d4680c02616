#include "cli/flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <optional>
#include <type_traits>
#include <vector>

#include "absl/strings/cord.h"
#include "base/renamed.h"
#include "batching/policy.h"
#include "cli/model_path.h"

namespace chairlift {
namespace {

// What a flag reads into a T.
template <typename T>
struct ValueOf {
  using Type = T;
};
template <typename T>
struct ValueOf<std::optional<T>> {
  using Type = T;
};

constexpr char kUsage[] = "chairlift/usage";

}  // namespace

Status Usage(const Status& status) {
  Status marked = status;
  marked.SetPayload(kUsage, absl::Cord());
  return marked;
}

bool IsUsage(const Status& status) { return status.GetPayload(kUsage).has_value(); }

std::string NoValueOf(const std::string& setting) {
  return fmt::format("--set: '{0}' has no value; write --set {0}=VALUE", setting);
}

void TakesModel(CLI::Option* option) {
  option->check([](const std::string& path) { return WhyNoPath(path); })->type_name("FILE|DIR");
}

void TakesPolicy(CLI::Option* option) {
  option->check([](const std::string& name) { return Message(FindPolicy(name).status()); })
      ->transform([](const std::string& name) { return CurrentPolicy(name, "--policy"); })
      ->type_name("POLICY");
}

void TakesBytes(CLI::Option* option, uint64_t least) {
  constexpr uint64_t kMost = uint64_t{1} << 50;
  const auto read = [least](std::string& text) -> std::string {
    const std::string given = text;
    uint64_t bytes = 0;
    try {
      const std::string wrong = CLI::AsSizeValue(false)(text);
      if (wrong.empty() && CLI::detail::lexical_cast(text, bytes) && bytes >= least &&
          bytes <= kMost) {
        return {};
      }
    } catch (const CLI::Error&) {
      // Reported below.
    }
    return fmt::format("'{}' is not a number of bytes from {}, as 65536, 64KiB or 2GiB", given,
                       least);
  };
  option->transform(CLI::Validator(read, ""))->type_name("BYTES");
}

void TakesNumber(CLI::Option* option, double least, double most) {
  option->check([least, most](const std::string& text) -> std::string {
    double number = 0;
    if (CLI::detail::lexical_cast(text, number) && least <= number && number <= most) return {};
    return fmt::format("Value {} not in range {} to {}", text, least, most);
  });
}

void TakesOutput(CLI::Option* option, const char* type) {
  option
      ->check([](const std::string& path) {
        return path.empty() ? std::string("it needs a name") : std::string();
      })
      ->type_name(type);
}

template <typename T>
CLI::Option* AddNumber(CLI::App& parser, const char* flag, T* value, double least, double most,
                       const char* type, const char* about) {
  using Number = typename ValueOf<T>::Type;
  CLI::Option* const option = parser.add_option(flag, *value, about);
  if constexpr (std::is_floating_point_v<Number>) {
    TakesNumber(option, least, most);
  } else {
    option->check(CLI::Range(static_cast<Number>(least), static_cast<Number>(most)));
  }
  option->type_name(type);
  if constexpr (std::is_same_v<T, Number>) {
    const auto number = static_cast<double>(*value);
    if (least <= number && number <= most) option->capture_default_str();
  }
  return option;
}
template CLI::Option* AddNumber(CLI::App&, const char*, int*, double, double, const char*,
                                const char*);
template CLI::Option* AddNumber(CLI::App&, const char*, int64_t*, double, double, const char*,
                                const char*);
template CLI::Option* AddNumber(CLI::App&, const char*, double*, double, double, const char*,
                                const char*);
template CLI::Option* AddNumber(CLI::App&, const char*, std::optional<int64_t>*, double, double,
                                const char*, const char*);
template CLI::Option* AddNumber(CLI::App&, const char*, std::optional<double>*, double, double,
                                const char*, const char*);

CLI::Option* AddSeed(CLI::App& parser, uint64_t* seed, const char* about) {
  return parser.add_option("--seed", *seed, about)
      ->check([](const std::string& text) -> std::string {
        // A negative number, or one that is too large, would be read as another one.
        uint64_t number = 0;
        const char* const end = text.data() + text.size();
        const auto read = std::from_chars(text.data(), end, number);
        if (read.ec == std::errc() && read.ptr == end) return {};
        return fmt::format("Value {} is not a whole number from 0 to 2^64 - 1", text);
      })
      ->type_name("N")
      ->capture_default_str();
}

CLI::Option* AddWorkers(CLI::App& parser, int* workers) {
  return AddNumber(parser, "--workers", workers, 0, 256, "N",
                   "Compute threads; 0: one for each available core");
}

CLI::Option* AddDevice(CLI::App& parser, std::string* device) {
  return parser
      .add_option(
          "--device", *device,
          "Device for models whose model.yaml names none: cpu, or cuda (cuda:1, …), an NVIDIA\n"
          "GPU. Default: cpu")
      ->type_name("NAME");
}

CLI::Option* AddPrecision(CLI::App& parser, std::string* precision) {
  return parser
      .add_option(
          "--precision", *precision,
          "What float32 is computed in, for models whose model.yaml does not say it: float32,\n"
          "bfloat16, int8 (CPU), tf32 or float16 (GPU). Default: float32")
      ->type_name("TYPE");
}

void AddAllowPlugins(CLI::App& parser, bool* allow) {
  parser.add_flag(
      "--allow-plugins", *allow,
      "Allow code in model folders: Python models and plugins. Use it only if no other\n"
      "user can write to these folders");
}

Status CheckWritable(const std::string& file) {
  errno = 0;
  if (file.empty() || std::ofstream(file, std::ios::app)) return absl::OkStatus();
  return CannotWrite(file);
}

Status CannotWrite(const std::string& file) {
  return Unavailable("cannot write {}: {}", file,
                     errno != 0 ? std::strerror(errno) : "it was written only in part");
}

std::string PolicyHelp() {
  std::string help = "Policies:\n";
  for (const PolicyInfo& policy : KnownPolicies()) {
    help += fmt::format("  {:<13} {}\n", policy.name, policy.summary);
  }
  return help;
}

}  // namespace chairlift
