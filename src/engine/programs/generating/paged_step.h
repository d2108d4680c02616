// A decoder's step over packed tokens, compiled, with its blocks of keys and values.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_PAGED_STEP_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_PAGED_STEP_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "graph/decoders/decoder.h"
#include "runtime/block_pool.h"
#include "runtime/executable.h"
#include "runtime/worker_memory.h"

namespace chairlift {

// New tokens of one sequence in a step.
struct StepTokens {
  std::span<const int64_t> tokens;
  int64_t cached = 0;  // tokens before them
  // All blocks of the sequence. Blocks with new tokens belong to it alone. Only the sequences next
  // to it that continue it share them: its new tokens are cached tokens of theirs.
  std::span<const int64_t> blocks;
  // For a model with an encoder: the number of source tokens, and the blocks with their keys and
  // values.
  int64_t source = 0;
  std::span<const int64_t> source_blocks = {};
};

class PagedStep {
 public:
  struct Sizes {
    int64_t max_length = 1;  // of a sequence
    int64_t max_source = 0;  // of the source
    int64_t blocks = 0;
    int64_t block_tokens = 16;
  };
  // ResourceExhausted if there is no memory for the blocks.
  static StatusOr<std::unique_ptr<PagedStep>> Create(DecoderModel model, const Sizes& sizes,
                                                     const ExecutableOptions& options);

  Executable& executable() { return *executable_; }
  BlockPool& pool() { return pool_; }
  int64_t max_length() const { return max_length_; }
  int64_t max_source() const { return max_source_; }
  int64_t vocabulary() const { return vocabulary_; }
  // As in DecoderModel.
  bool whole_prompts() const { return whole_prompts_; }
  // The bytes of keys and values per token.
  int64_t token_bytes() const { return token_bytes_; }

  // The shapes of the executable's inputs.
  std::vector<Shape> InputShapes(int64_t tokens, int64_t sequences) const;

  // Logits of the last token of each sequence, [at least sequences, vocabulary]; the keys and
  // values of all tokens are then in their blocks. One run at a time.
  StatusOr<Tensor> Run(std::span<const StepTokens> sequences, Team& team, int worker,
                       WorkerMemory& memory);

  // Called before the next run, on all workers.
  void Make(std::span<const BlockPool::Copy> copies, Team& team);

  // Zeroes all keys and values in these blocks.
  void Zero(std::span<const int64_t> blocks);

  // Writes the keys (or values) of `count` tokens to a layer's blocks: rows from `first` on of
  // [..., tokens, heads, columns].
  Status Write(size_t layer, bool keys, const Tensor& rows, int64_t first, int64_t count,
               std::span<const int64_t> blocks);

 private:
  PagedStep(const Sizes& sizes, DecoderModel model);

  const int64_t max_length_, max_source_;
  const int64_t vocabulary_;
  const bool whole_prompts_;
  const std::vector<DecoderInput> inputs_;
  int64_t token_bytes_ = 0;
  BlockPool pool_;
  std::vector<Tensor> keys_, values_;  // by layer
  std::unique_ptr<Executable> executable_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_PAGED_STEP_H_
