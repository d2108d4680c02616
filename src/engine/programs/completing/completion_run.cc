#include "engine/programs/completing/completion_run.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/memory_reserve.h"
#include "base/out_of_memory.h"
#include "base/status.h"
#include "chairlift/text.h"

namespace chairlift {
namespace {

// Tokens of the prompt that the text of what follows is made with: what a token's text is may
// depend on those before it.
constexpr size_t kContextTokens = 5;
// Tokens that may wait for a character to be complete: of three bytes, and of what has no text.
constexpr size_t kMostHeldTokens = 64;

const Tensor* FindOutput(const InferResponse& response, std::string_view name) {
  for (const NamedTensor& output : response.outputs) {
    if (output.name == name) return &output.tensor;
  }
  return nullptr;
}

StatusOr<std::span<const int64_t>> TokensOf(const InferResponse& response, const char* name) {
  const Tensor* const tokens = FindOutput(response, name);
  if (tokens == nullptr) return Internal("it gave no '{}'", name);
  if (tokens->dtype() == DType::kInt64) return tokens->values<int64_t>();
  return Internal("its '{}' are not INT64", name);
}

Tensor Row(std::span<const int64_t> tokens) {
  return Tensor::Of<int64_t>({1, static_cast<int64_t>(tokens.size())}, tokens);
}

}  // namespace

CompletionRun::CompletionRun(CompletionConfig config, CompletionModels models, ModelCalls& calls,
                             CompletionRequest request)
    : config_(std::move(config)),
      models_(std::move(models)),
      calls_(calls),
      request_(std::move(request)) {}

void CompletionRun::Begin(std::optional<TimePoint> deadline, Emit emit, Done done) {
  Lock lock(mutex_);
  deadline_ = deadline;
  emit_ = std::move(emit);
  done_ = std::move(done);
  Advance(std::move(lock));
}

void CompletionRun::Stop() {
  Lock lock(mutex_);
  Fail(absl::CancelledError("the request was cancelled"));
  if (done_ != nullptr) Advance(std::move(lock));
}

void CompletionRun::Fail(const Status& why) {
  if (!status_.ok()) return;
  status_ = why;
  pieces_.clear();
  for (const auto& [call, number] : running_) {
    unwanted_.insert(call);
    if (number != 0) to_cancel_.push_back(number);
  }
}

// One thread acts; what comes meanwhile leaves the rest to it. So calls do not nest.
void CompletionRun::Advance(Lock lock) {
  if (advancing_) return;
  advancing_ = true;
  const MemoryReserve::Use use;  // what is begun can be ended
  while (true) {
    if (!pieces_.empty()) {
      Piece piece = std::move(pieces_.front());
      pieces_.pop_front();
      lock.unlock();
      emit_(piece.answer, std::move(piece.text));
      lock.lock();
      continue;
    }
    if (!to_cancel_.empty()) {
      const RequestId number = to_cancel_.front();
      to_cancel_.pop_front();
      lock.unlock();
      calls_.Cancel(number);
      lock.lock();
      continue;
    }
    std::optional<Call> next;
    const Status made = CatchOutOfMemory([&] {
      if (status_.ok()) next = NextCall();
      return absl::OkStatus();
    });
    if (!made.ok()) Fail(made);
    if (!next) {
      if (made.ok() && pieces_.empty()) break;
      continue;
    }
    const uint64_t call = next_call_++;
    running_[call] = 0;
    if (next->answer) answers_[*next->answer].call = call;
    const CalledModel& model = *next->model;
    InferRequest request = std::move(next->request);
    auto own = std::make_shared<Call>(*std::move(next));
    lock.unlock();
    const RequestId number =
        calls_.Begin(model, std::move(request),
                     [run = shared_from_this(), call, own](StatusOr<InferResponse> response) {
                       run->Answered(call, *own, std::move(response));
                     });
    lock.lock();
    const auto running = running_.find(call);
    if (running == running_.end()) continue;
    running->second = number;
    if (unwanted_.contains(call)) to_cancel_.push_back(number);
  }
  advancing_ = false;
  const bool all = std::all_of(answers_.begin(), answers_.end(),
                               [](const Answer& answer) { return answer.over; });
  const bool over = running_.empty() && (!status_.ok() || (prompted_ && all)) && done_ != nullptr;
  if (!over) return;
  Done done = std::exchange(done_, nullptr);
  const Status status = status_;
  lock.unlock();
  done(status);
}

void CompletionRun::Answered(uint64_t call, Call& made, StatusOr<InferResponse> response) {
  Lock lock(mutex_);
  running_.erase(call);
  unwanted_.erase(call);
  if (status_.ok()) {
    const Status taken =
        CatchOutOfMemory([&]() -> Status { return made.take(*this, std::move(response)); });
    if (!taken.ok()) Fail(taken);
  }
  Advance(std::move(lock));
}

InferRequest CompletionRun::RequestOf(std::vector<NamedTensor> inputs, std::string output) const {
  InferRequest request;
  request.inputs = std::move(inputs);
  request.outputs = {std::move(output)};
  if (deadline_) {
    const Duration left = std::max(*deadline_ - Clock::Steady().Now(), Duration(0));
    request.timeout = std::chrono::duration_cast<std::chrono::microseconds>(left);
  }
  return request;
}

std::optional<CompletionRun::Call> CompletionRun::NextCall() {
  if (!asked_) return Tokenize();
  if (!prompted_) return std::nullopt;
  const size_t requests = request_.beams ? 1 : static_cast<size_t>(request_.answers);
  if (generated_ < requests) return Generate(generated_);
  for (size_t i = 0; i < answers_.size(); ++i) {
    if (auto call = Read(i)) return call;
  }
  return std::nullopt;
}

CompletionRun::Call CompletionRun::Tokenize() {
  asked_ = true;
  Call call{.model = &models_.tokenizer};
  call.request = RequestOf({{"text", request_.text}, {"options", request_.options}}, "input_ids");
  call.request.model = config_.tokenizer;
  call.take = [](CompletionRun& run, StatusOr<InferResponse> response) -> Status {
    CHAIRLIFT_RETURN_IF_ERROR(response.status());
    return run.TakePrompt(*response);
  };
  return call;
}

Status CompletionRun::TakePrompt(const InferResponse& response) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const auto tokens, TokensOf(response, "input_ids"));
  prompt_.assign(tokens.begin(), tokens.end());
  prompted_ = true;
  Answer first(request_.stops);
  if (config_.continues_prompt) {
    const size_t context = std::min(kContextTokens, prompt_.size());
    first.ids.assign(prompt_.end() - static_cast<std::ptrdiff_t>(context), prompt_.end());
    first.read = context;
  }
  answers_.assign(static_cast<size_t>(request_.answers), first);
  completions_.resize(answers_.size());
  return absl::OkStatus();
}

