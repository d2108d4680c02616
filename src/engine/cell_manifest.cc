#include "engine/cell_manifest.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <initializer_list>
#include <set>
#include <system_error>
#include <utility>

#include "base/status.h"
#include "tensor/dtype.h"

namespace chairlift {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxCells = 1024;
constexpr int kMaxRows = 65536;
constexpr int64_t kMaxExtraLength = 1 << 20;

// A map of the file: its place, for messages, and its keys, all of which must be known. The first
// error stays; what is read after it is empty.
class Fields {
 public:
  Fields(const YAML::Node& node, std::string where, std::initializer_list<const char*> keys,
         Status& status)
      : node_(node), where_(std::move(where)), status_(status) {
    std::string known;
    for (const char* key : keys) known += fmt::format("{}{}", known.empty() ? "" : ", ", key);
    if (!node_.IsMap()) Refuse("{} must be a map; its keys are: {}", where_, known);
    if (!status_.ok()) return;
    std::set<std::string> seen;
    for (const auto& item : node_) {
      const std::string key = item.first.IsScalar() ? item.first.Scalar() : "(not a name)";
      const bool found =
          std::any_of(keys.begin(), keys.end(), [&key](const char* name) { return key == name; });
      if (!found) Refuse("{} has no key '{}'; its keys are: {}", where_, key, known);
      if (!seen.insert(key).second) Refuse("{} has the key '{}' twice", where_, key);
    }
  }

  bool Has(const char* key) const { return node_.IsMap() && node_[key].IsDefined(); }
  YAML::Node Get(const char* key) {
    if (Has(key)) return node_[key];
    Refuse("{} needs the key '{}'", where_, key);
    return {};
  }
  std::string Place(const char* key) const { return where_ + "." + key; }

  std::string Name(const char* key) { return NameOf(Get(key), Place(key)); }
  std::string NameOr(const char* key, const std::string& fallback) {
    return Has(key) ? Name(key) : fallback;
  }
  int64_t Number(const char* key, int64_t first, int64_t last) {
    int64_t number = first;
    const YAML::Node node = Get(key);
    if (!status_.ok()) return number;
    try {
      number = node.as<int64_t>();
    } catch (const YAML::Exception&) {
      Refuse("{} must be a number", Place(key));
    }
    if (number < first || number > last) {
      Refuse("{} is {}; it must be in [{}, {}]", Place(key), number, first, last);
    }
    return number;
  }
  // Whether `key` is `all` rather than `one`, which it is where it is absent.
  bool AllRatherThan(const char* key, const char* all, const char* one) {
    if (!Has(key)) return false;
    const std::string word = Name(key);
    if (word != all && word != one) Refuse("{} must be '{}' or '{}'", Place(key), one, all);
    return word == all;
  }
  // Calls visit(entry, place) for each of a list.
  template <typename F>
  void Each(const char* key, F&& visit) {
    const YAML::Node list = Get(key);
    if (!status_.ok()) return;
    if (!list.IsSequence() || list.size() == 0) return Refuse("{} must be a list", Place(key));
    for (size_t i = 0; i < list.size() && status_.ok(); ++i) {
      visit(list[i], fmt::format("{}[{}]", Place(key), i));
    }
  }
  // Calls visit(name, value, place) for each of a map.
  template <typename F>
  void EachNamed(const char* key, F&& visit) {
    const YAML::Node map = Get(key);
    if (!status_.ok()) return;
    if (!map.IsMap() || map.size() == 0) return Refuse("{} must be a map of names", Place(key));
    std::set<std::string> seen;
    for (const auto& item : map) {
      if (!status_.ok()) return;
      const std::string name = NameOf(item.first, "a name in " + Place(key));
      if (!seen.insert(name).second) Refuse("{} has '{}' twice", Place(key), name);
      visit(name, item.second, fmt::format("{}.{}", Place(key), name));
    }
  }
  std::string NameOf(const YAML::Node& node, const std::string& place) {
    if (!status_.ok()) return {};
    if (!node.IsScalar() || node.Scalar().empty()) Refuse("{} must be a name", place);
    return node.IsScalar() ? node.Scalar() : "";
  }

