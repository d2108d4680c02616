#include "engine/programs/generating/generating_request.h"

#include <algorithm>
#include <utility>

#include "base/status.h"

namespace chairlift {
namespace {

// By output: whether it is sent in parts.
std::vector<bool> InParts(const ValidatedRequest& request, bool parts) {
  std::vector<bool> wanted(kTopTokens + 1);
  for (const int output : request.outputs) wanted[static_cast<size_t>(output)] = parts;
  return wanted;
}

constexpr const char* kOutputNames[] = {"output_ids", "sequences_scores", "token_logprobs",
                                        "top_logprobs", "top_token_ids"};

}  // namespace

// The last token of an answer is read by no later one.
int64_t BlocksOfRequest(const BlockPool& pool, int64_t source, int64_t prompt, int64_t max_tokens,
                        int64_t beams) {
  const int64_t sequences = max_tokens > 1 ? beams : 1;
  const int64_t shared = prompt / pool.block_tokens();
  return pool.BlocksOf(source) + shared +
         sequences * (pool.BlocksOf(prompt + max_tokens - 1) - shared);
}

GeneratingRequest::GeneratingRequest(ValidatedRequest request, std::span<const int64_t> source,
                                     std::span<const int64_t> prompt, GenerationLimits limits,
                                     int64_t returned, BlockPool& pool, bool prefix_caching,
                                     bool may_recompute, bool parts, int64_t most_choices)
    : RequestGraph(std::move(request)),
      source_(source.begin(), source.end()),
      prompt_(prompt.begin(), prompt.end()),
      limits_(std::move(limits)),
      returned_(returned),
      prefix_caching_(prefix_caching && source.empty()),
      may_recompute_(may_recompute),
      most_choices_(most_choices),
      pool_(pool),
      source_sequence_(pool),
      parts_(InParts(this->request(), parts && limits_.beams.beams == 1)) {
  sequences_.emplace_back(pool);
  if (limits_.beams.beams > 1) search_.emplace(limits_.beams);
  if (limits_.penalties.counted()) counts_.emplace_back(prompt_);
}

GraphNode GeneratingRequest::run(int32_t /*index*/) const {
  const bool prompt = source_.empty();
  return {.cell = prompt ? kStepCell : kEncodeCell,
          .rows = static_cast<int32_t>(prompt ? prompt_size() + ahead() : source_size()),
          .key = {},
          .dependencies = {},
          .divisible = prompt};
}

int64_t GeneratingRequest::state() const {
  return BlocksOfRequest(pool_, source_size(), prompt_size(), limits_.max_tokens,
                         limits_.beams.beams);
}

int32_t GeneratingRequest::state_rows() const {
  const bool grows = may_recompute_ && source_.empty() && limits_.beams.beams == 1;
  return grows ? static_cast<int32_t>(pool_.block_tokens()) : 0;
}

std::vector<GrownNode> GeneratingRequest::TakeGrown() { return std::exchange(grown_, {}); }

void GeneratingRequest::TakeParts(SendParts send) {
  const std::lock_guard<std::mutex> lock(mutex_);
  send(parts_.Take());
}

GrownNode& GeneratingRequest::Grow(int64_t rows, int cell) {
  GrownNode& node = grown_.emplace_back();
  node.cell = cell;
  node.rows = static_cast<int32_t>(rows);
  node.dependencies = {nodes_ - 1};
  ++nodes_;
  return node;
}

void GeneratingRequest::Grow(bool left_over) {
  const int64_t left = known() - computed_ + ahead();
  GrownNode& node = Grow(left > 0 ? left : static_cast<int64_t>(sequences_.size()), kStepCell);
  // A prompt of one token is equivalent to a step.
  node.divisible = left > 1;
  node.left_over = left_over;
}

bool GeneratingRequest::BeginSource() {
  if (source_sequence_.Grow(source_size())) return true;
  Grow(source_size(), kEncodeCell).left_over = true;
  return false;
}

void GeneratingRequest::CompleteSource() { Grow(); }

std::vector<StepTokens> GeneratingRequest::Begin(int64_t tokens,
                                                 std::vector<BlockPool::Copy>& copies) {
  reused_ = 0;
  if (!std::exchange(started_, true) && prefix_caching_) {
    reused_ = computed_ = sequences_[0].Reuse(prompt_);
  }
  const int64_t left = known() - computed_;
  const int64_t forced = std::min(ahead(), most_choices_ - 1);
  begun_ = std::clamp<int64_t>(tokens, 1, std::max<int64_t>(left + forced, 1));
  // A request that has room keeps it even if others find none.
  const bool room = std::all_of(
      sequences_.begin(), sequences_.end(),
      [&](BlockPool::Sequence& sequence) { return sequence.Grow(computed_ + begun_, copies); });
  if (!room) {
    begun_ = 0;
    Grow(true);
    return {};
  }
  const std::span<const int64_t> before(again_.empty() ? prompt_ : again_);
  const bool read = computed_ < static_cast<int64_t>(before.size());
  std::vector<StepTokens> begun;
  for (size_t i = 0; i < sequences_.size(); ++i) {
    begun.push_back({.tokens = read ? before.subspan(static_cast<size_t>(computed_),
                                                     static_cast<size_t>(std::min(begun_, left)))
                                    : answer(i).last(1),
                     .cached = computed_,
                     .blocks = sequences_[i].blocks(),
                     .source = source_size(),
                     .source_blocks = source_sequence_.blocks()});
  }
  for (int64_t at = known(); at < computed_ + begun_ && !search_; ++at) {
    StepTokens& next = begun.emplace_back(begun[0]);
    next.tokens = std::span(limits_.forced).subspan(static_cast<size_t>(at - prompt_size()), 1);
    next.cached = at;
  }
  return begun;
}

int64_t GeneratingRequest::SetBack() {
  const int64_t left = known() - computed_ + ahead();
  again_ = prompt_;
  again_.insert(again_.end(), answer_.tokens.begin(), answer_.tokens.end());
  sequences_[0].Clear();
  computed_ = reused_ = 0;
  started_ = false;
  Grow();
  return left;
}

Status GeneratingRequest::Complete(std::span<const Choice> choices) {
  const bool of_prompt = computed_ < prompt_size();
  computed_ += std::exchange(begun_, 0);
  if (of_prompt && prefix_caching_) {
    const auto read = static_cast<size_t>(std::min(computed_, prompt_size()));
    sequences_[0].Publish(std::span(prompt_).first(read));
  }
  if (computed_ < known()) {
    Grow(true);
    return absl::OkStatus();
  }
  for (const Choice& choice : choices) CHAIRLIFT_RETURN_IF_ERROR(choice.status);
  if (search_) {
    for (const Choice& choice : choices) AddTop(choice);
    return Search(choices);
  }
  for (const Choice& choice : choices) {
    const Continuation& next = choice.next[0];
    AddTop(choice);
    Emit(choice);
    answer_.Append(next, static_cast<int32_t>(answer_.tokens.size()));
    if (!counts_.empty()) counts_[0].Add(next.token);
    if (next.ends) {
      Finish();
      return absl::OkStatus();
    }
  }
  // Forced tokens were counted with the prompt.
  const auto forced = static_cast<int64_t>(limits_.forced.size());
  Grow(computed_ < prompt_size() + forced - 1);
  return absl::OkStatus();
}

void GeneratingRequest::AddTop(const Choice& choice) {
  for (const auto& [token, logprob] : choice.top) {
    top_tokens_.push_back(token);
    top_logprobs_.push_back(logprob);
  }
}

Status GeneratingRequest::Search(std::span<const Choice> choices) {
  std::vector<std::vector<Continuation>> rows;
  for (const Choice& choice : choices) rows.push_back(choice.next);
  const std::vector<int32_t> parents = search_->Advance(rows);
  if (search_->done()) {
    if (search_->finished().empty()) return NoTokenMayFollow();
    Finish();
    return absl::OkStatus();
  }
  std::vector<BlockPool::Sequence> continued;
  continued.reserve(parents.size());
  for (const int32_t parent : parents) {
    continued.push_back(sequences_[static_cast<size_t>(parent)].Share());
  }
  sequences_ = std::move(continued);
  if (!counts_.empty()) {
    std::vector<SeenTokens> counts;
    for (size_t i = 0; i < parents.size(); ++i) {
      counts.push_back(counts_[static_cast<size_t>(parents[i])]);
      counts.back().Add(search_->live()[i].tokens.back());
    }
    counts_ = std::move(counts);
  }
  Grow();
  return absl::OkStatus();
}

void GeneratingRequest::Emit(const Choice& choice) {
  const Continuation& next = choice.next[0];
  const AnswerPart part = {
      .row = 0, .first = static_cast<int64_t>(answer_.tokens.size()), .count = 1};
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto emit = [&](int output, auto entries) {
    if (!parts_.wants(output)) return;
    AnswerPart own = part;
    own.output = output;
    parts_.Emit(own, entries());
  };
  const Shape likely = {1, static_cast<int64_t>(choice.top.size())};
  emit(kOutputIds, [&] { return Tensor::Of<int64_t>({1}, {next.token}); });
  emit(kTokenLogprobs, [&] { return Tensor::Of<float>({1}, {next.logprob}); });
  emit(kTopLogprobs,
       [&] { return Tensor::Of<float>(likely, std::span(top_logprobs_).last(choice.top.size())); });
  emit(kTopTokens,
       [&] { return Tensor::Of<int64_t>(likely, std::span(top_tokens_).last(choice.top.size())); });
}

void GeneratingRequest::Finish() {
  done_ = true;
  // Before requests that wait for room are checked.
  sequences_.clear();
  source_sequence_.Clear();
}

std::span<const Hypothesis> GeneratingRequest::Returned() const {
  if (!search_) return {&answer_, 1};
  const std::span<const Hypothesis> finished = search_->finished();
  return finished.first(std::min(finished.size(), static_cast<size_t>(returned_)));
}

Tensor GeneratingRequest::Output(int output) const {
  const std::span<const Hypothesis> returned = Returned();
  const auto count = static_cast<int64_t>(returned.size());
  size_t longest = 0;
  for (const Hypothesis& one : returned) longest = std::max(longest, one.tokens.size());
  const auto places = static_cast<int64_t>(longest);
  const auto of_top = static_cast<size_t>(std::max<int64_t>(limits_.logprobs, 0));
  // [hypotheses, longest], for values by token.
  const auto by_token = [&]<typename T>(std::vector<T> Hypothesis::*values, T behind) {
    Tensor tensor = Tensor::Allocate(DTypeOf<T>::kValue, {count, places});
    T* to = tensor.data<T>();
    std::fill_n(to, tensor.size(), behind);
    for (const Hypothesis& one : returned) {
      std::copy((one.*values).begin(), (one.*values).end(), to);
      to += places;
    }
    return tensor;
  };
  // [hypotheses, longest, logprobs], for values by row.
  const auto by_row = [&]<typename T>(const std::vector<T>& values, T behind) {
    Tensor tensor =
        Tensor::Allocate(DTypeOf<T>::kValue, {count, places, static_cast<int64_t>(of_top)});
    T* to = tensor.data<T>();
    std::fill_n(to, tensor.size(), behind);
    for (const Hypothesis& one : returned) {
      for (size_t i = 0; i < one.rows.size(); ++i) {
        std::copy_n(values.begin() + one.rows[i] * static_cast<std::ptrdiff_t>(of_top), of_top,
                    to + i * of_top);
      }
      to += longest * of_top;
    }
    return tensor;
  };
  switch (output) {
    case kSequencesScores: {
      Tensor scores = Tensor::Allocate(DType::kFloat, {count});
      for (int64_t i = 0; i < count; ++i) {
        scores.data<float>()[i] = static_cast<float>(returned[static_cast<size_t>(i)].score);
      }
      return scores;
    }
    case kTokenLogprobs:
      return by_token(&Hypothesis::logprobs, 0.0f);
    case kTopLogprobs:
      return by_row(top_logprobs_, 0.0f);
    case kTopTokens:
      return by_row(top_tokens_, kNoToken);
    default:
      return by_token(&Hypothesis::tokens, kNoToken);
  }
}

StatusOr<std::vector<NamedTensor>> GeneratingRequest::TakeOutputs() {
  std::vector<NamedTensor> outputs;
  for (const int output : request().outputs) {
    outputs.push_back({kOutputNames[output], Output(output)});
  }
  return outputs;
}

}  // namespace chairlift