CompletionRun::Call CompletionRun::Generate(size_t answer) {
  ++generated_;
  std::vector<NamedTensor> inputs = request_.given;
  inputs.push_back({"input_ids", Row(prompt_)});
  if (request_.seed) {
    const auto seed = static_cast<uint64_t>(*request_.seed) + answer;
    inputs.push_back({"seed", Tensor::Of<int64_t>({1}, {static_cast<int64_t>(seed)})});
  }
  Call call{.model = &models_.model};
  call.request = RequestOf(std::move(inputs), "output_ids");
  call.request.model = config_.model;
  call.answer = answer;
  // Also where a stop string may end it before its last token.
  if (!request_.beams && (request_.in_pieces || !request_.stops.empty())) {
    call.request.on_parts = [self = weak_from_this(), answer](std::span<const InferPart> parts) {
      const std::shared_ptr<CompletionRun> run = self.lock();
      if (run == nullptr) return;
      Lock lock(run->mutex_);
      const Status taken = CatchOutOfMemory([&] {
        for (const InferPart& part : parts) {
          for (const NamedTensor& output : part.outputs) run->TakeTokens(answer, output.tensor);
        }
        return absl::OkStatus();
      });
      if (!taken.ok()) run->Fail(taken);
      run->Advance(std::move(lock));
    };
  }
  call.take = [answer](CompletionRun& run, StatusOr<InferResponse> response) {
    return run.TakeAnswer(answer, std::move(response));
  };
  return call;
}

