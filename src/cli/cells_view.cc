#include "cli/cells_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "cli/terminal.h"

namespace chairlift {
namespace {

const char* RowsOf(SlicedCell::Kind kind) {
  switch (kind) {
    case SlicedCell::Kind::kLanes:
      return "lanes";
    case SlicedCell::Kind::kTokens:
      return "tokens";
    case SlicedCell::Kind::kRecurrent:
      return "steps";
  }
  return "";
}

// "Add, MatMul, 2 Reshape"
std::string Operators(const Graph& graph) {
  std::map<std::string, int> counts;
  for (const Node& node : graph.nodes) ++counts[node.def->name];
  std::string text;
  for (const auto& [name, count] : counts) {
    text += text.empty() ? "" : ", ";
    text += count == 1 ? name : fmt::format("{} {}", count, name);
  }
  return text;
}

size_t WeightBytes(const Graph& graph) {
  size_t bytes = 0;
  for (const Value& value : graph.values) bytes += value.constant.byte_size();
  return bytes;
}

std::string Describe(const SlicedModel& model, int value) {
  const CellValue& v = model.values[value];
  return v.name + v.row.ToString() + (v.length < 0 ? "" : "*");
}

std::string List(const SlicedModel& model, const std::vector<int>& values) {
  std::string text;
  for (int value : values) {
    if (value >= 0) text += (text.empty() ? "" : ", ") + Describe(model, value);
  }
  return text;
}

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + '"';
}

}  // namespace

std::vector<int> CellReads(const SlicedCell& cell) {
  std::vector<int> values = cell.inputs;
  for (const CellState& state : cell.states) values.push_back(state.initial);
  values.push_back(cell.tokens_that_count);
  std::erase(values, -1);
  return values;
}

std::vector<int> CellGives(const SlicedCell& cell) {
  std::vector<int> values = cell.outputs;
  for (const CellState& state : cell.states) values.push_back(state.final_value);
  std::erase(values, -1);
  return values;
}

std::string CellsTable(const SlicedModel& model) {
  Table table({"cell", "rows", "along", "reads", "gives", "weights", "operators"});
  for (const SlicedCell& cell : model.cells) {
    std::string along = cell.length < 0 ? "" : model.lengths[cell.length].name;
    if (cell.kind == SlicedCell::Kind::kRecurrent && cell.reverse) along += ", backwards";
    table.Add({cell.name, RowsOf(cell.kind), along, List(model, CellReads(cell)),
               List(model, CellGives(cell)),
               HumanBytes(static_cast<double>(WeightBytes(*cell.graph))), Operators(*cell.graph)});
  }
  return table.ToString();
}

std::string CellsDot(const SlicedModel& model) {
  std::string text = "digraph cells {\n  rankdir=LR;\n  node [fontname=\"sans-serif\"];\n";
  std::vector<std::string> makers(model.values.size());
  for (int value : model.inputs) {
    makers[value] = fmt::format("in{}", value);
    text +=
        fmt::format("  in{} [shape=plaintext, label={}];\n", value, Quoted(Describe(model, value)));
  }
  for (size_t c = 0; c < model.cells.size(); ++c) {
    const SlicedCell& cell = model.cells[c];
    const bool steps = cell.kind == SlicedCell::Kind::kRecurrent;
    text += fmt::format("  cell{} [shape=box, style={}, label={}];\n", c,
                        steps ? "\"rounded,bold\"" : "rounded",
                        Quoted(fmt::format("{}\n{}", cell.name, RowsOf(cell.kind))));
    for (int value : CellReads(cell)) {
      text += fmt::format("  {} -> cell{} [label={}];\n", makers[value], c,
                          Quoted(model.values[value].row.ToString()));
    }
    if (steps) text += fmt::format("  cell{0} -> cell{0} [style=dashed];\n", c);
    for (int value : CellGives(cell)) makers[value] = fmt::format("cell{}", c);
  }
  for (size_t i = 0; i < model.outputs.size(); ++i) {
    const SlicedOutput& output = model.outputs[i];
    text += fmt::format("  out{} [shape=plaintext, label={}];\n  {} -> out{};\n", i,
                        Quoted(output.name + output.row.ToString()), makers[output.value], i);
  }
  return text + "}\n";
}

}  // namespace chairlift
