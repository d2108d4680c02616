#include "engine/programs/generating/paged_step.h"

#include <algorithm>
#include <utility>

#include "base/out_of_memory.h"
#include "base/status.h"
#include "engine/programs/packing.h"
#include "engine/programs/staging.h"
#include "tensor/staggered.h"

namespace chairlift {

PagedStep::PagedStep(const Sizes& sizes, DecoderModel model)
    : max_length_(sizes.max_length),
      max_source_(sizes.max_source),
      vocabulary_(model.vocabulary),
      whole_prompts_(model.whole_prompts),
      inputs_(std::move(model.inputs)),
      pool_(sizes.blocks, sizes.block_tokens) {
  std::vector<Shape> shapes;
  for (const DecoderLayer& layer : model.layers) {
    shapes.push_back({sizes.blocks, layer.heads, layer.key_size, sizes.block_tokens});
    shapes.push_back({sizes.blocks, layer.heads, sizes.block_tokens, layer.value_size});
    token_bytes_ +=
        layer.heads * (layer.key_size + layer.value_size) * static_cast<int64_t>(sizeof(float));
  }
  std::vector<Tensor> caches = AllocateStaggered(DType::kFloat, shapes);
  for (size_t i = 0; i < caches.size(); ++i) {
    (i % 2 == 0 ? keys_ : values_).push_back(std::move(caches[i]));
  }
}

StatusOr<std::unique_ptr<PagedStep>> PagedStep::Create(DecoderModel model, const Sizes& sizes,
                                                       const ExecutableOptions& options) {
  Graph graph = std::move(model.graph);
  std::unique_ptr<PagedStep> step;
  CHAIRLIFT_RETURN_IF_ERROR(CatchOutOfMemory([&] {
    step.reset(new PagedStep(sizes, std::move(model)));
    return absl::OkStatus();
  }));
  CHAIRLIFT_ASSIGN_OR_RETURN(step->executable_, Executable::Create(std::move(graph), options));
  return step;
}

std::vector<Shape> PagedStep::InputShapes(int64_t tokens, int64_t sequences) const {
  const int64_t rows = TokenRoom(tokens), room = SequenceRoom(sequences);
  std::vector<Shape> shapes;
  for (const DecoderInput& input : inputs_) {
    const auto layer = static_cast<size_t>(std::max(input.layer, 0));
    switch (input.role) {
      case DecoderRole::kTokens:
      case DecoderRole::kPositions:
        shapes.push_back({rows});
        break;
      case DecoderRole::kOffsets:
        shapes.push_back({room + 1});
        break;
      case DecoderRole::kCached:
      case DecoderRole::kSourceLengths:
        shapes.push_back({room});
        break;
      case DecoderRole::kSourceBlocks:
        shapes.push_back({room, pool_.BlocksOf(max_source_)});
        break;
      case DecoderRole::kBlocks:
        shapes.push_back({room, pool_.BlocksOf(max_length_)});
        break;
      case DecoderRole::kKeys:
        shapes.push_back(keys_[layer].shape());
        break;
      case DecoderRole::kValues:
        shapes.push_back(values_[layer].shape());
        break;
    }
  }
  return shapes;
}

StatusOr<Tensor> PagedStep::Run(std::span<const StepTokens> sequences, Team& team, int worker,
                                WorkerMemory& memory) {
  int64_t tokens = 0;
  for (const StepTokens& own : sequences) tokens += static_cast<int64_t>(own.tokens.size());
  const std::vector<Shape> shapes = InputShapes(tokens, static_cast<int64_t>(sequences.size()));
  const int64_t room = SequenceRoom(static_cast<int64_t>(sequences.size()));
  const int64_t most_blocks = pool_.BlocksOf(max_length_);
  const int64_t most_source = pool_.BlocksOf(max_source_);
  std::vector<TensorDesc> descs;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (inputs_[i].layer < 0) descs.push_back({DType::kInt64, shapes[i]});
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(std::vector<Tensor> staged, Stage(descs, memory.staging));
  std::vector<Tensor> inputs;
  size_t next = 0;
  for (const DecoderInput& input : inputs_) {
    if (input.layer >= 0) {
      const auto layer = static_cast<size_t>(input.layer);
      inputs.push_back(input.role == DecoderRole::kKeys ? keys_[layer] : values_[layer]);
      continue;
    }
    Tensor& tensor = staged[next++];
    auto* to = tensor.data<int64_t>();
    std::fill_n(to, tensor.size(), 0);
    int64_t end = 0;
    for (const StepTokens& own : sequences) {
      const auto added = static_cast<int64_t>(own.tokens.size());
      switch (input.role) {
        case DecoderRole::kTokens:
          to = std::copy(own.tokens.begin(), own.tokens.end(), to);
          break;
        case DecoderRole::kPositions:
          for (int64_t i = 0; i < added; ++i) *to++ = own.cached + i;
          break;
        case DecoderRole::kOffsets:
          *++to = end += added;
          break;
        case DecoderRole::kCached:
          *to++ = own.cached;
          break;
        case DecoderRole::kSourceLengths:
          *to++ = own.source;
          break;
        case DecoderRole::kSourceBlocks:
          std::copy(own.source_blocks.begin(), own.source_blocks.end(), to);
          to += most_source;
          break;
        default:
          std::copy(own.blocks.begin(), own.blocks.end(), to);
          to += most_blocks;
          break;
      }
    }
    if (input.role == DecoderRole::kOffsets) {
      std::fill(to, tensor.data<int64_t>() + tensor.size(), end);
    }
    inputs.push_back(tensor);
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(
      std::vector<Tensor> outputs,
      executable_->Run(inputs, team, worker, memory.compute, memory.stop, memory.timer));
  if (outputs[0].shape() != Shape{room, vocabulary_}) {
    return Internal("logits of {} sequences have shape {}", room, outputs[0].shape().ToString());
  }
  return std::move(outputs[0]);
}

void PagedStep::Make(std::span<const BlockPool::Copy> copies, Team& team) {
  if (copies.empty()) return;
  // For values [block, head, token, column] the filled rows; for keys [block, head, column, token]
  // everything.
  const auto copy_in = [&](Tensor& cache, bool keys) {
    const Shape& shape = cache.shape();
    const int64_t heads = shape[1], head = shape[2] * shape[3];
    auto* data = cache.data<float>();
    for (const BlockPool::Copy& copy : copies) {
      const float* from = data + copy.from * heads * head;
      float* to = data + copy.to * heads * head;
      const int64_t filled = keys ? head : copy.tokens * shape[3];
      for (int64_t h = 0; h < heads; ++h) std::copy_n(from + h * head, filled, to + h * head);
    }
  };
  team.For(static_cast<int>(keys_.size()), [&](int layer, int /*worker*/) {
    copy_in(keys_[static_cast<size_t>(layer)], true);
    copy_in(values_[static_cast<size_t>(layer)], false);
  });
}

void PagedStep::Zero(std::span<const int64_t> blocks) {
  for (std::vector<Tensor>* const caches : {&keys_, &values_}) {
    for (Tensor& cache : *caches) {
      const int64_t size = cache.size() / pool_.blocks();  // per block
      for (const int64_t block : blocks) {
        std::fill_n(cache.data<float>() + block * size, size, 0.0f);
      }
    }
  }
}

Status PagedStep::Write(size_t layer, bool keys, const Tensor& rows, int64_t first, int64_t count,
                        std::span<const int64_t> blocks) {
  Tensor& cache = (keys ? keys_ : values_)[layer];
  const int64_t heads = cache.shape()[1];
  const int64_t block_tokens = values_[layer].shape()[2];
  const int64_t columns = cache.shape()[keys ? 2 : 3];
  const int rank = rows.shape().rank();
  if (rank < 3 || rows.shape()[rank - 2] != heads || rows.shape()[rank - 1] != columns ||
      (first + count) * heads * columns > rows.size() ||
      count > static_cast<int64_t>(blocks.size()) * block_tokens) {
    return Internal("keys or values of {} tokens have shape {}", count, rows.shape().ToString());
  }
  const float* from = rows.data<float>() + first * heads * columns;
  auto* to = cache.data<float>();
  for (int64_t i = 0; i < count; ++i) {
    const int64_t block = blocks[static_cast<size_t>(i / block_tokens)];
    for (int64_t h = 0; h < heads; ++h, from += columns) {
      float* const head = to + (block * heads + h) * block_tokens * columns;
      if (keys) {
        float* key = head + i % block_tokens;
        for (int64_t d = 0; d < columns; ++d) key[d * block_tokens] = from[d];
      } else {
        std::copy_n(from, columns, head + i % block_tokens * columns);
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace chairlift
