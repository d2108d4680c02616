// `chairlift inspect`: a model in words and tables, without running it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "chairlift/engine.h"
#include "cli/cells_view.h"
#include "cli/commands.h"
#include "cli/inputs.h"
#include "cli/load_bar.h"
#include "cli/manifest_view.h"
#include "cli/model_path.h"
#include "cli/passes_view.h"
#include "cli/terminal.h"
#include "engine/cell_program.h"
#include "engine/model_config.h"
#include "graph/onnx/import.h"
#include "graph/ragged/ragged.h"
#include "runtime/executable.h"

namespace chairlift {
namespace {

struct InspectFlags {
  std::string model;
  bool passes = false;
  std::vector<std::string> disabled_passes;
  std::vector<std::string> shapes;
  std::optional<int64_t> max_embedding_bytes;
  std::string dot;
  std::string svg;
  InputShapes input_shapes;
};

void PrintSignature(const std::vector<SymbolicSpec>& inputs,
                    const std::vector<SymbolicSpec>& outputs) {
  Table table({"", "name", "type", "shape"});
  const auto add = [&table](const char* what, const std::vector<SymbolicSpec>& specs) {
    for (const SymbolicSpec& spec : specs) {
      table.Add({what, spec.name, std::string(DTypeName(spec.dtype)), spec.shape.ToString()});
    }
  };
  add("input", inputs);
  add("output", outputs);
  fmt::print("{}\n", table.ToString());
}

void CountOperators(const Graph& graph, std::map<std::string, int>& counts) {
  for (const Node& node : graph.nodes) {
    const std::string& domain = node.def->domain;
    ++counts[domain.empty() ? node.def->name : domain + "::" + node.def->name];
    for (const auto& [name, body] : Subgraphs(node)) CountOperators(*body, counts);
  }
}

void PrintOperators(const Graph& graph) {
  std::map<std::string, int> counts;
  CountOperators(graph, counts);
  std::vector<std::pair<int, std::string>> sorted;
  sorted.reserve(counts.size());
  for (const auto& [name, count] : counts) sorted.emplace_back(-count, name);
  std::sort(sorted.begin(), sorted.end());
  fmt::print("operators, after the passes:\n ");
  for (const auto& [count, name] : sorted) fmt::print(" {} {}", -count, name);
  fmt::print("\n\n");
}

void PrintPasses(const Graph& graph, std::span<const PassReport> reports) {
  fmt::print("{}\n", PassesTable(reports));
  if (const std::string fused = FusedTable(graph); !fused.empty()) fmt::print("{}\n", fused);
  const std::vector<std::string> left = LeftApart(reports);
  if (!left.empty()) fmt::print("left as it was, by pass:\n");
  for (const std::string& line : left) fmt::print("  {}\n", line);
  if (!left.empty()) fmt::print("\n");
}

// The shapes of a packed model's inputs for one request, given those of the original's.
StatusOr<std::vector<Shape>> PackedShapes(std::span<const RaggedInput> inputs,
                                          std::span<const Shape> shapes) {
  std::optional<int64_t> rows, length;
  const auto agree = [](std::optional<int64_t>& known, int64_t dim) {
    return std::exchange(known, dim).value_or(dim) == dim;
  };
  for (const RaggedInput& input : inputs) {
    if (input.source < 0) continue;
    const Shape& shape = shapes[static_cast<size_t>(input.source)];
    const bool of_tokens = input.role == RaggedRole::kTokens;
    if (shape.rank() < (of_tokens ? 2 : 1)) {
      return InvalidArgument("{} is not [batch{}, ...]", shape.ToString(),
                             of_tokens ? ", length" : "");
    }
    if (!agree(rows, shape[0]) || (of_tokens && !agree(length, shape[1]))) {
      return InvalidArgument(
          "inputs must be of equal batch and length, as --batch and --length make them");
    }
  }
  const int64_t sequences = rows.value_or(1);
  const int64_t tokens = sequences * length.value_or(1);
  std::vector<Shape> packed;
  for (const RaggedInput& input : inputs) {
    switch (input.role) {
      case RaggedRole::kOffsets:
        packed.push_back(Shape{sequences + 1});
        break;
      case RaggedRole::kPositions:
        packed.push_back(Shape{tokens});
        break;
      case RaggedRole::kRows:
        packed.push_back(shapes[static_cast<size_t>(input.source)]);
        break;
      case RaggedRole::kTokens:
        packed.push_back(shapes[static_cast<size_t>(input.source)]);
        packed.back().Erase(0);
        packed.back()[0] = tokens;
        break;
    }
  }
  return packed;
}

// `packed`: how a request goes into the executable, where that takes packed tokens.
Status PrintMemory(Executable& executable, const std::vector<RaggedInput>* packed,
                   const std::vector<TensorSpec>& inputs, const InputShapes& input_shapes) {
  CHAIRLIFT_RETURN_IF_ERROR(CheckShapeNames(inputs, input_shapes));
  std::vector<Shape> shapes;
  std::string text;
  for (const TensorSpec& spec : inputs) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const Shape shape, ResolveShape(spec, input_shapes));
    text += fmt::format("{}{}{}", text.empty() ? "" : ", ", spec.name, shape.ToString());
    shapes.push_back(shape);
  }
  const auto prepare = [&]() -> StatusOr<PlanStats> {
    if (packed != nullptr) {
      CHAIRLIFT_ASSIGN_OR_RETURN(shapes, PackedShapes(*packed, shapes));
    }
    return executable.Prepare(shapes, 1);
  };
  const auto stats = prepare();
  if (!stats.ok()) {
    fmt::print("memory: no plan for {}: {}\n  name shapes that fit, as --shape {}=1x3x224x224\n\n",
               text, Message(stats.status()), inputs.empty() ? "x" : inputs[0].name);
    return absl::OkStatus();
  }
  fmt::print("memory, for {}:\n", text);
  Table table({"weights", "activations", "without planning", "steps", "folded", "late"});
  table.Add({HumanBytes(static_cast<double>(executable.weight_bytes())),
             HumanBytes(static_cast<double>(stats->arena_bytes)),
             HumanBytes(static_cast<double>(stats->tensor_bytes)), std::to_string(stats->steps),
             std::to_string(stats->folded_nodes), std::to_string(stats->late_nodes)});
  fmt::print("{}\n", table.ToString());
  return absl::OkStatus();
}

