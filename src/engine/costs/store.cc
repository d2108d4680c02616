#include "engine/costs/store.h"

#include <spdlog/spdlog.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <set>

#include "base/status.h"
#include "ops/linear/product.h"

namespace chairlift {
namespace {

// Limits for plausible measurements: larger batches, or more sizes, are never tried here.
// LengthCosts needs memory for each number of rows at each length.
constexpr int64_t kMostSize = int64_t{1} << 24;
constexpr size_t kMostPoints = size_t{1} << 16;

}  // namespace

void DescribeForCosts(const Graph& graph, std::string& text) {
  const auto append = [&](ValueId id) {
    if (id == kNoValue) {
      text += " -";
      return;
    }
    const Value& value = graph.values[id];
    text += fmt::format(" {}[", DTypeName(value.dtype));
    if (!value.shape.has_rank()) {
      text += '?';
    } else {
      for (const Dim& dim : value.shape.dims()) {
        text += dim.known() ? fmt::format("{},", dim.value()) : "?,";
      }
    }
    text += value.is_constant() ? "]c" : "]";
  };
  for (ValueId id : graph.inputs) append(id);
  for (const Node& node : graph.nodes) {
    text += fmt::format("\n{}.{}", node.def->domain, node.def->name);
    for (ValueId id : node.inputs) append(id);
    if (RoundsToBFloat16(node.attributes)) text += " bfloat16";
    if (RoundsToInt8(node.attributes)) text += " int8";
    text += " ->";
    for (ValueId id : node.outputs) append(id);
    for (const auto& [name, body] : Subgraphs(node)) {
      text += " {";
      DescribeForCosts(*body, text);
      text += '}';
    }
  }
}

CostSamples KeptCosts(const CostTable::Key& key) {
  const auto table = CostTable::Load(CostTablePath(key));
  if (!table.ok() || table->key() != key) return {};
  CostSamples samples;
  std::set<int64_t> rows, lengths;
  for (const auto& [size, cost] : table->costs()) {
    if (size.first > kMostSize || size.second > kMostSize) return {};
    rows.insert(size.first);
    lengths.insert(size.second);
    samples.push_back({static_cast<int32_t>(size.first), static_cast<int32_t>(size.second), cost});
  }
  if (rows.size() * lengths.size() > kMostPoints) return {};
  LengthCosts checked;
  return checked.AddType(samples).ok() ? samples : CostSamples();
}

Status KeepCosts(const CostTable::Key& key, const CostSamples& samples) {
  CostTable table(key);
  for (const auto& [rows, length, cost] : samples) table.Set(rows, length, cost);
  return table.Save(CostTablePath(key));
}

void WarnNotKept(const Status& kept) {
  static std::atomic<bool> warned{false};
  if (kept.ok() || warned.exchange(true)) return;
  spdlog::warn("measured costs cannot be stored, so each load measures them again: {}",
               Message(kept));
}

}  // namespace chairlift
