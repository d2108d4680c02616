// One request of a model that continues texts: for each of its prompts a request of the tokenizer,
// one of the model for each answer (with beams, one for all), and those of the detokenizer, as
// tokens come. Where prompts are echoed with log-probabilities, one more of the model and of the
// detokenizer for each prompt.
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

// What a request says.
struct CompletionRequest {
  Tensor text, options;            // of the tokenizer: by prompt
  std::vector<NamedTensor> given;  // inputs of the model, but its prompt and seed
  std::optional<int64_t> seed = {};
  int64_t answers = 1;             // to each prompt
  bool beams = false;              // of one search; else each is a request of its own
  bool echo = false;               // each answer begins with its prompt
  bool no_tokens = false;          // nothing is generated: answers are their echoes
  std::vector<std::string> stops;  // strings
  std::set<int64_t> end_tokens;    // that end an answer
  bool in_pieces = false;          // texts are wanted as they come
  // An answer may go on until prompt and answer have so many tokens; 0: as the model has it.
  int64_t longest = 0;
  // How many tokens that might have been are wanted of each one's place, beside log-probabilities;
  // nothing: neither. The model is asked for them by `given`.
  std::optional<int64_t> logprobs = {};
};

// The log-probability of a token that follows none: the first of a prompt.
inline constexpr float kNoLogprob = 1.0f;

// What a token of an answer is in its text.
struct TextToken {
  std::string text;  // of all tokens in a row, that of the answer
  float logprob = 0;
  // The most likely ones in its place, by name, and itself behind them where it is not among them.
  std::vector<std::pair<std::string, float>> likely = {};
};

struct Completion {
  std::string text;
  bool stopped = false;  // by an end token or a stop string; else there were max_tokens
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

  // Once. `emit` gets pieces of the answers' texts, in order, by one thread at a time; `done` is
  // called when nothing runs any more: before this returns, or on another thread. The status of
  // what failed first says which step it was.
  using Emit = absl::AnyInvocable<void(size_t answer, CompletionPiece piece)>;
  using Done = absl::AnyInvocable<void(const Status&)>;
  // `admission`: its requests' (ModelCalls::Begin); may be null.
  void Begin(std::optional<TimePoint> deadline, std::shared_ptr<Admission> admission, Emit emit,
             Done done);
  // Nobody waits for the answer any more: begins nothing more, and cancels what runs.
  void Stop();

  // After `done` was called with OK. All answers to a prompt are beside each other.
  const std::vector<Completion>& answers() const { return completions_; }
  std::vector<int64_t> prompt_tokens() const;  // by prompt

 private:
  using Lock = std::unique_lock<std::mutex>;
  // As the model gives it.
  struct ModelToken {
    int64_t id = 0;
    // With logprobs:
    float logprob = 0;
    std::vector<std::pair<int64_t, float>> likely = {};  // as TextToken's
  };
  struct Prompt {
    std::vector<int64_t> ids = {};
    bool scored = false;   // with logprobs, if echoed: the model has been asked for them
    bool reading = false;  // likewise, the detokenizer
    bool echoed = false;   // its answers have it, if they are to have it
    std::vector<ModelToken> tokens = {};  // likewise: of the ids
  };
  struct Answer {
    explicit Answer(const std::vector<std::string>& stops) : stop(stops) {}

    std::vector<int64_t> ids;     // the end of the prompt, where it is continued; the answer's
    size_t window = 0, read = 0;  // ids whose text is out begin, and end
    size_t sent = 0;              // ids that the detokenizer has
    bool reading = false;         // it has them
    bool complete = false;        // no more tokens come
    bool over = false;            // nor text
    bool ended_by_token = false;
    std::optional<uint64_t> call;  // its request to the model
    StopText stop;

    // With logprobs:
    std::vector<ModelToken> unread;  // those of the last ids, which have no text yet
    std::deque<TextToken> held;      // whose text is not all out
    size_t out = 0;                  // bytes of the text of those that are
  };
  // A request to be made.
  struct Call {
    const CalledModel* model;
    InferRequest request = {};
    absl::AnyInvocable<Status(CompletionRun&, StatusOr<InferResponse>)> take = {};
    std::optional<size_t> answer = {};  // that it generates
  };
  struct Piece {
    size_t answer;
    CompletionPiece piece;
  };

  // Makes requests, passes on pieces; calls `done_` at the end. Returns with the lock released.
  void Advance(Lock lock);
  std::optional<Call> NextCall();
  Call Tokenize(size_t prompt);
  Call Generate(size_t answer);
  // What is wanted of a prompt for its echo.
  std::optional<Call> Echo(size_t prompt);
  Call Score(size_t prompt);
  Call ReadPrompt(size_t prompt);
  std::optional<Call> Read(size_t answer);
  void Answered(uint64_t call, Call& made, StatusOr<InferResponse> response);

  Status TakePrompt(size_t prompt, const InferResponse& response);
  Status TakeScores(size_t prompt, const InferResponse& response);
  Status TakePromptText(size_t prompt, const InferResponse& response);
  Status AddEcho(size_t prompt, std::string text, std::vector<TextToken> tokens);
  size_t PromptOf(size_t answer) const { return answer / static_cast<size_t>(request_.answers); }
  // `row`: of outputs that have several answers; nothing: of a part of one.
  StatusOr<std::vector<ModelToken>> TokensIn(std::span<const NamedTensor> outputs,
                                             std::optional<int64_t> row) const;
  void TakeTokens(size_t answer, std::span<const ModelToken> tokens);
  // Of ids, then of each new one those that might have been.
  std::vector<int64_t> IdsToRead(std::span<const int64_t> ids,
                                 std::span<const ModelToken> added) const;
  int64_t names_per_token() const;
  // With logprobs: what tokens add to `text`, behind which are the names of others, until they are
  // taken off.
  StatusOr<std::vector<TextToken>> TextTokensOf(std::span<const ModelToken> tokens,
                                                std::span<const int64_t> lengths,
                                                std::string& text) const;
  Status CountNames(size_t tokens);
  // Likewise of the next `count` tokens of an answer. `whole`: not to be read again if there is no
  // text.
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
  size_t begun_ = 0;                // prompts that the tokenizer was asked for
  size_t over_ = 0;                 // answers
  std::deque<size_t> to_generate_;  // answers whose requests to the model are to be made
  std::deque<size_t> to_echo_;      // prompts of which something is wanted for their echo
  std::vector<Answer> answers_;     // by prompt, then by answer to it
  std::vector<Completion> completions_;
  size_t echoed_bytes_ = 0;
  int64_t names_ = 0;  // of tokens that might have been, in all of these
  uint64_t next_call_ = 0;
  std::map<uint64_t, RequestId> running_;  // 0: not known yet
  std::set<uint64_t> unwanted_;            // of them, to be cancelled when that is known
  std::deque<RequestId> to_cancel_;
  std::deque<Piece> pieces_;
  bool advancing_ = false;  // some thread is in Advance()
  Status status_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_COMPLETING_COMPLETION_RUN_H_
