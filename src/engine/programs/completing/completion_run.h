// One request of a model that completes texts. For each prompt it makes a request to the tokenizer,
// one to the model for each answer (with beams, one for all), and requests to the detokenizer as
// tokens come. If prompts are echoed with log-probabilities, it makes one more request to the model
// and to the detokenizer per prompt.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_COMPLETING_COMPLETION_RUN_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_COMPLETING_COMPLETION_RUN_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "base/clock.h"
#include "engine/programs/completing/completion_config.h"
#include "engine/programs/completing/stop_text.h"
#include "engine/programs/model_calls.h"

namespace chairlift {

struct CompletionModels {
  CalledModel tokenizer, model, detokenizer;
};

// The contents of a request.
struct CompletionRequest {
  Tensor text, options;            // inputs of the tokenizer: by prompt
  std::vector<NamedTensor> given;  // inputs of the model, except its prompt and seed
  std::optional<int64_t> seed = {};
  int64_t answers = 1;  // per prompt
  // All from one beam search; if false, each answer is a separate request.
  bool beams = false;
  bool echo = false;               // each answer starts with its prompt
  bool no_tokens = false;          // nothing is generated: answers are only echoes
  std::vector<std::string> stops;  // strings
  std::set<int64_t> end_tokens;    // that end an answer
  bool in_pieces = false;          // texts are sent as they are produced
  // An answer may continue until prompt and answer together have this many tokens; 0: the model's
  // limit.
  int64_t longest = 0;
  // The number of candidate tokens to report per position, in addition to log-probabilities;
  // absent: neither. `given` requests them from the model.
  std::optional<int64_t> logprobs = {};
};

// The log-probability of a token without a predecessor: the first of a prompt.
inline constexpr float kNoLogprob = 1.0f;

// A token of an answer and its text.
struct TextToken {
  std::string text;  // concatenated over all tokens: the answer
  float logprob = 0;
  // The most likely tokens at this position, by name, followed by the token itself if it is not
  // among them.
  std::vector<std::pair<std::string, float>> likely = {};
};

struct Completion {
  std::string text;
  bool stopped = false;  // by an end token or a stop string; false: at max_tokens
  int64_t tokens = 0;
  std::vector<TextToken> text_tokens = {};  // with logprobs
};

// A piece of an answer, and the tokens whose text ends in it.
struct CompletionPiece {
  std::string text;
  std::vector<TextToken> tokens = {};
};

// Thread-safe.
class CompletionRun : public std::enable_shared_from_this<CompletionRun> {
 public:
  // `calls` must outlive it.
  CompletionRun(CompletionConfig config, CompletionModels models, ModelCalls& calls,
                CompletionRequest request);
  CompletionRun(const CompletionRun&) = delete;
  CompletionRun& operator=(const CompletionRun&) = delete;

  // Call it once. `emit` receives pieces of the answers' texts in order, from one thread at a time.
  // `done` is called when nothing runs any more: before this returns, or on another thread. The
  // status is that of the first failure and names the step.
  using Emit = absl::AnyInvocable<void(size_t answer, CompletionPiece piece)>;
  using Done = absl::AnyInvocable<void(const Status&)>;
  // `admission`: for its requests (ModelCalls::Begin); may be null.
  void Begin(std::optional<TimePoint> deadline, std::shared_ptr<Admission> admission, Emit emit,
             Done done);
  // The answer is no longer needed: starts nothing more, and cancels what runs.
  void Stop();

  // After `done` was called with OK. All answers to a prompt are adjacent.
  const std::vector<Completion>& answers() const { return completions_; }
  std::vector<int64_t> prompt_tokens() const;  // by prompt

 private:
  using Lock = std::unique_lock<std::mutex>;
  // As returned by the model.
  struct ModelToken {
    int64_t id = 0;
    // With logprobs:
    float logprob = 0;
    std::vector<std::pair<int64_t, float>> likely = {};  // as in TextToken
  };
  struct Prompt {
    std::vector<int64_t> ids = {};
    bool scored = false;                  // echo with logprobs: the model has been asked for them
    bool reading = false;                 // echo with logprobs: the detokenizer has been asked
    bool echoed = false;                  // its answers have the echo, if requested
    std::vector<ModelToken> tokens = {};  // with logprobs: for the ids
  };
  struct Answer {
    explicit Answer(const std::vector<std::string>& stops) : stop(stops) {}