Status WriteFile(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  return file ? absl::OkStatus() : Unavailable("cannot write {}", path);
}

Status WriteDiagram(const CellsDiagram& diagram, const InspectFlags& flags) {
  if (!flags.dot.empty()) CHAIRLIFT_RETURN_IF_ERROR(WriteFile(flags.dot, ToDot(diagram)));
  if (!flags.svg.empty()) CHAIRLIFT_RETURN_IF_ERROR(WriteFile(flags.svg, ToSvg(diagram)));
  return absl::OkStatus();
}

Status PrintCells(const StatusOr<SlicedModel>& sliced, const InspectFlags& flags) {
  if (!sliced.ok()) {
    fmt::print("cells: none: {}\n\n", Message(sliced.status()));
    return flags.dot.empty() && flags.svg.empty() ? absl::OkStatus() : sliced.status();
  }
  fmt::print("cells, their values by row (* of each token):\n{}\n", CellsTable(*sliced));
  for (const std::string& note : sliced->notes) fmt::print("  {}\n", note);
  if (!sliced->notes.empty()) fmt::print("\n");
  return WriteDiagram(DiagramOf(*sliced), flags);
}

// "batches of 1 to 96 rows, 41 µs at 1, 610 µs at 96"
std::string BatchesOf(const CellBatching& cell) {
  std::string text =
      fmt::format("batches of {} to {} rows", cell.min_batch_size, cell.max_batch_size);
  if (cell.costs.empty()) return text + ", not timed";
  const auto largest = std::prev(cell.costs.upper_bound(cell.max_batch_size));
  for (const auto& [rows, cost] : cell.costs) {
    if (rows != 1 && rows != largest->first) continue;
    text += fmt::format(", {} at {}", HumanSeconds(static_cast<double>(cost.count()) * 1e-9), rows);
  }
  return text;
}

