// `chairlift inspect`: a model in words and tables, without running it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "chairlift/engine.h"
#include "cli/cells_view.h"
#include "cli/commands.h"
#include "cli/inputs.h"
#include "cli/terminal.h"
#include "graph/onnx/import.h"
#include "runtime/executable.h"

namespace chairlift {
namespace {

struct InspectFlags {
  std::string model;
  bool passes = false;
  std::vector<std::string> disabled_passes;
  std::vector<std::string> shapes;
  std::string dot;
  std::string svg;
  InputShapes input_shapes;
};

void PrintSignature(const Executable& executable) {
  Table table({"", "name", "type", "shape"});
  const auto add = [&table](const char* what, const std::vector<SymbolicSpec>& specs) {
    for (const SymbolicSpec& spec : specs) {
      table.Add({what, spec.name, std::string(DTypeName(spec.dtype)), spec.shape.ToString()});
    }
  };
  add("input", executable.inputs());
  add("output", executable.outputs());
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

void PrintPasses(const Executable& executable) {
  std::map<std::string, const char*> summaries;
  for (const Pass& pass : AllPasses()) summaries[pass.name] = pass.summary;
  Table table({"pass", "rewrites", "ms", "what it does"});
  for (const PassReport& report : executable.pass_reports()) {
    table.Add({report.name, report.skipped ? "off" : std::to_string(report.rewrites),
               fmt::format("{:.2f}", static_cast<double>(report.time.count()) * 1e-3),
               summaries[report.name]});
  }
  fmt::print("{}", table.ToString());
  for (const PassReport& report : executable.pass_reports()) {
    for (const std::string& note : report.notes) fmt::print("  {}: {}\n", report.name, note);
  }
  fmt::print("\n");
}

Status PrintMemory(Executable& executable, const std::vector<TensorSpec>& inputs,
                   const InputShapes& input_shapes) {
  CHAIRLIFT_RETURN_IF_ERROR(CheckShapeNames(inputs, input_shapes));
  std::vector<Shape> shapes;
  std::string text;
  for (const TensorSpec& spec : inputs) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const Shape shape, ResolveShape(spec, input_shapes));
    text += fmt::format("{}{}{}", text.empty() ? "" : ", ", spec.name, shape.ToString());
    shapes.push_back(shape);
  }
  const auto stats = executable.Prepare(shapes, 1);
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

Status PrintCells(const Graph& graph, const InspectFlags& flags) {
  const StatusOr<SlicedModel> sliced = SliceIntoCells(graph);
  if (!sliced.ok()) {
    fmt::print("cells: none: {}\n\n", Message(sliced.status()));
    return flags.dot.empty() && flags.svg.empty() ? absl::OkStatus() : sliced.status();
  }
  fmt::print("cells, their values by row (* of each token):\n{}\n", CellsTable(*sliced));
  if (!flags.dot.empty()) CHAIRLIFT_RETURN_IF_ERROR(WriteFile(flags.dot, CellsDot(*sliced)));
  if (!flags.svg.empty()) CHAIRLIFT_RETURN_IF_ERROR(WriteFile(flags.svg, CellsSvg(*sliced)));
  return absl::OkStatus();
}

Status Inspect(InspectFlags flags) {
  CHAIRLIFT_RETURN_IF_ERROR(ParseShapes(flags.shapes, &flags.input_shapes));
  CHAIRLIFT_ASSIGN_OR_RETURN(ImportedModel model, ImportOnnxFile(flags.model));
  fmt::print("{}: opset {}{}{}\n\n", flags.model, model.opset,
             model.producer.empty() ? "" : ", by ", model.producer);
  ExecutableOptions options;
  options.disabled_passes.insert(flags.disabled_passes.begin(), flags.disabled_passes.end());
  for (const std::string& name : flags.disabled_passes) {
    const auto passes = AllPasses();
    if (std::none_of(passes.begin(), passes.end(), [&](const Pass& p) { return p.name == name; })) {
      return InvalidArgument("no pass is named '{}'; --passes lists them", name);
    }
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(const auto executable, Executable::Create(model.graph, options));
  PrintSignature(*executable);
  PrintOperators(executable->graph());
  CHAIRLIFT_RETURN_IF_ERROR(PrintCells(model.graph, flags));
  if (flags.passes) PrintPasses(*executable);

  CHAIRLIFT_ASSIGN_OR_RETURN(const auto engine, Engine::Create({}));
  CHAIRLIFT_RETURN_IF_ERROR(engine->LoadModel("model", flags.model, ModelConfig{}));
  CHAIRLIFT_ASSIGN_OR_RETURN(const ModelMetadata metadata, engine->Metadata("model"));
  CHAIRLIFT_RETURN_IF_ERROR(PrintMemory(*executable, metadata.inputs, flags.input_shapes));
  fmt::print("diagnosis: {}\n", metadata.diagnosis);
  return absl::OkStatus();
}

}  // namespace

Command AddInspect(CLI::App& parser) {
  auto flags = std::make_shared<InspectFlags>();
  parser.footer(
      "Examples:\n"
      "  chairlift inspect model.onnx\n"
      "  chairlift inspect model.onnx --passes --disable-pass fold_constants\n"
      "  chairlift inspect model.onnx --shape image=8x3x224x224      memory for these shapes");
  parser.add_option("MODEL", flags->model, "ONNX file")->required()->check(CLI::ExistingFile);
  parser.add_flag("--passes", flags->passes,
                  "List the passes, what each did, and what it left and why");
  parser.add_option("--disable-pass", flags->disabled_passes,
                    "Leave this pass out; may be repeated");
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
