#include "engine/programs/cells/cell_manifest.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/status.h"
#include "tensor/dtype.h"

namespace chairlift {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxCells = 1024;
constexpr NumberRange kCellBatchSizes{.unit = "rows", .least = 1, .most = 65536};
constexpr NumberRange kPriorities{.least = -1'000'000, .most = 1'000'000};
constexpr int64_t kMaxExtraLength = 1 << 20;

// Whether `key` is `all` rather than `one`; `one` if absent.
bool AllRatherThan(const YamlValue& of, const char* key, const char* all, const char* one) {
  if (!of.Has(key)) return false;
  const YamlValue value = of.At(key);
  const std::string word = value.Name();
  if (word != all && word != one) value.RefuseAllBut(fmt::format("'{}' or '{}'", one, all));
  return word == all;
}

std::map<std::string, std::string> ReadNames(const YamlValue& value) {
  std::map<std::string, std::string> names;
  for (const auto& [name, entry] : value.Map("a map of names", 1))
    names.emplace(name, entry.Name());
  return names;
}

TokensFeed ReadTokens(const YamlValue& value) {
  value.CheckKeys({"input", "request"});
  TokensFeed tokens;
  tokens.input = value.At("input").Name();
  tokens.request = value.NameOr("request", tokens.input);
  return tokens;
}

std::vector<StateFeed> ReadStates(const YamlValue& value) {
  std::vector<StateFeed> states;
  for (const YamlValue& state : value.List("a list of states", 1)) {
    state.CheckKeys({"input", "output", "initial"});
    states.push_back(
        {state.At("input").Name(), state.At("output").Name(), state.NameOr("initial", "")});
  }
  return states;
}

// `what` is the setting; `all` and `one` are the words for where an output is collected.
std::vector<CollectedOutput> ReadOutputs(const YamlValue& value, const char* what, const char* all,
                                         const char* one) {
  std::vector<CollectedOutput> outputs;
  for (const YamlValue& entry : value.List("a list of outputs", 1)) {
    entry.CheckKeys({"name", what, "at"});
    CollectedOutput output;
    output.output = entry.At(what).Name();
    output.name = entry.NameOr("name", output.output);
    output.all = AllRatherThan(entry, "at", all, one);
    outputs.push_back(std::move(output));
  }
  return outputs;
}

HeadCell ReadHead(const YamlValue& value, const char* all, const char* one) {
  value.CheckKeys({"cell", "at", "inputs", "outputs"});
  HeadCell head;
  head.cell = value.At("cell").Name();
  head.all = AllRatherThan(value, "at", all, one);
  head.inputs = ReadNames(value.At("inputs"));
  for (const YamlValue& entry : value.At("outputs").List("a list of outputs", 1)) {
    entry.CheckKeys({"name", "output"});
    const std::string output = entry.At("output").Name();
    head.outputs.push_back({entry.NameOr("name", output), output, head.all});
  }
  return head;
}

ChainUnfold ReadChain(const YamlValue& value) {
  value.CheckKeys({"cell", "tokens", "lengths", "states", "outputs", "head"});
  ChainUnfold chain;
  chain.steps.cell = value.At("cell").Name();
  chain.steps.tokens = ReadTokens(value.At("tokens"));
  chain.lengths = value.NameOr("lengths", "");
  chain.steps.states = ReadStates(value.At("states"));
  const bool head = value.Has("head");
  if (value.Has("outputs") || !head) {
    chain.outputs = ReadOutputs(value.At("outputs"), "output", "every_step", "last_step");
  }
  if (head) chain.head = ReadHead(value.At("head"), "every_step", "last_step");
  return chain;
}

Seq2SeqUnfold ReadSeq2Seq(const YamlValue& value) {
  value.CheckKeys({"encoder", "decoder", "lengths", "go", "eos", "extra_length", "outputs"});
  Seq2SeqUnfold model;
  const YamlValue encoder = value.At("encoder");
  encoder.CheckKeys({"cell", "tokens", "states"});
  model.encoder.cell = encoder.At("cell").Name();
  model.encoder.tokens = ReadTokens(encoder.At("tokens"));
  model.encoder.states = ReadStates(encoder.At("states"));

  const YamlValue decoder = value.At("decoder");
  decoder.CheckKeys({"cell", "token", "states"});
  model.decoder = decoder.At("cell").Name();
  const YamlValue token = decoder.At("token");
  token.CheckKeys({"input", "output"});
  model.token_input = token.At("input").Name();
  model.token_output = token.At("output").Name();
  model.states = ReadStates(decoder.At("states"));

  constexpr NumberRange kToken{.least = INT32_MIN, .most = INT32_MAX};
  model.lengths = value.NameOr("lengths", "");
  model.go = value.At("go").Number(kToken);
  model.eos = value.At("eos").Number(kToken);
  model.extra_length =
      value.At("extra_length").Number({.unit = "tokens", .least = 0, .most = kMaxExtraLength});
  model.tokens_name = "tokens";
  model.lengths_name = "lengths";
  if (value.Has("outputs")) {
    const YamlValue outputs = value.At("outputs");
    outputs.CheckKeys({"tokens", "lengths"});
    model.tokens_name = outputs.NameOr("tokens", model.tokens_name);
    model.lengths_name = outputs.NameOr("lengths", model.lengths_name);
  }
  return model;
}

TreeUnfold ReadTree(const YamlValue& value) {
  value.CheckKeys({"leaf", "internal", "tokens", "children", "states", "outputs", "head"});
  TreeUnfold tree;
  tree.leaf = value.At("leaf").Name();
  tree.internal = value.At("internal").Name();
  tree.tokens = ReadTokens(value.At("tokens"));
  tree.children = value.NameOr("children", "children");
  for (const auto& [name, state] : value.At("states").Map("a map of states", 1)) {
    state.CheckKeys({"leaf", "internal", "left", "right"});
    tree.states.push_back({name, state.At("leaf").Name(), state.At("internal").Name(),
                           state.At("left").Name(), state.At("right").Name()});
  }
  const bool head = value.Has("head");
  if (value.Has("outputs") || !head) {
    tree.outputs = ReadOutputs(value.At("outputs"), "state", "every_node", "root");
  }
  if (head) tree.head = ReadHead(value.At("head"), "every_node", "root");
  return tree;
}

// [batch, 3, ?]: names are dimensions that must agree, ? is any.
SymbolicSpec ReadSpec(const std::string& name, const YamlValue& value) {
  value.CheckKeys({"type", "shape"});
  SymbolicSpec spec{.name = name, .dtype = DType::kUndefined, .shape = {}};
  const std::string type = value.At("type").Name();
  for (int t = 1; t <= static_cast<int>(DType::kBool); ++t) {
    if (DTypeName(static_cast<DType>(t)) == type) spec.dtype = static_cast<DType>(t);
  }
  if (spec.dtype == DType::kUndefined) {
    value.At("type").RefuseAllBut("an element type, as float32 or int64");
  }
  std::vector<Dim> dims;
  for (const YamlValue& entry : value.At("shape").List("a list of dimensions", 1)) {
    if (entry.IsNumber()) {
      dims.emplace_back(entry.Number({.unit = "elements", .least = 0}));
    } else if (const std::string word = entry.Name(); word == "?") {
      dims.push_back(Dim::Unknown());
    } else {
      dims.push_back(Dim::Symbol(word));
    }
  }
  spec.shape = SymbolicShape(std::move(dims));
  return spec;
}

PluginUnfold ReadPlugin(const YamlValue& value) {
  value.CheckKeys({"plugin", "options", "inputs", "outputs"});
  PluginUnfold plugin;
  plugin.library = value.At("plugin").Name();
  if (value.Has("options")) plugin.options = ReadNames(value.At("options"));
  for (auto [key, specs] : {std::pair{"inputs", &plugin.inputs}, {"outputs", &plugin.outputs}}) {
    for (const auto& [name, spec] : value.At(key).Map("a map of tensors", 1)) {
      specs->push_back(ReadSpec(name, spec));
    }
  }
  return plugin;
}

std::vector<CellFile> ReadCells(const YamlValue& value) {
  std::vector<CellFile> cells;
  const auto entries = value.Map("a map of cells by name", 1);
  if (entries.size() > kMaxCells) {
    value.Refuse("cells has {} cells; it may have {}", entries.size(), kMaxCells);
  }
  for (const auto& [name, entry] : entries) {
    entry.CheckKeys({"file", "max_batch_size", "priority"});
    CellFile cell{.name = name, .file = entry.NameOr("file", name + ".onnx")};
    if (entry.Has("max_batch_size")) {
      cell.max_batch_size = static_cast<int>(entry.At("max_batch_size").Number(kCellBatchSizes));
    }
    if (entry.Has("priority")) {
      cell.priority = static_cast<int>(entry.At("priority").Number(kPriorities));
    }
    cells.push_back(std::move(cell));
  }
  return cells;
}

void ReadUnfold(const YamlValue& value, CellManifest& manifest) {
  if (value.Has("plugin")) {
    manifest.unfold = ReadPlugin(value);
    return;
  }
  value.CheckKeys({"chain", "seq2seq", "tree", "plugin"});
  const auto entries = value.Map("one of chain, seq2seq, tree and plugin", 1);
  if (entries.size() != 1) value.RefuseAllBut("one of chain, seq2seq, tree and plugin");
  if (value.Has("chain")) {
    manifest.unfold = ReadChain(value.At("chain"));
  } else if (value.Has("seq2seq")) {
    manifest.unfold = ReadSeq2Seq(value.At("seq2seq"));
  } else {
    manifest.unfold = ReadTree(value.At("tree"));
  }
}

}  // namespace