void PrintServing(const ModelMetadata& metadata, int workers) {
  if (!metadata.cells.empty()) fmt::print("batches, with {} workers:\n", workers);
  for (const CellBatching& cell : metadata.cells) {
    fmt::print("  cell {}: {}\n", cell.name, BatchesOf(cell));
  }
  fmt::print("{}diagnosis: {}\n", metadata.cells.empty() ? "" : "\n", metadata.diagnosis);
}

void PrintRagged(const StatusOr<RaggedModel>& ragged) {
  if (!ragged.ok()) {
    fmt::print("ragged: no: {}\n\n", Message(ragged.status()));
    return;
  }
  fmt::print("ragged: requests' tokens are packed, one after the other, and nothing is padded\n");
  for (const std::string& note : ragged->notes) fmt::print("  {}\n", note);
  fmt::print("\n");
}

std::vector<SymbolicSpec> Specs(const Graph& graph, const std::vector<ValueId>& ids) {
  std::vector<SymbolicSpec> specs;
  for (const ValueId id : ids) {
    const Value& value = graph.values[static_cast<size_t>(id)];
    specs.push_back({value.name, value.dtype, value.shape});
  }
  return specs;
}

// Of a model that runs packed: what the proof knows of its outputs' shapes.
void NameDims(const RaggedModel& ragged, const std::vector<SymbolicSpec>& inputs,
              std::vector<SymbolicSpec>& outputs) {
  for (const RaggedInput& input : ragged.inputs) {
    if (input.role != RaggedRole::kTokens) continue;
    const SymbolicShape& tokens = inputs[static_cast<size_t>(input.source)].shape;
    for (size_t i = 0; i < outputs.size(); ++i) {
      SymbolicShape& shape = outputs[i].shape;
      const int known = ragged.output_is_tokens[i] ? 2 : 1;
      for (int axis = 0; shape.has_rank() && axis < std::min(known, shape.rank()); ++axis) {
        shape[axis] = tokens[axis];
      }
    }
    return;
  }
}

Status InspectFile(const ModelPath& model, const InspectFlags& flags, Engine& engine) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const ImportedModel imported, ImportOnnxFile(model.path));
  fmt::print("{}: opset {}{}{}\n\n", model.path.string(), imported.opset,
             imported.producer.empty() ? "" : ", by ", imported.producer);
  const Graph& graph = imported.graph;
  const ModelConfig& config = model.config;
  const StatusOr<SlicedModel> sliced =
      SliceIntoCells(graph, {.max_embedding_bytes = config.max_embedding_bytes});
  // What stands in the way of packing is told of models that might run so.
  const bool in_cells = sliced.ok() && WantsCells(config.policy);
  const bool may_pack = !in_cells && WantsTokens(config.policy);
  const StatusOr<RaggedModel> ragged =
      may_pack ? MakeRagged(graph) : Unimplemented("policy '{}'", config.policy);
  ExecutableOptions options;
  options.disabled_passes = config.disabled_passes;
  CHAIRLIFT_ASSIGN_OR_RETURN(const auto executable,
                             Executable::Create(ragged.ok() ? ragged->graph : graph, options));
  const std::vector<SymbolicSpec> inputs = Specs(graph, graph.inputs);
  std::vector<SymbolicSpec> outputs =
      ragged.ok() ? Specs(graph, graph.outputs) : executable->outputs();
  if (ragged.ok()) NameDims(*ragged, inputs, outputs);
  PrintSignature(inputs, outputs);
  PrintOperators(executable->graph());
  CHAIRLIFT_RETURN_IF_ERROR(PrintCells(sliced, flags));
  if (may_pack) PrintRagged(ragged);
  if (flags.passes) {
    const std::vector<PassReport>& reports = executable->pass_reports();
    PrintPasses(executable->graph(), ragged.ok() ? Joined(ragged->passes, reports) : reports);
  }
  CHAIRLIFT_RETURN_IF_ERROR(engine.LoadModel("model", model.path, config));
  CHAIRLIFT_ASSIGN_OR_RETURN(const ModelMetadata metadata, engine.Metadata("model"));
  CHAIRLIFT_RETURN_IF_ERROR(PrintMemory(*executable, ragged.ok() ? &ragged->inputs : nullptr,
                                        metadata.inputs, flags.input_shapes));
  PrintServing(metadata, engine.workers());
  return absl::OkStatus();
}