 private:
  template <typename... Args>
  void Refuse(fmt::format_string<Args...> format, Args&&... args) {
    if (status_.ok()) status_ = InvalidArgument(format, std::forward<Args>(args)...);
  }

  YAML::Node node_;
  std::string where_;
  Status& status_;
};

TokensFeed ReadTokens(const YAML::Node& node, const std::string& where, Status& status) {
  Fields fields(node, where, {"input", "request"}, status);
  TokensFeed tokens;
  tokens.input = fields.Name("input");
  tokens.request = fields.NameOr("request", tokens.input);
  return tokens;
}

std::vector<StateFeed> ReadStates(Fields& of, Status& status) {
  std::vector<StateFeed> states;
  of.Each("states", [&](const YAML::Node& node, const std::string& where) {
    Fields fields(node, where, {"input", "output", "initial"}, status);
    states.push_back({fields.Name("input"), fields.Name("output"), fields.NameOr("initial", "")});
  });
  return states;
}

// `what` is read; `all` and `one` are the words for where.
std::vector<CollectedOutput> ReadOutputs(Fields& of, const char* what, const char* all,
                                         const char* one, Status& status) {
  std::vector<CollectedOutput> outputs;
  of.Each("outputs", [&](const YAML::Node& node, const std::string& where) {
    Fields fields(node, where, {"name", what, "at"}, status);
    CollectedOutput output;
    output.output = fields.Name(what);
    output.name = fields.NameOr("name", output.output);
    output.all = fields.AllRatherThan("at", all, one);
    outputs.push_back(std::move(output));
  });
  return outputs;
}

HeadCell ReadHead(const YAML::Node& node, const std::string& where, const char* all,
                  const char* one, Status& status) {
  Fields fields(node, where, {"cell", "at", "inputs", "outputs"}, status);
  HeadCell head;
  head.cell = fields.Name("cell");
  head.all = fields.AllRatherThan("at", all, one);
  fields.EachNamed("inputs",
                   [&](const std::string& name, const YAML::Node& value, const std::string& place) {
                     head.inputs.emplace(name, fields.NameOf(value, place));
                   });
  fields.Each("outputs", [&](const YAML::Node& entry, const std::string& place) {
    Fields output(entry, place, {"name", "output"}, status);
    CollectedOutput collected;
    collected.output = output.Name("output");
    collected.name = output.NameOr("name", collected.output);
    collected.all = head.all;
    head.outputs.push_back(std::move(collected));
  });
  return head;
}

ChainUnfold ReadChain(const YAML::Node& node, Status& status) {
  Fields fields(node, "unfold.chain", {"cell", "tokens", "lengths", "states", "outputs", "head"},
                status);
  ChainUnfold chain;
  chain.steps.cell = fields.Name("cell");
  chain.steps.tokens = ReadTokens(fields.Get("tokens"), fields.Place("tokens"), status);
  chain.lengths = fields.NameOr("lengths", "");
  chain.steps.states = ReadStates(fields, status);
  if (fields.Has("outputs") || !fields.Has("head")) {
    chain.outputs = ReadOutputs(fields, "output", "every_step", "last_step", status);
  }
  if (fields.Has("head")) {
    chain.head =
        ReadHead(fields.Get("head"), fields.Place("head"), "every_step", "last_step", status);
  }
  return chain;
}

Seq2SeqUnfold ReadSeq2Seq(const YAML::Node& node, Status& status) {
  Fields fields(node, "unfold.seq2seq",
                {"encoder", "decoder", "lengths", "go", "eos", "extra_length", "outputs"}, status);
  Seq2SeqUnfold model;
  {
    Fields encoder(fields.Get("encoder"), fields.Place("encoder"), {"cell", "tokens", "states"},
                   status);
    model.encoder.cell = encoder.Name("cell");
    model.encoder.tokens = ReadTokens(encoder.Get("tokens"), encoder.Place("tokens"), status);
    model.encoder.states = ReadStates(encoder, status);
  }
  {
    Fields decoder(fields.Get("decoder"), fields.Place("decoder"), {"cell", "token", "states"},
                   status);
    model.decoder = decoder.Name("cell");
    Fields token(decoder.Get("token"), decoder.Place("token"), {"input", "output"}, status);
    model.token_input = token.Name("input");
    model.token_output = token.Name("output");
    model.states = ReadStates(decoder, status);
  }
  model.lengths = fields.NameOr("lengths", "");
  model.go = fields.Number("go", INT32_MIN, INT32_MAX);
  model.eos = fields.Number("eos", INT32_MIN, INT32_MAX);
  model.extra_length = fields.Number("extra_length", 0, kMaxExtraLength);
  model.tokens_name = "tokens";
  model.lengths_name = "lengths";
  if (fields.Has("outputs")) {
    Fields outputs(fields.Get("outputs"), fields.Place("outputs"), {"tokens", "lengths"}, status);
    model.tokens_name = outputs.NameOr("tokens", model.tokens_name);
    model.lengths_name = outputs.NameOr("lengths", model.lengths_name);
  }
  return model;
}

TreeUnfold ReadTree(const YAML::Node& node, Status& status) {
  Fields fields(node, "unfold.tree",
                {"leaf", "internal", "tokens", "children", "states", "outputs", "head"}, status);
  TreeUnfold tree;
  tree.leaf = fields.Name("leaf");
  tree.internal = fields.Name("internal");
  tree.tokens = ReadTokens(fields.Get("tokens"), fields.Place("tokens"), status);
  tree.children = fields.NameOr("children", "children");
  fields.EachNamed("states",
                   [&](const std::string& name, const YAML::Node& value, const std::string& where) {
                     Fields state(value, where, {"leaf", "internal", "left", "right"}, status);
                     tree.states.push_back({name, state.Name("leaf"), state.Name("internal"),
                                            state.Name("left"), state.Name("right")});
                   });
  if (fields.Has("outputs") || !fields.Has("head")) {
    tree.outputs = ReadOutputs(fields, "state", "every_node", "root", status);
  }
  if (fields.Has("head")) {
    tree.head = ReadHead(fields.Get("head"), fields.Place("head"), "every_node", "root", status);
  }
  return tree;
}

// [batch, 3, ?]: names are dimensions that agree, ? is any.
SymbolicSpec ReadSpec(const std::string& name, const YAML::Node& node, const std::string& where,
                      Status& status) {
  Fields fields(node, where, {"type", "shape"}, status);
  SymbolicSpec spec{.name = name, .dtype = DType::kUndefined, .shape = {}};
  const std::string type = fields.Name("type");
  for (int t = 1; t <= static_cast<int>(DType::kBool); ++t) {
    if (DTypeName(static_cast<DType>(t)) == type) spec.dtype = static_cast<DType>(t);
  }
  if (status.ok() && spec.dtype == DType::kUndefined) {
    status = InvalidArgument("{} is '{}'; an element type is named as float32 or int64 are",
                             fields.Place("type"), type);
  }
  std::vector<Dim> dims;
  fields.Each("shape", [&](const YAML::Node& entry, const std::string& place) {
    const std::string word = fields.NameOf(entry, place);
    int64_t number = 0;
    if (word == "?") {
      dims.push_back(Dim::Unknown());
    } else if (!YAML::convert<int64_t>::decode(entry, number)) {
      dims.push_back(Dim::Symbol(word));
    } else if (number >= 0) {
      dims.emplace_back(number);
    } else {
      status = InvalidArgument("{} is {}; a dimension is a number, a name or ?", place, number);
    }
  });
  spec.shape = SymbolicShape(std::move(dims));
  return spec;
}

PluginUnfold ReadPlugin(const YAML::Node& node, Status& status) {
  Fields fields(node, "unfold", {"plugin", "options", "inputs", "outputs"}, status);
  PluginUnfold plugin;
  plugin.library = fields.Name("plugin");
  if (fields.Has("options")) {
    fields.EachNamed(
        "options", [&](const std::string& name, const YAML::Node& value, const std::string& place) {
          plugin.options.emplace(name, fields.NameOf(value, place));
        });
  }
  for (auto [key, specs] : {std::pair{"inputs", &plugin.inputs}, {"outputs", &plugin.outputs}}) {
    fields.EachNamed(key, [&, to = specs](const std::string& name, const YAML::Node& value,
                                          const std::string& place) {
      to->push_back(ReadSpec(name, value, place, status));
    });
  }
  return plugin;
}

std::vector<CellFile> ReadCells(const YAML::Node& node, Status& status) {
  std::vector<CellFile> cells;
  if (!node.IsMap() || node.size() == 0 || node.size() > kMaxCells) {
    status = InvalidArgument("cells must be a map of 1 to {} cells by name", kMaxCells);
    return cells;
  }
  for (const auto& item : node) {
    CellFile cell;
    cell.name = item.first.IsScalar() ? item.first.Scalar() : "";
    Fields fields(item.second, "cells." + cell.name, {"file", "max_batch_size", "priority"},
                  status);
    cell.file = fields.NameOr("file", cell.name + ".onnx");
    if (fields.Has("max_batch_size")) {
      cell.max_batch_size = static_cast<int>(fields.Number("max_batch_size", 1, kMaxRows));
    }
    if (fields.Has("priority")) {
      cell.priority = static_cast<int>(fields.Number("priority", -1'000'000, 1'000'000));
    }
    const auto same = [&cell](const CellFile& other) { return other.name == cell.name; };
    if (status.ok() && (cell.name.empty() || std::any_of(cells.begin(), cells.end(), same))) {
      status =
          InvalidArgument("cells: every cell needs a name of its own; '{}' is none", cell.name);
    }
    cells.push_back(std::move(cell));
  }
  return cells;
}

}  // namespace