StatusOr<std::optional<CellManifest>> ReadCellManifest(const YamlValue& settings) {
  if (!settings.Has("cells") && !settings.Has("unfold")) return std::nullopt;
  if (!settings.Has("cells") || !settings.Has("unfold")) {
    return InvalidArgument("a model made of cells needs both `cells` and `unfold`");
  }
  CellManifest manifest;
  manifest.cells = ReadCells(settings.At("cells"));
  ReadUnfold(settings.At("unfold"), manifest);
  CHAIRLIFT_RETURN_IF_ERROR(settings.status());
  return std::optional(std::move(manifest));
}

StatusOr<fs::path> PathInside(const fs::path& folder, const std::string& name) {
  const fs::path relative(name);
  bool inside =
      relative.has_filename() && relative.is_relative() && name.find('\0') == std::string::npos;
  for (const fs::path& part : relative) inside &= part != "..";
  if (!inside) {
    return InvalidArgument("'{}' is not the name of a file in the model's folder", name);
  }
  std::error_code error;
  const fs::path root = fs::canonical(folder, error);
  if (error) return NotFound("{} cannot be read: {}", folder.string(), error.message());
  const fs::path in = fs::canonical(root / relative.parent_path(), error);
  if (!error && std::mismatch(root.begin(), root.end(), in.begin(), in.end()).first != root.end()) {
    return InvalidArgument("'{}' leads out of the model's folder", name);
  }
  if (error || !fs::is_regular_file(in / relative.filename(), error)) {
    return NotFound("{} has no file '{}'", folder.string(), name);
  }
  return in / relative.filename();
}

StatusOr<fs::path> FileInside(const fs::path& folder, const std::string& name) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const fs::path path, PathInside(folder, name));
  std::error_code error;
  const fs::path root = fs::canonical(folder, error);
  const fs::path file = fs::canonical(path, error);
  if (error) return NotFound("{} has no file '{}'", folder.string(), name);
  if (std::mismatch(root.begin(), root.end(), file.begin(), file.end()).first != root.end()) {
    return InvalidArgument("'{}' leads out of the model's folder", name);
  }
  return file;
}

}  // namespace chairlift