Status InspectManifest(const ModelPath& model, const InspectFlags& flags, Engine& engine) {
  ExecutableOptions options;
  options.disabled_passes = model.config.disabled_passes;
  CHAIRLIFT_ASSIGN_OR_RETURN(const ManifestProgram made,
                             MakeCellProgram(*model.cells, model.path, options));
  fmt::print("{}: made of {} cells, unfolded by {}\n\n", model.path.string(),
             made.program.cells.size(), UnfolderName(*model.cells));
  PrintSignature(made.inputs, made.outputs);
  const CellsDiagram diagram = DiagramOf(*model.cells);
  fmt::print("cells, their values by row:\n{}\nwhat feeds what:\n{}\n",
             ManifestTable(*model.cells, made.program.cells), Wiring(diagram));
  CHAIRLIFT_RETURN_IF_ERROR(WriteDiagram(diagram, flags));
  for (const auto& cell : made.program.cells) {
    if (!flags.passes) break;
    fmt::print("cell {}:\n", cell->name());
    PrintPasses(cell->executable().graph(), cell->executable().pass_reports());
  }
  CHAIRLIFT_RETURN_IF_ERROR(engine.LoadModel("model", model.path, model.config));
  CHAIRLIFT_ASSIGN_OR_RETURN(const ModelMetadata metadata, engine.Metadata("model"));
  PrintServing(metadata, engine.workers());
  return absl::OkStatus();
}

Status Inspect(InspectFlags flags) {
  CHAIRLIFT_RETURN_IF_ERROR(ParseShapes(flags.shapes, &flags.input_shapes));
  for (const std::string& name : flags.disabled_passes) {
    const auto passes = AllPasses();
    if (std::none_of(passes.begin(), passes.end(), [&](const Pass& p) { return p.name == name; })) {
      return InvalidArgument("no pass is named '{}'; --passes lists them", name);
    }
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(ModelPath model, FindModel(flags.model));
  model.config.disabled_passes.insert(flags.disabled_passes.begin(), flags.disabled_passes.end());
  if (flags.max_embedding_bytes) model.config.max_embedding_bytes = *flags.max_embedding_bytes;
  CHAIRLIFT_ASSIGN_OR_RETURN(const auto engine, Engine::Create({.on_load = LoadBar()}));
  return model.cells ? InspectManifest(model, flags, *engine) : InspectFile(model, flags, *engine);
}

}  // namespace

Command AddInspect(CLI::App& parser) {
  auto flags = std::make_shared<InspectFlags>();
  parser.footer(
      "Examples:\n"
      "  chairlift inspect model.onnx\n"
      "  chairlift inspect models/translator --svg cells.svg         a folder with a model.yaml\n"
      "  chairlift inspect model.onnx --passes --disable-pass fold_constants\n"
      "  chairlift inspect model.onnx --shape image=8x3x224x224      memory for these shapes");
  parser.add_option("MODEL", flags->model, "ONNX file, or a model's folder")
      ->required()
      ->check(CLI::ExistingPath.description("PATH"));
  parser.add_flag("--passes", flags->passes,
                  "List the passes, what each did, and what it left and why");
  parser.add_option("--disable-pass", flags->disabled_passes,
                    "Leave this pass out; may be repeated");
  parser
      .add_option("--max-embedding-bytes", flags->max_embedding_bytes,
                  "As in model.yaml: what a folded embedding may take")
      ->check(CLI::NonNegativeNumber)
      ->type_name("BYTES");
  parser.add_option("--dot", flags->dot, "Write a diagram of the cells, for graphviz")
      ->type_name("FILE");
  parser.add_option("--svg", flags->svg, "Write the diagram as an image")->type_name("FILE");
  parser.add_option("--shape", flags->shapes,
                    "NAME=1x3x224x224: shape of an input for the memory plan");
  parser
      .add_option("--batch", flags->input_shapes.batch,
                  "Dimension 0 where the model leaves it open")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  parser
      .add_option("--length", flags->input_shapes.length,
                  "Other dimensions that the model leaves open")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  return [flags] { return Inspect(*flags); };
}

}  // namespace chairlift
