#include "batching/policies/stages/buffer_pairs.h"

#include <algorithm>
#include <cassert>

namespace chairlift {

BufferPairs::BufferPairs(int32_t stages, int32_t pairs, int32_t at_once)
    : at_once_(at_once),
      executors_(At(stages)),
      buffers_(At(stages) + 1, std::vector<Buffer>(At(pairs))) {
  assert(stages > 0 && pairs > 0 && at_once > 0);
}

BufferState BufferPairs::buffer(int32_t stage, int32_t pair) const {
  const Buffer& buffer = buffers_[At(stage)][At(pair)];
  if (buffer.writers > 0) return BufferState::kInWriting;
  if (buffer.readers > 0) return BufferState::kInReading;
  return buffer.invalid ? BufferState::kInvalid : BufferState::kAvailable;
}

bool BufferPairs::IsLegitimate(int32_t stage, int32_t pair) const {
  const Buffer& input = buffers_[At(stage)][At(pair)];
  return !input.invalid && !input.used() && buffers_[At(stage) + 1][At(pair)].writable();
}

std::optional<int32_t> BufferPairs::Legitimate() const {
  if (executors_[0].running == at_once_) return std::nullopt;
  for (int32_t pair = 0; pair < static_cast<int32_t>(buffers_[0].size()); ++pair) {
    if (IsLegitimate(0, pair)) return pair;
  }
  return std::nullopt;
}

bool BufferPairs::Begin(int32_t stage, int32_t pair, int64_t owner, int32_t num) {
  Executor& executor = executors_[At(stage)];
  if (executor.running == at_once_) return false;
  if (pair < 0) {
    executor.state = ExecutorState::kWorking;
    ++executor.running;
    return true;
  }
  Buffer& input = buffers_[At(stage)][At(pair)];
  Buffer& output = buffers_[At(stage) + 1][At(pair)];
  const bool may_read = input.owner == owner || (!input.invalid && !input.used());
  const bool may_write = output.owner == owner || output.writable();
  if (!may_read || !may_write) {
    if (executor.running == 0) executor.state = ExecutorState::kChecking;
    return false;
  }
  executor.state = ExecutorState::kWorking;
  ++executor.running;
  ++input.readers;
  ++output.writers;
  if (stage > 0) input.unread -= num;
  assert(input.unread >= 0);
  input.owner = output.owner = owner;
  return true;
}

void BufferPairs::End(int32_t stage, int32_t pair, int32_t num) {
  Executor& executor = executors_[At(stage)];
  assert(executor.running > 0);
  if (--executor.running == 0) executor.state = ExecutorState::kInactive;
  if (pair < 0) return Settle();
  Buffer& input = buffers_[At(stage)][At(pair)];
  Buffer& output = buffers_[At(stage) + 1][At(pair)];
  const bool last = At(stage) + 1 == executors_.size();
  --input.readers;
  --output.writers;
  input.invalid = !last;
  if (!last) output.unread += num;
  if (stage > 0 &&
      std::find(executor.to_free.begin(), executor.to_free.end(), pair) == executor.to_free.end()) {
    executor.to_free.push_back(pair);
  }
  Settle();
}

void BufferPairs::Settle() {
  const auto pairs = static_cast<int32_t>(buffers_[0].size());
  for (auto stage = static_cast<int32_t>(executors_.size()) - 1; stage >= 0; --stage) {
    Executor& executor = executors_[At(stage)];
    if (executor.running == at_once_) continue;
    bool active = At(stage) + 1 == executors_.size();
    for (int32_t pair = 0; pair < pairs && !active; ++pair) active = IsLegitimate(stage, pair);
    if (executor.running == 0) {
      executor.state = active ? ExecutorState::kActive : ExecutorState::kInactive;
    }
    if (!active || stage == 0) continue;
    std::erase_if(executor.to_free, [&](int32_t pair) {
      if (!buffers_[At(stage)][At(pair)].writable()) return false;
      buffers_[At(stage) - 1][At(pair)].invalid = false;
      return true;
    });
  }
}

}  // namespace chairlift
