#include "cli/passes_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "cli/terminal.h"

namespace chairlift {
namespace {

// Counts sorted by name: "6 Gelu, 1 Tanh".
using Counts = std::map<std::string, int>;

std::string ToString(const Counts& counts) {
  std::string text;
  for (const auto& [name, count] : counts) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, name);
  }
  return text;
}

struct Fused {
  int count = 0;
  Counts details;
};

// In the order of the table.
enum FusedKind {
  kEmbeddings,
  kProducts,
  kBias,
  kActivation,
  kAttention,
  kResidualNorm,
  kConvolution,
  kGates,
  kElementwise,
  kKinds,
};
constexpr const char* kNames[kKinds] = {
    "embeddings + LayerNorm",
    "products of one value (queries, keys, values) in one",
    "bias, added by the product",
    "activation, computed by the product",
    "attention: scale, mask, softmax, values",
    "residual + LayerNorm",
    "what follows a convolution, computed by it",
    "gates of an LSTM",
    "chain of element-wise operators",
};

bool HasInput(const Node& node, size_t i) {
  return i < node.inputs.size() && node.inputs[i] != kNoValue;
}

void Count(const Graph& graph, std::vector<Fused>& fused) {
  const auto add = [&fused](FusedKind kind, const std::string& detail) {
    ++fused[kind].count;
    ++fused[kind].details[detail];
  };
  for (const Node& node : graph.nodes) {
    for (const auto& [name, body] : Subgraphs(node)) Count(*body, fused);
    if (node.def->domain != "chairlift") continue;
    const std::string& name = node.def->name;
    const std::string activation = node.attributes.String("activation", "");
    if (name == "EmbeddingLayerNorm") add(kEmbeddings, name);
    if (name == "SkipLayerNorm") add(kResidualNorm, name);
    if (name == "Attention" || name == "RaggedAttention") add(kAttention, name);
    if (name == "LstmGates") add(kGates, name);
    if (name == "FusedElementwise") add(kElementwise, name);
    if (name == "FusedConv") add(kConvolution, activation.empty() ? name : activation);
    if (name == "ParallelMatMul") {
      add(kProducts, fmt::format("of {} products", node.outputs.size()));
      for (size_t i = 2; i < node.inputs.size(); i += 2) {
        if (HasInput(node, i)) add(kBias, "in " + name);
      }
    }
    if (name != "FusedMatMul") continue;
    if (HasInput(node, 2)) add(kBias, "in " + name);
    if (!activation.empty()) add(kActivation, activation);
  }
}

// Splits "node 'a' (Softmax): why" into the node and the rest, to group notes with the same text.
std::pair<std::string, std::string> SplitNote(const std::string& note) {
  const size_t end = note.starts_with("node '") ? note.find("): ") : std::string::npos;
  if (end == std::string::npos) return {"", note};
  return {note.substr(0, end + 1), note.substr(end + 3)};
}

// "(Softmax)".
std::string OperatorOf(const std::string& node) {
  const size_t open = node.rfind(" (");
  return open == std::string::npos ? "" : node.substr(open);
}

}  // namespace

std::vector<PassReport> Joined(std::span<const PassReport> first,
                               std::span<const PassReport> then) {
  std::vector<PassReport> joined(then.begin(), then.end());
  for (PassReport& report : joined) {
    for (const PassReport& before : first) {
      if (before.name != report.name) continue;
      report.rewrites += before.rewrites;
      report.time += before.time;
      report.skipped &= before.skipped;
      for (const std::string& note : before.notes) {
        if (std::find(report.notes.begin(), report.notes.end(), note) == report.notes.end()) {
          report.notes.push_back(note);
        }
      }
    }
  }
  return joined;
}

std::string PassesTable(std::span<const PassReport> reports) {
  std::map<std::string_view, const char*> summaries;
  for (const Pass& pass : AllPasses()) summaries[pass.name] = pass.summary;
  Table table({"pass", "rewrites", "ms", "what it does"});
  for (const PassReport& report : reports) {
    table.Add({report.name, report.skipped ? "off" : std::to_string(report.rewrites),
               fmt::format("{:.2f}", static_cast<double>(report.time.count()) * 1e-3),
               summaries[report.name]});
  }
  return table.ToString();
}

std::string FusedTable(const Graph& graph) {
  std::vector<Fused> fused(kKinds);
  Count(graph, fused);
  Table table({"what is fused", "times", "as"});
  bool any = false;
  for (size_t kind = 0; kind < kKinds; ++kind) {
    const auto& [count, details] = fused[kind];
    if (count == 0) continue;
    any = true;
    table.Add({kNames[kind], std::to_string(count),
               details.size() == 1 ? details.begin()->first : ToString(details)});
  }
  return any ? table.ToString() : "";
}

std::vector<std::string> LeftApart(std::span<const PassReport> reports) {
  std::vector<std::string> lines;
  for (const PassReport& report : reports) {
    // In order of first occurrence: the first node of each, and their number.
    std::vector<std::pair<std::pair<std::string, std::string>, int>> reasons;
    for (const std::string& note : report.notes) {
      std::pair<std::string, std::string> split = SplitNote(note);
      const auto same = std::find_if(reasons.begin(), reasons.end(), [&](const auto& reason) {
        return reason.first.second == split.second &&
               OperatorOf(reason.first.first) == OperatorOf(split.first);
      });
      if (same != reasons.end()) {
        ++same->second;
      } else {
        reasons.emplace_back(std::move(split), 1);
      }
    }
    for (const auto& [reason, count] : reasons) {
      const auto& [node, why] = reason;
      const std::string more = count == 1     ? ""
                               : node.empty() ? fmt::format(" ({} times)", count)
                                              : fmt::format(" and {} more", count - 1);
      lines.push_back(node.empty() ? fmt::format("{}: {}{}", report.name, why, more)
                                   : fmt::format("{}: {}{}: {}", report.name, node, more, why));
    }
  }
  return lines;
}

}  // namespace chairlift