StatusOr<std::optional<CellManifest>> ParseCellManifest(const std::string& yaml) {
  try {
    const YAML::Node root = YAML::Load(yaml);
    if (!root.IsMap()) return std::nullopt;
    const YAML::Node cells = root["cells"];
    const YAML::Node unfold = root["unfold"];
    if (!cells.IsDefined() && !unfold.IsDefined()) return std::nullopt;
    if (!cells.IsDefined() || !unfold.IsDefined()) {
      return InvalidArgument("a model made of cells needs both `cells` and `unfold`");
    }
    Status status;
    CellManifest manifest;
    manifest.cells = ReadCells(cells, status);
    CHAIRLIFT_RETURN_IF_ERROR(status);
    if (unfold.IsMap() && unfold["plugin"].IsDefined()) {
      manifest.unfold = ReadPlugin(unfold, status);
    } else if (Fields(unfold, "unfold", {"chain", "seq2seq", "tree"}, status).Has("chain")) {
      manifest.unfold = ReadChain(unfold["chain"], status);
    } else if (unfold.IsMap() && unfold["seq2seq"].IsDefined()) {
      manifest.unfold = ReadSeq2Seq(unfold["seq2seq"], status);
    } else if (unfold.IsMap() && unfold["tree"].IsDefined()) {
      manifest.unfold = ReadTree(unfold["tree"], status);
    }
    CHAIRLIFT_RETURN_IF_ERROR(status);
    if (!unfold["plugin"].IsDefined() && unfold.size() != 1) {
      return InvalidArgument("unfold must be one of chain, seq2seq, tree and plugin");
    }
    return std::optional(std::move(manifest));
  } catch (const YAML::Exception& error) {
    return InvalidArgument("it is not YAML: {}", error.what());
  }
}

StatusOr<fs::path> FileInside(const fs::path& folder, const std::string& name) {
  const fs::path relative(name);
  bool inside = !relative.empty() && relative.is_relative() && name.find('\0') == std::string::npos;
  for (const fs::path& part : relative) inside &= part != "..";
  if (!inside) {
    return InvalidArgument("'{}' is not the name of a file in the model's folder", name);
  }
  std::error_code error;
  const fs::path root = fs::canonical(folder, error);
  if (error) return NotFound("{} cannot be read: {}", folder.string(), error.message());
  const fs::path file = fs::canonical(root / relative, error);
  if (error || !fs::is_regular_file(file, error)) {
    return NotFound("{} has no file '{}'", folder.string(), name);
  }
  const auto [root_end, file_end] =
      std::mismatch(root.begin(), root.end(), file.begin(), file.end());
  if (root_end != root.end()) {
    return InvalidArgument("'{}' leads out of the model's folder", name);
  }
  return file;
}

}  // namespace chairlift
