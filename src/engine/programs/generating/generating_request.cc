#include "engine/programs/generating/generating_request.h"

#include <algorithm>
#include <utility>

#include "base/status.h"

namespace chairlift {

GeneratingRequest::GeneratingRequest(ValidatedRequest request, std::span<const int64_t> source,
                                     std::span<const int64_t> prompt, GenerationLimits limits,
                                     int64_t piece, BlockPool& pool, bool parts)
    : RequestGraph(std::move(request)),
      source_(source.begin(), source.end()),
      prompt_(prompt.begin(), prompt.end()),
      limits_(std::move(limits)),
      piece_(piece),
      pieces_(static_cast<int32_t>((prompt_size() + piece - 1) / piece)),
      first_nodes_(source_.empty() ? pieces_ : 1),
      pool_(pool),
      source_sequence_(pool),
      sequence_(pool),
      nodes_(first_nodes_),
      parts_({parts}) {}

GraphNode GeneratingRequest::run(int32_t index) const {
  return {.cell = source_.empty() ? kStepCell : kEncodeCell,
          .rows = static_cast<int32_t>(Rows(index)),
          .key = {},
          .dependencies = {}};
}

// The last token of an answer is read by no later one.
int64_t GeneratingRequest::state() const {
  return pool_.BlocksOf(source_size()) + pool_.BlocksOf(prompt_size() + limits_.max_tokens - 1);
}

std::vector<GrownNode> GeneratingRequest::TakeGrown() { return std::exchange(grown_, {}); }

void GeneratingRequest::TakeParts(SendParts send) {
  const std::lock_guard<std::mutex> lock(mutex_);
  send(parts_.Take());
}

void GeneratingRequest::Grow(int64_t rows, int cell) {
  GrownNode& node = grown_.emplace_back();
  node.cell = cell;
  node.rows = static_cast<int32_t>(rows);
  grown_rows_ = rows;
  node.dependencies = {nodes_ - 1};
  ++nodes_;
}

bool GeneratingRequest::BeginSource() {
  ++ended_;
  if (source_sequence_.Grow(source_size())) return true;
  Grow(source_size(), kEncodeCell);
  return false;
}

void GeneratingRequest::CompleteSource() { Grow(std::min(piece_, prompt_size())); }

std::vector<int64_t> GeneratingRequest::Suppressed() const {
  std::vector<int64_t> tokens = limits_.suppressed;
  const auto add = [&](const std::vector<int64_t>& more) {
    tokens.insert(tokens.end(), more.begin(), more.end());
  };
  if (place() == (forces_first() ? 1 : 0)) add(limits_.first_suppressed);
  if (place() < limits_.min_tokens) add(limits_.end_tokens);
  return tokens;
}

std::span<const int64_t> GeneratingRequest::Begin(int32_t nodes, int64_t tokens) {
  ended_ += nodes;
  begun_ = std::min(tokens, std::max<int64_t>(prompt_size() - computed_, 1));
  if (!sequence_.Grow(computed_ + begun_)) {
    begun_ = 0;
    if (ended_ == nodes_) Grow(std::min(piece_, std::max<int64_t>(prompt_size() - computed_, 1)));
    return {};
  }
  if (computed_ < prompt_size()) {
    return std::span(prompt_).subspan(static_cast<size_t>(computed_), static_cast<size_t>(begun_));
  }
  return {&answer_.back(), 1};
}

void GeneratingRequest::Complete(int64_t next) {
  computed_ += std::exchange(begun_, 0);
  if (computed_ < prompt_size()) {
    if (ended_ == nodes_) Grow(std::min(piece_, prompt_size() - computed_));
    return;
  }
  const auto first = static_cast<int64_t>(answer_.size());
  answer_.push_back(next);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (parts_.wants(0)) {
      parts_.Emit({.output = 0, .row = 0, .first = first, .count = 1},
                  Tensor::Of<int64_t>({1}, {next}));
    }
  }
  const std::vector<int64_t>& ends = limits_.end_tokens;
  const bool ended = std::find(ends.begin(), ends.end(), next) != ends.end();
  if (!ended && first + 1 < limits_.max_tokens) return Grow(1);
  done_ = true;
  // Before those who wait for room are looked at.
  sequence_.Clear();
  source_sequence_.Clear();
}

StatusOr<std::vector<NamedTensor>> GeneratingRequest::TakeOutputs() {
  std::vector<NamedTensor> outputs;
  for (size_t i = 0; i < request().outputs.size(); ++i) {
    outputs.push_back({"output_ids", Tensor::Of<int64_t>({1, static_cast<int64_t>(answer_.size())},
                                                         std::span<const int64_t>(answer_))});
  }
  return outputs;
}

}  // namespace chairlift
