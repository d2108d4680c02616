// A request that generates: its source, where it has one, its prompt in pieces, then a step a
// token.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_GENERATING_REQUEST_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_GENERATING_REQUEST_H_

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "engine/programs/generating/penalties.h"
#include "engine/programs/generating/sampling.h"
#include "engine/programs/program.h"
#include "engine/requests/answer_parts.h"
#include "runtime/block_pool.h"

namespace chairlift {

struct GenerationLimits {
  int64_t max_tokens = 1;  // of the answer
  int64_t min_tokens = 0;  // before which no end token is generated
  std::vector<int64_t> end_tokens;
  // That the first or the last token of the answer is, whatever the logits; −1: none.
  int64_t first_token = -1, last_token = -1;
  // That are never generated, and not as the first token.
  std::vector<int64_t> suppressed, first_suppressed;
  Penalties penalties;
  SamplingOptions sampling;
};

// Cells of the program.
inline constexpr int kStepCell = 0, kEncodeCell = 1;

// Its nodes stand for numbers of tokens, not for particular ones: where one finds no room for its
// keys and values, what it was to compute is left to later ones.
class GeneratingRequest final : public RequestGraph {
 public:
  // `source`: tokens for the encoder; empty: there is none. `piece`: tokens of a prompt in a node,
  // at most. `pool` must outlive it.
  GeneratingRequest(ValidatedRequest request, std::span<const int64_t> source,
                    std::span<const int64_t> prompt, GenerationLimits limits, int64_t piece,
                    BlockPool& pool, bool parts);

  int32_t num_nodes() const override { return first_nodes_; }
  GraphNode run(int32_t index) const override;
  // In blocks.
  int64_t state() const override;
  std::vector<GrownNode> TakeGrown() override;
  void TakeParts(SendParts send) override;
  bool done() const override { return done_; }
  StatusOr<std::vector<NamedTensor>> TakeOutputs() override;

  // --- Of a task, by one thread at a time -------------------------------------------------------

  // Whether there is room for the source's keys and values; if not, they are tried again later.
  bool BeginSource();
  std::span<const int64_t> source() const { return source_; }
  std::span<const int64_t> source_blocks() const { return source_sequence_.blocks(); }
  // They have been computed.
  void CompleteSource();

  // What `nodes` nodes of so many tokens together are to compute. Empty: there is no room for its
  // keys and values now, and they are tried again later.
  std::span<const int64_t> Begin(int32_t nodes, int64_t tokens);
  // Tokens before those, and where the keys and values of all are.
  int64_t computed() const { return computed_; }
  std::span<const int64_t> blocks() const { return sequence_.blocks(); }
  // They have been computed. `next`: the token that follows, which counts where the prompt is done.
  void Complete(int64_t next);
  // Whether what Begin() said is followed by a token of the answer.
  bool predicts() const { return computed_ + begun_ >= prompt_size(); }

  const SamplingOptions& sampling() const { return limits_.sampling; }
  const Penalties& penalties() const { return limits_.penalties; }
  std::span<const int64_t> prompt() const { return prompt_; }
  std::span<const int64_t> answer() const { return answer_; }
  // Of the next token in the answer.
  int64_t place() const { return static_cast<int64_t>(answer_.size()); }
  // What the next token is, whatever the logits; −1: that follows from them.
  int64_t forced() const {
    if (place() == limits_.max_tokens - 1 && limits_.last_token >= 0) return limits_.last_token;
    return forces_first() && place() == 0 ? limits_.first_token : -1;
  }
  // Tokens that may not be the next.
  std::vector<int64_t> Suppressed() const;

  int64_t Rows(int32_t node) const {
    if (node >= first_nodes_) return grown_rows_;
    return source_.empty() ? std::min(piece_, prompt_size() - node * piece_) : source_size();
  }
  int64_t planned_nodes() const {
    return pieces_ + (source_.empty() ? 0 : 1) + limits_.max_tokens - 1;
  }

 private:
  int64_t prompt_size() const { return static_cast<int64_t>(prompt_.size()); }
  // Where nothing but the start token comes before, as transformers has it.
  bool forces_first() const { return limits_.first_token >= 0 && prompt_size() == 1; }
  int64_t source_size() const { return static_cast<int64_t>(source_.size()); }
  void Grow(int64_t rows, int cell = kStepCell);

  const std::vector<int64_t> source_, prompt_;
  const GenerationLimits limits_;
  const int64_t piece_;
  const int32_t pieces_;  // of the prompt
  const int32_t first_nodes_;
  BlockPool& pool_;
  BlockPool::Sequence source_sequence_, sequence_;
  std::vector<int64_t> answer_;
  int32_t nodes_;      // in all
  int32_t ended_ = 0;  // of them
  int64_t computed_ = 0, begun_ = 0;
  int64_t grown_rows_ = 0;  // of the last node that it grew by
  bool done_ = false;
  std::vector<GrownNode> grown_;

  std::mutex mutex_;
  AnswerParts parts_;  // guarded by mutex_
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_GENERATING_REQUEST_H_
