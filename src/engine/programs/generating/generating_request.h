// A request that generates: its source, where it has one, its prompt in pieces, then a step a
// token; with beams, a step a token of all its hypotheses.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_GENERATING_REQUEST_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_GENERATING_REQUEST_H_

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "engine/programs/generating/beam_search.h"
#include "engine/programs/generating/choosing.h"
#include "engine/programs/generating/generation_counters.h"
#include "engine/programs/generating/generation_limits.h"
#include "engine/programs/generating/paged_step.h"
#include "engine/programs/generating/seen_tokens.h"
#include "engine/programs/program.h"
#include "engine/requests/answer_parts.h"
#include "runtime/block_pool.h"

namespace chairlift {

// Cells of the program.
inline constexpr int kStepCell = 0, kEncodeCell = 1;

// Of answers, in this order. All but the first only where they are asked for.
enum GenerationOutput { kOutputIds, kSequencesScores, kTokenLogprobs, kTopLogprobs, kTopTokens };

// In `output_ids`, behind the end of a sequence that is shorter than others.
inline constexpr int64_t kNoToken = -1;

// Blocks that a request may grow to hold. Beams share those that the prompt fills.
int64_t BlocksOfRequest(const BlockPool& pool, int64_t source, int64_t prompt, int64_t max_tokens,
                        int64_t beams);

// It has one node at a time, for what is left to be computed of its prompt, or for its next token.
// Where that finds no room for its keys and values, it is tried again.
class GeneratingRequest final : public RequestGraph {
 public:
  // `source`: tokens for the encoder; empty: there is none. `returned`: the best so many of its
  // hypotheses. `pool` must outlive it. `share_prefixes`: blocks that others' prompts have filled
  // are reused where its own begins alike; never with a source, which keys and values depend on.
  // `parts` counts without beams only: which token comes first is open there until the end.
  GeneratingRequest(ValidatedRequest request, std::span<const int64_t> source,
                    std::span<const int64_t> prompt, GenerationLimits limits, int64_t returned,
                    BlockPool& pool, bool share_prefixes, bool parts);

  int32_t num_nodes() const override { return 1; }
  GraphNode run(int32_t index) const override;
  // In blocks.
  int64_t state() const override;
  // Beams share blocks, and a source has its own: such requests hold all from their start.
  int32_t state_rows() const override;
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

  // What its node, of which so many tokens are given out (0: all), is to compute: new tokens of one
  // sequence, or of one for each hypothesis. Empty: there is no room for its keys and values now,
  // and they are tried again later. `copies`: of keys and values, to be made before, whether or not
  // it is empty.
  std::vector<StepTokens> Begin(int64_t tokens, std::vector<BlockPool::Copy>& copies);
  // Gives all its blocks back: what follows is a node of its prompt and its answer so far, without
  // beams. Returns the tokens that its node had left to compute.
  int64_t SetBack();
  // Tokens of its prompt that the last Begin() has found in blocks of others.
  int64_t reused() const { return reused_; }
  // Whether what Begin() said is followed by a token of the answer.
  bool predicts() const { return computed_ + begun_ >= known(); }
  // They have been computed. `choices`: by sequence what follows, where it predicts. An error ends
  // the request.
  Status Complete(std::span<const Choice> choices);

  const GenerationLimits& limits() const { return limits_; }
  std::span<const int64_t> prompt() const { return prompt_; }
  // Of a sequence of Begin()'s, before those.
  std::span<const int64_t> answer(size_t sequence) const {
    return search_ ? search_->live()[sequence].tokens : answer_.tokens;
  }
  // Likewise, of prompt and answer; null where its penalties read none.
  const SeenTokens* counts(size_t sequence) const {
    return counts_.empty() ? nullptr : &counts_[sequence];
  }

  // Tokens that are read before the first of the answer; with an encoder, of the source.
  int64_t read_tokens() const { return source_.empty() ? prompt_size() : source_size(); }
  // Rows of all its nodes, if its answer becomes as long as it may.
  int64_t planned_rows() const {
    return source_size() + prompt_size() + (limits_.max_tokens - 1) * limits_.beams.beams;
  }

  GenerationTimes times;

 private:
  int64_t prompt_size() const { return static_cast<int64_t>(prompt_.size()); }
  int64_t source_size() const { return static_cast<int64_t>(source_.size()); }
  // Tokens that there are, to be computed before the next: with beams, of the prompt.
  int64_t known() const {
    return prompt_size() + static_cast<int64_t>(search_ ? 0 : answer_.tokens.size());
  }
  // By the node that follows. `left_over`: as GrownNode has it.
  void Grow(bool left_over = false);
  GrownNode& Grow(int64_t rows, int cell);
  Status Search(std::span<const Choice> choices);
  void Emit(const Choice& choice);
  void Finish();
  std::span<const Hypothesis> Returned() const;
  Tensor Output(int output) const;

  const std::vector<int64_t> source_, prompt_;
  const GenerationLimits limits_;
  const int64_t returned_;
  const bool share_prefixes_;
  BlockPool& pool_;
  BlockPool::Sequence source_sequence_;
  std::vector<BlockPool::Sequence> sequences_;  // by live hypothesis; one before there are any
  Hypothesis answer_;                           // without beams
  std::optional<BeamSearch> search_;            // with beams
  std::vector<SeenTokens> counts_;              // by live hypothesis, if penalties read them
  // By row that tokens were chosen from: its most likely tokens, limits_.logprobs of them.
  std::vector<int64_t> top_tokens_;
  std::vector<float> top_logprobs_;
  int32_t nodes_ = 1;  // in all
  int64_t computed_ = 0, begun_ = 0, reused_ = 0;
  bool started_ = false;        // by a Begin(), since it was set back
  std::vector<int64_t> again_;  // its prompt and its answer when it was set back last
  bool done_ = false;
  std::vector<GrownNode> grown_;

  std::mutex mutex_;
  AnswerParts parts_;  // guarded by mutex_
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_GENERATING_REQUEST_H_
