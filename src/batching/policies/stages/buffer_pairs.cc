#include "batching/policies/stages/buffer_pairs.h"

#include <algorithm>
#include <cassert>

namespace chairlift {

BufferPairs::BufferPairs(int32_t stages, int32_t pairs)
    : executors_(At(stages)), buffers_(At(stages) + 1, std::vector<Buffer>(At(pairs))) {
  assert(stages > 0 && pairs > 0);
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
  if (executor(0) == ExecutorState::kWorking) return std::nullopt;
  for (int32_t pair = 0; pair < static_cast<int32_t>(buffers_[0].size()); ++pair) {
    if (IsLegitimate(0, pair)) return pair;
  }
  return std::nullopt;
}

bool BufferPairs::Begin(int32_t stage, int32_t pair, int64_t owner, int32_t num) {
  Executor& executor = executors_[At(stage)];
  if (executor.state == ExecutorState::kWorking) return false;
  executor.pair = pair;
  if (pair < 0) {
    executor.state = ExecutorState::kWorking;
    return true;
  }
  Buffer& input = buffers_[At(stage)][At(pair)];
  Buffer& output = buffers_[At(stage) + 1][At(pair)];
  const bool may_read = input.owner == owner || (!input.invalid && !input.used());
  const bool may_write = output.owner == owner || output.writable();
  if (!may_read || !may_write) {
    executor.state = ExecutorState::kChecking;
    return false;
  }
  executor.state = ExecutorState::kWorking;
  executor.num = num;
  ++input.readers;
  ++output.writers;
  if (stage > 0) input.unread -= num;
  assert(input.unread >= 0);
  input.owner = output.owner = owner;
  return true;
}

void BufferPairs::End(int32_t stage) {
  Executor& executor = executors_[At(stage)];
  assert(executor.state == ExecutorState::kWorking);
  if (executor.pair < 0) {
    executor.state = ExecutorState::kInactive;
    return Settle();
  }
  Buffer& input = buffers_[At(stage)][At(executor.pair)];
  Buffer& output = buffers_[At(stage) + 1][At(executor.pair)];
  const bool last = At(stage) + 1 == executors_.size();
  --input.readers;
  --output.writers;
  input.invalid = !last;
  if (!last) output.unread += executor.num;
  executor.state = ExecutorState::kInactive;
  if (stage > 0 && std::find(executor.to_free.begin(), executor.to_free.end(), executor.pair) ==
                       executor.to_free.end()) {
    executor.to_free.push_back(executor.pair);
  }
  Settle();
}

void BufferPairs::Settle() {
  const auto pairs = static_cast<int32_t>(buffers_[0].size());
  for (auto stage = static_cast<int32_t>(executors_.size()) - 1; stage >= 0; --stage) {
    Executor& executor = executors_[At(stage)];
    if (executor.state == ExecutorState::kWorking) continue;
    bool active = At(stage) + 1 == executors_.size();
    for (int32_t pair = 0; pair < pairs && !active; ++pair) active = IsLegitimate(stage, pair);
    executor.state = active ? ExecutorState::kActive : ExecutorState::kInactive;
    if (!active || stage == 0) continue;
    std::erase_if(executor.to_free, [&](int32_t pair) {
      if (!buffers_[At(stage)][At(pair)].writable()) return false;
      buffers_[At(stage) - 1][At(pair)].invalid = false;
      return true;
    });
  }
}

}  // namespace chairlift
