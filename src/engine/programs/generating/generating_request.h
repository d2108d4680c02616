// A request that generates: its source, if any, its prompt in parts, then one step per token; with
// beams, one step per token for all its hypotheses. Forced tokens are known before, so they are
// computed together, as a prompt is.
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

// Outputs, in this order. All but the first only if requested.
enum GenerationOutput { kOutputIds, kSequencesScores, kTokenLogprobs, kTopLogprobs, kTopTokens };

// Padding in `output_ids` after the end of a shorter sequence.
inline constexpr int64_t kNoToken = -1;

// Blocks that a request may grow to hold. Beams share the blocks of the prompt.
int64_t BlocksOfRequest(const BlockPool& pool, int64_t source, int64_t prompt, int64_t max_tokens,
                        int64_t beams);

// It has one node at a time: the rest of its prompt, or its next token. If there is no room for its
// keys and values, the node is tried again.
class GeneratingRequest final : public RequestGraph {
 public:
  // `source`: tokens for the encoder; empty: no encoder. `returned`: how many of its best
  // hypotheses to return. `pool` must outlive it. `prefix_caching`: reuse blocks of other prompts
  // with the same beginning; never with a source, because keys and values depend on it.
  // `may_recompute`: it may be preempted, and compute its prompt and answer again. `parts` has an
  // effect only without beams: with them, the first token is not known until the end.
  // `most_choices`: forced tokens of one task.
  GeneratingRequest(ValidatedRequest request, std::span<const int64_t> source,
                    std::span<const int64_t> prompt, GenerationLimits limits, int64_t returned,
                    BlockPool& pool, bool prefix_caching, bool may_recompute, bool parts,
                    int64_t most_choices);

  int32_t num_nodes() const override { return 1; }
  GraphNode run(int32_t index) const override;
  // In blocks.
  int64_t state() const override;
  // Beams share blocks, and a source has its own: such requests hold all blocks from their start.
  int32_t state_rows() const override;
  std::vector<GrownNode> TakeGrown() override;
  void TakeParts(SendParts send) override;
  bool done() const override { return done_; }
  StatusOr<std::vector<NamedTensor>> TakeOutputs() override;

  // --- For a task; used by one thread at a time -------------------------------------------------

  // Whether there is room for the source's keys and values; if not, it is tried again later.
  bool BeginSource();
  std::span<const int64_t> source() const { return source_; }
  std::span<const int64_t> source_blocks() const { return source_sequence_.blocks(); }
  // They have been computed.
  void CompleteSource();

  // The new tokens that its node must compute, at most `tokens` (0: all), by sequence. There is one
  // sequence, or one for each hypothesis, or one for each forced token that continues the one
  // before. Empty: there is no room for its keys and values now; the node is tried again later.
  // `copies`: of keys and values, to be made before, whether or not it is empty.
  std::vector<StepTokens> Begin(int64_t tokens, std::vector<BlockPool::Copy>& copies);
  // Preempts it: returns all its blocks. Next comes a node of its prompt and its answer so far,
  // without beams. Returns the number of tokens that its node had left to compute.
  int64_t SetBack();
  // Tokens of its prompt that the last Begin() found in blocks of others.
  int64_t reused() const { return reused_; }
  // Whether a token of the answer follows the last token of each sequence of Begin().
  bool predicts() const { return computed_ + begun_ >= known(); }
  // They have been computed. `choices`: the next token by sequence, if it predicts. Without
  // beams, that many tokens of the answer. An error ends the request.
  Status Complete(std::span<const Choice> choices);

  const GenerationLimits& limits() const { return limits_; }
  std::span<const int64_t> prompt() const { return prompt_; }
  // The answer of a sequence of Begin(), before those tokens.
  std::span<const int64_t> answer(size_t sequence) const {
    if (search_) return search_->live()[sequence].tokens;
    if (sequence == 0) return answer_.tokens;
    return std::span(limits_.forced).first(answer_.tokens.size() + sequence);
  }
  // The same for counts over prompt and answer; null if no penalty needs them.
  const SeenTokens* counts(size_t sequence) const {
    return counts_.empty() ? nullptr : &counts_[search_ ? sequence : 0];
  }

  // Tokens that are read before the first of the answer; with an encoder, those of the source.
  int64_t read_tokens() const { return source_.empty() ? prompt_size() : source_size(); }
  // Rows of all its nodes if its answer reaches its maximum length.
  int64_t planned_rows() const {
    return source_size() + prompt_size() + (limits_.max_tokens - 1) * limits_.beams.beams;
  }

  GenerationTimes times;

 private:
  int64_t prompt_size() const { return static_cast<int64_t>(prompt_.size()); }
  int64_t source_size() const { return static_cast<int64_t>(source_.size()); }
  // Known tokens, to be computed before the next one: with beams, those of the prompt.
  int64_t known() const {
    return prompt_size() + static_cast<int64_t>(search_ ? 0 : answer_.tokens.size());
  }
  // Tokens after these that are known because they are forced. The last forced token is not
  // computed together with them: it may have to be chosen with penalties that count them.
  int64_t ahead() const {
    const auto forced = static_cast<int64_t>(search_ ? 0 : limits_.forced.size());
    return std::max<int64_t>(forced - 1 - static_cast<int64_t>(answer_.tokens.size()), 0);
  }
  // Adds the next node. `left_over`: as in GrownNode.
  void Grow(bool left_over = false);
  GrownNode& Grow(int64_t rows, int cell);
  Status Search(std::span<const Choice> choices);
  void AddTop(const Choice& choice);
  void Emit(const Choice& choice);
  void Finish();
  std::span<const Hypothesis> Returned() const;
  Tensor Output(int output) const;

  const std::vector<int64_t> source_, prompt_;
  const GenerationLimits limits_;
  const int64_t returned_;
  const bool prefix_caching_;
  const bool may_recompute_;
  const int64_t most_choices_;
  BlockPool& pool_;
  BlockPool::Sequence source_sequence_;
  std::vector<BlockPool::Sequence> sequences_;  // by live hypothesis; one before there are any
  Hypothesis answer_;                           // without beams
  std::optional<BeamSearch> search_;            // with beams
  std::vector<SeenTokens> counts_;              // by live hypothesis, if penalties need them
  // By row from which tokens were selected: its limits_.logprobs most likely tokens.
  std::vector<int64_t> top_tokens_;
  std::vector<float> top_logprobs_;
  int32_t nodes_ = 1;  // in total
  int64_t computed_ = 0, begun_ = 0, reused_ = 0;
  bool started_ = false;        // by Begin(), since it was last preempted
  std::vector<int64_t> again_;  // its prompt and its answer when it was last preempted
  bool done_ = false;
  std::vector<GrownNode> grown_;

  std::mutex mutex_;
  AnswerParts parts_;  // guarded by mutex_
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_GENERATING_REQUEST_H_
