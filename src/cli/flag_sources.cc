#include "cli/flag_sources.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_replace.h"
#include "base/yaml_value.h"
#include "engine/repository/model_config.h"

namespace chairlift {
namespace {

constexpr std::string_view kPrefix = "CHAIRLIFT_";
constexpr char kConfig[] = "config";
// These are for one start only.
constexpr const char* kOnCommandLineOnly[] = {"help", "parent-fd"};

// By name, without dashes: whether it takes a value.
std::map<std::string, bool> FlagsFromOutside(const CLI::App& serve) {
  std::map<std::string, bool> flags;
  for (const CLI::Option* option : serve.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      flags[name] = option->get_items_expected_min() > 0;
    }
  }
  for (const char* name : kOnCommandLineOnly) flags.erase(name);
  return flags;
}

std::string VariableOf(const std::string& flag) {
  return fmt::format("{}{}", kPrefix,
                     absl::AsciiStrToUpper(absl::StrReplaceAll(flag, {{"-", "_"}})));
}

// Kubernetes and Docker set such variables for a service of this name: CHAIRLIFT_HTTP_PORT is
// tcp://10.0.0.7:80 beside a service `chairlift-http`.
bool IsServiceLink(std::string_view value) {
  return value.starts_with("tcp://") || value.starts_with("udp://");
}

// Collects the arguments that come from outside.
class Additions {
 public:
  Additions(const CLI::App& serve, const std::vector<std::string>& arguments)
      : flags_(FlagsFromOutside(serve)) {
    for (const std::string& argument : arguments) {
      if (argument == "--") break;
      if (argument.starts_with("--")) given_.insert(argument.substr(2, argument.find('=') - 2));
    }
  }

  Status FromVariables(const Environment& environment) {
    for (const auto& [flag, takes_value] : flags_) {
      const std::string variable = VariableOf(flag);
      const auto found = environment.find(variable);
      if (found == environment.end() || found->second.empty() || given_.contains(flag)) continue;
      if (IsServiceLink(found->second)) {
        sources_.warnings.push_back(fmt::format(
            "{} is '{}', which Kubernetes sets for a service of that name: it is ignored; set "
            "enableServiceLinks: false in the pod",
            variable, found->second));
        continue;
      }
      CHAIRLIFT_RETURN_IF_ERROR(
          Annotate(Add(flag, takes_value, {found->second}, variable), variable));
    }
    return absl::OkStatus();
  }

  Status FromFile(const std::string& file) {
    std::ifstream in(file);
    std::string text(kMaxSettingsBytes + 1, ' ');  // more are refused
    in.read(text.data(), std::ssize(text));
    text.resize(static_cast<size_t>(in.gcount()));
    if (!in.eof() && text.size() <= kMaxSettingsBytes) {
      return NotFound(
          "--config: '{}' cannot be read; name a file of flags, one a line, as "
          "`http-port: 8000`",
          file);
    }
    return Annotate(Read(text, file), file);
  }

  FlagSources Finish(std::vector<std::string>* arguments) {
    const auto end = std::find(arguments->begin(), arguments->end(), "--");
    arguments->insert(end, added_.begin(), added_.end());
    return std::move(sources_);
  }

  // The file that --config names on the command line or in its variable; empty: none.
  static std::string FileOf(const std::vector<std::string>& arguments,
                            const Environment& environment) {
    for (size_t i = 0; i < arguments.size() && arguments[i] != "--"; ++i) {
      const std::string_view argument = arguments[i];
      if (argument.starts_with("--config=")) return std::string(argument.substr(9));
      if (argument == "--config" && i + 1 < arguments.size()) return arguments[i + 1];
    }
    const auto found = environment.find(VariableOf(kConfig));
    return found == environment.end() ? "" : found->second;
  }

 private:
  Status Read(const std::string& text, const std::string& file) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const YamlValue settings, YamlValue::Parse(text));
    if (settings.IsNull()) return absl::OkStatus();
    std::vector<std::string> known;
    for (const auto& [flag, takes_value] : flags_) {
      if (flag != kConfig) known.push_back(flag);
    }
    settings.RenameKeys([](const std::string& key) {
      return absl::StrReplaceAll(key, {{"_", "-"}});
    });
    for (const std::string& setting : SettingNames()) {
      const std::string key = absl::StrReplaceAll(setting, {{"_", "-"}});
      if (!settings.Has(key) || flags_.contains(key)) continue;
      return InvalidArgument(
          "'{0}' is a setting of models: write it into a model.yaml, or here as `set: [{0}=VALUE]`",
          setting);
    }
    settings.CheckKeys(known);
    CHAIRLIFT_RETURN_IF_ERROR(settings.status());
    for (const auto& [flag, value] : settings.Map("a map of flags")) {
      std::vector<std::string> values;
      if (value.IsList()) {
        for (const YamlValue& entry : value.List("a value, or a list of values")) {
          values.push_back(entry.Text("a value"));
        }
      } else {
        values.push_back(value.Text("a value, or a list of values"));
      }
      CHAIRLIFT_RETURN_IF_ERROR(settings.status());
      if (given_.contains(flag)) continue;
      CHAIRLIFT_RETURN_IF_ERROR(Annotate(Add(flag, flags_.at(flag), values, file), flag));
    }
    return absl::OkStatus();
  }

  Status Add(const std::string& flag, bool takes_value, const std::vector<std::string>& values,
             const std::string& source) {
    for (const std::string& value : values) {
      if (takes_value) {
        added_.push_back(fmt::format("--{}={}", flag, value));
        continue;
      }
      const std::string word = absl::AsciiStrToLower(value);
      if (word != "true" && word != "1" && word != "false" && word != "0") {
        return InvalidArgument("it is '{}'; a flag without a value is true or false", value);
      }
      if (word == "true" || word == "1") added_.push_back("--" + flag);
    }
    given_.insert(flag);
    sources_.of["--" + flag] = source;
    return absl::OkStatus();
  }

  const std::map<std::string, bool> flags_;
  std::set<std::string> given_;
  std::vector<std::string> added_;
  FlagSources sources_;
};

}  // namespace

std::string FlagSources::NamedIn(const std::string& message) const {
  for (const auto& [flag, source] : of) {
    for (size_t at = message.find(flag); at != std::string::npos; at = message.find(flag, at + 1)) {
      const char next = at + flag.size() < message.size() ? message[at + flag.size()] : ' ';
      if (next != '-' && !absl::ascii_isalnum(static_cast<unsigned char>(next))) {
        return fmt::format(" ({} is from {})", flag, source);
      }
    }
  }
  return "";
}

Environment OwnEnvironment() {
  Environment variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return variables;
}

StatusOr<FlagSources> AddFlagsFromOutside(const CLI::App& serve, const Environment& environment,
                                          std::vector<std::string>* arguments) {
  const auto command = std::find_if(arguments->begin(), arguments->end(), [](const auto& argument) {
    return !argument.starts_with('-');
  });
  if (command == arguments->end() || *command != serve.get_name()) return FlagSources();
  const auto asks = [](const std::string& argument) {
    return argument == "--help" || argument == "-h";
  };
  if (std::any_of(command, arguments->end(), asks)) return FlagSources();
  const std::string file = Additions::FileOf(*arguments, environment);
  Additions additions(serve, *arguments);
  CHAIRLIFT_RETURN_IF_ERROR(additions.FromVariables(environment));
  if (!file.empty()) CHAIRLIFT_RETURN_IF_ERROR(additions.FromFile(file));
  return additions.Finish(arguments);
}

}  // namespace chairlift
