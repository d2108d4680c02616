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

// The values that a cell reads and outputs, including states.
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

}  // namespace

std::string OperatorList(const Graph& graph) {
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

std::string CellsTable(const SlicedModel& model, std::span<Cell* const> cells) {
  Table table({"cell", "rows", "along", "reads", "gives", "weights", "operators"});
  for (size_t i = 0; i < model.cells.size(); ++i) {
    const SlicedCell& cell = model.cells[i];
    const Graph& graph = cells[i]->executable().graph();
    std::string along = cell.length < 0 ? "" : model.lengths[cell.length].name;
    if (cell.kind == SlicedCell::Kind::kRecurrent && cell.reverse) along += ", backwards";
    table.Add({cell.name, RowsOf(cell.kind), along, List(model, CellReads(cell)),
               List(model, CellGives(cell)), HumanBytes(static_cast<double>(WeightBytes(graph))),
               OperatorList(graph)});
  }
  return table.ToString();
}

CellsDiagram DiagramOf(const SlicedModel& model) {
  using Box = CellsDiagram::Box;
  CellsDiagram diagram;
  std::vector<int> makers(model.values.size(), -1);
  const auto about = [&](int value, const SymbolicShape& row) {
    return row.ToString() + (model.values[value].length < 0 ? "" : " a token");
  };
  for (int value : model.inputs) {
    const CellValue& input = model.values[value];
    makers[value] = diagram.Add(
        {.kind = Box::Kind::kInput, .name = input.name, .about = about(value, input.row)});
  }
  for (const SlicedCell& cell : model.cells) {
    Box box{.name = cell.name, .about = RowsOf(cell.kind)};
    const bool steps = cell.kind == SlicedCell::Kind::kRecurrent;
    if (steps) box.again = "state";
    box.kind = steps                                    ? Box::Kind::kSteps
               : cell.kind == SlicedCell::Kind::kTokens ? Box::Kind::kTokens
                                                        : Box::Kind::kLanes;
    if (steps && cell.reverse) box.about += ", backwards";
    const int at = diagram.Add(std::move(box));
    for (int value : CellReads(cell)) {
      diagram.Connect(makers[value], at, model.values[value].row.ToString());
    }
    for (int value : CellGives(cell)) makers[value] = at;
  }
  for (const SlicedOutput& output : model.outputs) {
    const int at = diagram.Add({.kind = Box::Kind::kOutput,
                                .name = output.name,
                                .about = about(output.value, output.row)});
    diagram.Connect(makers[output.value], at, "");
  }
  return diagram;
}

CellsDiagram DiagramOfWhole(const std::string& name, const Graph& graph,
                            std::span<const SymbolicSpec> inputs,
                            std::span<const SymbolicSpec> outputs) {
  using Box = CellsDiagram::Box;
  CellsDiagram diagram;
  std::vector<int> sources;
  for (const SymbolicSpec& input : inputs) {
    sources.push_back(diagram.Add(
        {.kind = Box::Kind::kInput, .name = input.name, .about = input.shape.ToString()}));
  }
  const int whole = diagram.Add(
      {.name = name, .about = Counted(static_cast<int64_t>(graph.nodes.size()), "operator")});
  for (const int source : sources) diagram.Connect(source, whole, "");
  for (const SymbolicSpec& output : outputs) {
    diagram.Connect(
        whole,
        diagram.Add(
            {.kind = Box::Kind::kOutput, .name = output.name, .about = output.shape.ToString()}),
        "");
  }
  return diagram;
}

CellsDiagram DiagramOfGeneration(const Graph& step, const CacheView& cache) {
  using Box = CellsDiagram::Box;
  const bool source = cache.max_source > 0;
  CellsDiagram diagram;
  const auto up_to = [](int64_t tokens) { return "up to " + Counted(tokens, "token"); };
  const int given = diagram.Add({.kind = Box::Kind::kInput,
                                 .name = source ? "source" : "prompt",
                                 .about = up_to(source ? cache.max_source : cache.max_length)});
  const int encoder = source ? diagram.Add({.name = "encoder", .about = "once a request"}) : -1;
  const int held = diagram.Add(
      {.kind = Box::Kind::kTokens,
       .name = "keys and values",
       .about = fmt::format("{} of {} tokens, {} bytes a token", Counted(cache.blocks, "block"),
                            cache.block_tokens, cache.token_bytes)});
  const int run =
      diagram.Add({.kind = Box::Kind::kSteps,
                   .name = "step",
                   .about = Counted(static_cast<int64_t>(step.nodes.size()), "operator") +
                            ", all running requests",
                   .again = "the next token, its keys and values"});
  if (source) {
    diagram.Connect(given, encoder, "tokens");
    diagram.Connect(encoder, held, "of the source");
  } else {
    diagram.Connect(given, run, "pieces, beside steps");
  }
  diagram.Connect(held, run, "of earlier tokens");
  diagram.Connect(
      run,
      diagram.Add(
          {.kind = Box::Kind::kOutput, .name = "output_ids", .about = up_to(cache.max_length)}),
      "tokens chosen");
  return diagram;
}

}  // namespace chairlift
