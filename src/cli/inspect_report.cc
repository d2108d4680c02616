#include "cli/inspect_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "cli/cells_view.h"
#include "cli/export_hint.h"
#include "cli/passes_view.h"
#include "cli/terminal.h"
#include "graph/bfloat16_products.h"
#include "ops/linear/bfloat16_gemm.h"
#include "ops/linear/product.h"

namespace chairlift {
namespace {

void CountOperators(const Graph& graph, std::map<std::string, int>& counts) {
  for (const Node& node : graph.nodes) {
    const std::string& domain = node.def->domain;
    ++counts[domain.empty() ? node.def->name : domain + "::" + node.def->name];
    for (const auto& [name, body] : Subgraphs(node)) CountOperators(*body, counts);
  }
}

// "batches of 1 to 96 rows (128 if many requests wait), 41 µs at 1, 610 µs at 96"
std::string BatchesOf(const CellBatching& cell) {
  std::string text =
      fmt::format("batches of {} to {} rows", cell.min_batch_size, cell.max_batch_size);
  if (cell.most_batch_size > cell.max_batch_size) {
    text += fmt::format(" ({} if many requests wait)", cell.most_batch_size);
  }
  if (cell.costs.empty()) return text + ", not measured";
  const auto largest = std::prev(cell.costs.upper_bound(cell.max_batch_size));
  for (const auto& [rows, cost] : cell.costs) {
    if (rows != 1 && rows != largest->first) continue;
    text += fmt::format(", {} at {}", HumanSeconds(static_cast<double>(cost.count()) * 1e-9), rows);
  }
  return text;
}

// Which kind of program serves the model, and why earlier kinds do not.
void PrintPrograms(const ModelMetadata& metadata) {
  PrintText("how the model is served: the first kind that fits\n");
  for (const ProgramChoice& choice : metadata.programs) {
    if (choice.refused.empty()) {
      PrintText("  {}: used: {}\n", choice.kind, choice.summary);
    } else {
      PrintText("  {}: not used: {}\n", choice.kind, choice.refused);
    }
  }
  PrintText("\n");
}

}  // namespace

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
  PrintText("{}\n", table.ToString());
}

void PrintOperators(const Graph& graph) {
  std::map<std::string, int> counts;
  CountOperators(graph, counts);
  std::vector<std::pair<int, std::string>> sorted;
  sorted.reserve(counts.size());
  for (const auto& [name, count] : counts) sorted.emplace_back(-count, name);
  std::sort(sorted.begin(), sorted.end());
  PrintText("operators after optimization:\n ");
  if (sorted.empty()) PrintText(" none: the outputs are inputs");
  for (const auto& [count, name] : sorted) PrintText(" {} {}", -count, name);
  PrintText("\n\n");
}

void PrintPasses(const Graph& graph, std::span<const PassReport> reports) {
  PrintText("{}\n", PassesTable(reports));
  if (const std::string fused = FusedTable(graph); !fused.empty()) PrintText("{}\n", fused);
  const std::vector<std::string> left = LeftApart(reports);
  if (!left.empty()) PrintText("not changed, by pass:\n");
  for (const std::string& line : left) PrintText("  {}\n", line);
  if (!left.empty()) PrintText("\n");
}

std::string KernelLines(const PlanStats& stats, bool refusals) {
  std::map<std::string, PlanStats::KernelUse> uses;
  for (const auto& [way, use] : stats.kernels) {
    PlanStats::KernelUse& sum = uses[refusals ? way : way.substr(0, way.find(" ("))];
    if (sum.steps == 0) sum.first = use.first;
    sum.steps += use.steps;
  }
  std::string lines;
  for (const auto& [way, use] : uses) {
    lines += fmt::format("{:4} {}; {} '{}'\n", use.steps, way,
                         use.steps == 1 ? "node" : "the first is", use.first);
  }
  return lines;
}

void PrintNotes(const ProgramView& view) {
  if (view.sliced != nullptr) {
    PrintText("cells, with their values per row (* per token):\n{}\n",
              CellsTable(*view.sliced, view.cells));
  } else if (!view.packed.empty()) {
    PrintText("packed tokens:\n");
  }
  for (const std::string& note : view.notes) PrintText("  {}\n", note);
  if (!view.notes.empty()) PrintText("\n");
}

void PrintServing(const ModelMetadata& metadata, int workers) {
  PrintPrograms(metadata);
  if (!metadata.cells.empty()) PrintText("batches, with {}:\n", Counted(workers, "worker"));
  for (const CellBatching& cell : metadata.cells) {
    PrintText("  cell {}: {}\n", cell.name, BatchesOf(cell));
  }
  if (!metadata.cells.empty()) PrintText("\n");
}

void PrintDiagnosis(const ModelMetadata& metadata) {
  PrintText("diagnosis: {}\n", metadata.diagnosis);
  if (RunsOneByOne(metadata)) PrintText("  -> {}\n", ExportHint(metadata));
  PrintText("\n");
}

void PrintPrecision(const Executable& executable) {
  if (!executable.device().is_host() || MachineBFloat16Kernel() != BFloat16Kernel::kAmx) return;
  Graph graph = executable.graph();
  for (const Node& node : graph.nodes) {
    if (RoundsToBFloat16(node.attributes)) return;
  }
  if (const int products = MarkBFloat16Products(graph); products > 0) {
    PrintText(
        "precision: float32; this machine has AMX for {} in bfloat16: --precision bfloat16\n\n",
        Counted(products, "product"));
  }
}

void NameDims(const ProgramView& view, const Signature& signature,
              std::vector<SymbolicSpec>& outputs) {
  for (const RaggedInput& input : view.packed) {
    if (input.role != RaggedRole::kTokens) continue;
    const SymbolicShape& tokens = signature.inputs[static_cast<size_t>(input.source)].shape;
    for (size_t i = 0; i < outputs.size(); ++i) {
      SymbolicShape& shape = outputs[i].shape;
      const int known = signature.sequences->token_outputs[i] ? 2 : 1;
      for (int axis = 0; shape.has_rank() && axis < std::min(known, shape.rank()); ++axis) {
        shape[axis] = tokens[axis];
      }
    }
    return;
  }
}

}  // namespace chairlift