// Those that come next; no end token is passed on.
void CompletionRun::TakeTokens(size_t index, const Tensor& tokens) {
  Answer& answer = answers_[index];
  for (const int64_t token : tokens.values<int64_t>()) {
    if (token < 0 || answer.ended_by_token || answer.stop.stopped()) break;
    ++completions_[index].tokens;
    answer.ended_by_token = request_.end_tokens.contains(token);
    if (!answer.ended_by_token) answer.ids.push_back(token);
  }
}

Status CompletionRun::TakeAnswer(size_t index, StatusOr<InferResponse> response) {
  answers_[index].call.reset();
  answers_[index].complete = true;
  if (answers_[index].stop.stopped()) {  // it may have been cancelled for that
    if (!answers_[index].reading) Finish(index);
    return absl::OkStatus();
  }
  CHAIRLIFT_RETURN_IF_ERROR(response.status());
  const Tensor* const tokens = FindOutput(*response, "output_ids");
  if (tokens == nullptr || tokens->dtype() != DType::kInt64 || tokens->shape().rank() != 2) {
    return Internal("it gave no 'output_ids'");
  }
  const int64_t rows = tokens->shape()[0];
  if (request_.beams) {  // there may be fewer
    answers_.resize(static_cast<size_t>(std::min(rows, request_.answers)), Answer(request_.stops));
    completions_.resize(answers_.size());
  }
  const size_t end = request_.beams ? answers_.size() : index + 1;
  for (size_t i = index; i < end; ++i) {
    const Tensor row = tokens->Rows(static_cast<int64_t>(i - index), 1);
    const int64_t had = completions_[i].tokens;
    const int64_t all = row.size();
    if (had < all) {
      const Shape shape{all};
      TakeTokens(i, row.Reshaped(shape).Rows(had, all - had));
    }
    answers_[i].complete = true;
  }
  return absl::OkStatus();
}

std::optional<CompletionRun::Call> CompletionRun::Read(size_t index) {
  Answer& answer = answers_[index];
  if (answer.reading || answer.over || answer.stop.stopped()) return std::nullopt;
  const size_t end = answer.ids.size();
  const bool last = answer.complete;
  if (last && answer.read == end) {
    Finish(index);
    return std::nullopt;
  }
  if (answer.sent == end && !last) return std::nullopt;
  if (!last && !request_.in_pieces && request_.stops.empty()) return std::nullopt;
  answer.sent = end;
  answer.reading = true;
  const bool held_long = end - answer.read > kMostHeldTokens;
  const auto known = static_cast<int64_t>(answer.read - answer.window);
  Call call{.model = &models_.detokenizer};
  call.request =
      RequestOf({{"ids", Row(std::span(answer.ids).subspan(answer.window))},
                 {"options", Tensor::Of<int64_t>({1, 2}, {known, last || held_long ? 1 : 0})}},
                "text");
  call.request.model = config_.detokenizer;
  call.take = [index, end, last, held_long](CompletionRun& run,
                                            StatusOr<InferResponse> response) -> Status {
    CHAIRLIFT_RETURN_IF_ERROR(response.status());
    Answer& own = run.answers_[index];
    own.reading = false;
    const Tensor* const text = FindOutput(*response, "text");
    if (text == nullptr || text->dtype() != DType::kBytes || text->size() != 1) {
      return Internal("the detokenizer gave no text");
    }
    std::string piece(TextsOf(*text)[0]);
    if (!piece.empty() || last || held_long) {
      own.window = own.read;
      own.read = end;
    }
    run.AddText(index, own.stop.Append(piece));
    if (own.stop.stopped()) {
      if (own.complete) {
        run.Finish(index);
      } else if (own.call) {
        run.unwanted_.insert(*own.call);
        if (const RequestId number = run.running_.at(*own.call); number != 0) {
          run.to_cancel_.push_back(number);
        }
      }
    }
    return absl::OkStatus();
  };
  return call;
}

void CompletionRun::AddText(size_t index, std::string text) {
  if (text.empty()) return;
  completions_[index].text += text;
  if (request_.in_pieces) pieces_.push_back({index, std::move(text)});
}

void CompletionRun::Finish(size_t index) {
  Answer& answer = answers_[index];
  if (!answer.stop.stopped()) AddText(index, answer.stop.Rest());
  completions_[index].stopped = answer.stop.stopped() || answer.ended_by_token;
  answer.over = true;
}

}  // namespace chairlift