    std::vector<int64_t> ids;     // the end of the prompt, if it is continued; then the answer's
    size_t window = 0, read = 0;  // ids [window, read) gave the text that was sent; they are read
                                  // again with the next ids
    size_t sent = 0;              // ids that were sent to the detokenizer
    bool reading = false;         // the detokenizer is working on them
    bool complete = false;        // no more tokens will come
    bool over = false;            // and no more text
    bool ended_by_token = false;
    std::optional<uint64_t> call;  // its request to the model
    StopText stop;

    // With logprobs:
    std::vector<ModelToken> unread;  // those of the last ids, whose text is not known yet
    std::deque<TextToken> held;      // tokens whose text was not completely sent
    size_t out = 0;                  // bytes of their text that were sent
  };
  // A request to be made.
  struct Call {
    const CalledModel* model;
    InferRequest request = {};
    absl::AnyInvocable<Status(CompletionRun&, StatusOr<InferResponse>)> take = {};
    std::optional<size_t> answer = {};  // the answer that it generates
  };
  struct Piece {
    size_t answer;
    CompletionPiece piece;
  };

  // Makes requests and passes on pieces; calls `done_` at the end. Returns with the lock released.
  void Advance(Lock lock);
  std::optional<Call> NextCall();
  Call Tokenize(size_t prompt);
  Call Generate(size_t answer);
  // The next request needed for a prompt's echo.
  std::optional<Call> Echo(size_t prompt);
  Call Score(size_t prompt);
  Call ReadPrompt(size_t prompt);
  std::optional<Call> Read(size_t answer);
  void Answered(uint64_t call, Call& made, StatusOr<InferResponse> response);

  Status TakePrompt(size_t prompt, const InferResponse& response);
  Status TakeScores(size_t prompt, const InferResponse& response);
  Status TakePromptText(size_t prompt, const InferResponse& response);
  Status AddEcho(size_t prompt, const std::string& text, const std::vector<TextToken>& tokens);
  size_t PromptOf(size_t answer) const { return answer / static_cast<size_t>(request_.answers); }
  // `row`: for outputs that have several answers; absent: for a part of one.
  StatusOr<std::vector<ModelToken>> TokensIn(std::span<const NamedTensor> outputs,
                                             std::optional<int64_t> row) const;
  void TakeTokens(size_t answer, std::span<const ModelToken> tokens);
  // The ids, then the candidate tokens of each new one.
  std::vector<int64_t> IdsToRead(std::span<const int64_t> ids,
                                 std::span<const ModelToken> added) const;
  int64_t names_per_token() const;
  // With logprobs: what each token adds to `text`. The names of candidate tokens follow the text
  // and are removed from it.
  StatusOr<std::vector<TextToken>> TextTokensOf(std::span<const ModelToken> tokens,
                                                std::span<const int64_t> lengths,
                                                std::string& text) const;
  Status CountNames(size_t tokens);
  // The same for the next `count` tokens of an answer. `whole`: they are not read again if there is
  // no text.
  Status TakeTextTokens(size_t answer, size_t count, std::span<const int64_t> lengths, bool whole,
                        std::string& text);
  Status TakeAnswer(size_t answer, StatusOr<InferResponse> response);
  // `last`: nothing follows.
  void AddText(size_t answer, std::string text, bool last);
  void Finish(size_t answer);
  void Fail(const Status& why);
  InferRequest RequestOf(std::vector<NamedTensor> inputs, std::vector<std::string> outputs) const;

  const CompletionConfig config_;
  const CompletionModels models_;
  ModelCalls& calls_;
  const CompletionRequest request_;
  std::optional<TimePoint> deadline_;
  std::shared_ptr<Admission> admission_;
  Emit emit_;
  Done done_;

  std::mutex mutex_;
  // Guarded by mutex_.
  std::vector<Prompt> prompts_;
  size_t begun_ = 0;                // prompts sent to the tokenizer
  size_t over_ = 0;                 // finished answers
  std::deque<size_t> to_generate_;  // answers whose requests to the model must be made
  std::deque<size_t> to_echo_;      // prompts that need a request for their echo
  std::vector<Answer> answers_;     // by prompt, then by answer
  std::vector<Completion> completions_;
  size_t echoed_bytes_ = 0;
  int64_t names_ = 0;  // total names of candidate tokens
  uint64_t next_call_ = 0;
  std::map<uint64_t, RequestId> running_;  // 0: not known yet
  std::set<uint64_t> unwanted_;            // those to cancel when their number is known
  std::deque<RequestId> to_cancel_;
  std::deque<Piece> pieces_;
  bool advancing_ = false;  // a thread is in Advance()
  Status status_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_COMPLETING_COMPLETION_RUN_H_
