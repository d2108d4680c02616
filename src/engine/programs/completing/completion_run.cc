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

// Tokens of the prompt that are detokenized together with the answer: the text of a token may
// depend on earlier tokens.
constexpr size_t kContextTokens = 5;
// Tokens that may wait for a character to be complete: up to three bytes, and tokens without text.
constexpr size_t kMostHeldTokens = 64;
// Answers to several prompts that are generated concurrently.
constexpr size_t kMostUnderWay = 32;
// Total size of prompts echoed before all answers of a request.
constexpr size_t kMostEchoedBytes = size_t{16} << 20;
// Token names that a request's answers may have, with logprobs: about 64 MiB.
constexpr int64_t kMostNames = int64_t{1} << 20;

StatusOr<const Tensor*> FindOutput(std::span<const NamedTensor> outputs, const char* name,
                                   DType dtype) {
  for (const NamedTensor& output : outputs) {
    if (output.name != name) continue;
    if (output.tensor.dtype() == dtype) return &output.tensor;
    return Internal("its '{}' is {}", name, DTypeName(output.tensor.dtype()));
  }
  return Internal("it returned no '{}'", name);
}

// The part for one answer if there are several: [n, …].
StatusOr<Tensor> TokenOutput(std::span<const NamedTensor> outputs, const char* name, DType dtype,
                             std::optional<int64_t> row, int rank) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const Tensor* const found, FindOutput(outputs, name, dtype));
  const Shape& shape = found->shape();
  if (shape.rank() != rank + (row ? 1 : 0) || (row && (*row < 0 || *row >= shape[0]))) {
    return Internal("its '{}' has shape {}", name, shape.ToString());
  }
  if (!row) return *found;
  Shape own = shape;
  own.Erase(0);
  return found->Rows(*row, 1).Reshaped(own);
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
      request_(std::move(request)),
      prompts_(static_cast<size_t>(request_.text.size())),
      answers_(prompts_.size() * static_cast<size_t>(request_.answers), Answer(request_.stops)),
      completions_(answers_.size()) {}

std::vector<int64_t> CompletionRun::prompt_tokens() const {
  std::vector<int64_t> counts;
  for (const Prompt& prompt : prompts_) counts.push_back(static_cast<int64_t>(prompt.ids.size()));
  return counts;
}

void CompletionRun::Begin(std::optional<TimePoint> deadline, std::shared_ptr<Admission> admission,
                          Emit emit, Done done) {
  Lock lock(mutex_);
  deadline_ = deadline;
  admission_ = std::move(admission);
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

// One thread acts. Events that arrive meanwhile are left to it, so calls do not nest.
void CompletionRun::Advance(Lock lock) {
  if (advancing_) return;
  advancing_ = true;
  const MemoryReserve::Use use;  // what is started can be completed
  while (true) {
    if (!pieces_.empty()) {
      Piece piece = std::move(pieces_.front());
      pieces_.pop_front();
      lock.unlock();
      emit_(piece.answer, std::move(piece.piece));
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
      if (made.ok() && pieces_.empty() && to_cancel_.empty()) break;
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
        calls_.Begin(model, std::move(request), admission_,
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
  const bool over = running_.empty() && (!status_.ok() || all) && done_ != nullptr;
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

InferRequest CompletionRun::RequestOf(std::vector<NamedTensor> inputs,
                                      std::vector<std::string> outputs) const {
  InferRequest request;
  request.inputs = std::move(inputs);
  request.outputs = std::move(outputs);
  if (deadline_) {
    const Duration left = std::max(*deadline_ - Clock::Steady().Now(), Duration(0));
    request.timeout = std::chrono::duration_cast<std::chrono::microseconds>(left);
  }
  return request;
}

// Prompts start as answers end, so that a request of many prompts takes no more of the model than
// others.
std::optional<CompletionRun::Call> CompletionRun::NextCall() {
  const auto answers = static_cast<size_t>(request_.answers);
  const size_t under_way = begun_ * answers - over_;
  if (begun_ < prompts_.size() && (under_way == 0 || under_way + answers <= kMostUnderWay)) {
    return Tokenize(begun_++);
  }
  if (!to_generate_.empty()) {
    const size_t answer = to_generate_.front();
    to_generate_.pop_front();
    return Generate(answer);
  }
  while (!to_echo_.empty()) {
    const size_t prompt = to_echo_.front();
    to_echo_.pop_front();
    if (auto call = Echo(prompt)) return call;
    if (!status_.ok()) return std::nullopt;
  }
  const size_t over = over_;
  for (size_t i = 0; i < begun_ * answers && i < answers_.size(); ++i) {
    if (auto call = Read(i)) return call;
  }
  // Those that have ended leave room for the next prompt.
  return over_ == over ? std::nullopt : NextCall();
}

CompletionRun::Call CompletionRun::Tokenize(size_t prompt) {
  Call call{.model = &models_.tokenizer};
  const auto row = static_cast<int64_t>(prompt);
  call.request =
      RequestOf({{"text", request_.text.Rows(row, 1)}, {"options", request_.options.Rows(row, 1)}},
                {"input_ids"});
  call.request.model = config_.tokenizer;
  call.take = [prompt](CompletionRun& run, StatusOr<InferResponse> response) -> Status {
    CHAIRLIFT_RETURN_IF_ERROR(run.prompts_.size() == 1
                                  ? response.status()
                                  : Annotate(response.status(), fmt::format("prompt {}", prompt)));
    return run.TakePrompt(prompt, *response);
  };
  return call;
}

Status CompletionRun::TakePrompt(size_t index, const InferResponse& response) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const Tensor* const tokens,
                             FindOutput(response.outputs, "input_ids", DType::kInt64));
  const auto ids = tokens->values<int64_t>();
  Prompt& prompt = prompts_[index];
  prompt.ids.assign(ids.begin(), ids.end());
  const auto answers = static_cast<size_t>(request_.answers);
  for (size_t i = index * answers; i < (index + 1) * answers; ++i) {
    Answer& answer = answers_[i];
    answer.complete = request_.no_tokens;
    if (config_.continues_prompt) {
      const size_t context = std::min(kContextTokens, ids.size());
      answer.ids.assign(ids.end() - static_cast<std::ptrdiff_t>(context), ids.end());
      answer.read = context;
    }
    if (!request_.no_tokens && (!request_.beams || i == index * answers)) {
      to_generate_.push_back(i);
    }
  }
  if (request_.echo) {
    to_echo_.push_back(index);
  } else {
    prompt.echoed = true;
  }
  return absl::OkStatus();
}

std::optional<CompletionRun::Call> CompletionRun::Echo(size_t index) {
  Prompt& prompt = prompts_[index];
  const bool of_text = request_.options.data<int64_t>()[2 * index + 1] == 0;
  if (of_text && !request_.logprobs) {  // echoed unchanged
    const Status added = AddEcho(index, std::string(TextsOf(request_.text)[index]), {});
    if (!added.ok()) Fail(added);
    return std::nullopt;
  }
  if (request_.logprobs && !prompt.scored) {
    prompt.scored = true;
    if (prompt.ids.size() > 1) return Score(index);
    prompt.tokens = {{.id = prompt.ids[0], .logprob = kNoLogprob}};
  }
  return ReadPrompt(index);
}

// The model scores a prompt as if it were an answer to its first token: its tokens are forced, so
// they are computed together.
CompletionRun::Call CompletionRun::Score(size_t index) {
  const std::span<const int64_t> ids(prompts_[index].ids);
  const auto rest = ids.subspan(1);
  const auto count = static_cast<int32_t>(rest.size());
  Call call{.model = &models_.model};
  std::vector<std::string> outputs = {"output_ids", "token_logprobs"};
  if (*request_.logprobs > 0) outputs.insert(outputs.end(), {"top_token_ids", "top_logprobs"});
  const auto logprobs = static_cast<int32_t>(*request_.logprobs);
  call.request = RequestOf({{"input_ids", Row(ids.first(1))},
                            {"forced_tokens", Tensor::Of<int64_t>({int64_t{count}}, rest)},
                            {"max_tokens", Tensor::Of<int32_t>({1}, {count})},
                            {"ignore_eos", Tensor::Of<bool>({1}, {true})},
                            {"logprobs", Tensor::Of<int32_t>({1}, {logprobs})}},
                           std::move(outputs));
  call.request.model = config_.model;
  call.take = [index](CompletionRun& run, StatusOr<InferResponse> response) -> Status {
    CHAIRLIFT_RETURN_IF_ERROR(response.status());
    return run.TakeScores(index, *response);
  };
  return call;
}

Status CompletionRun::TakeScores(size_t index, const InferResponse& response) {
  Prompt& prompt = prompts_[index];
  CHAIRLIFT_ASSIGN_OR_RETURN(std::vector<ModelToken> tokens, TokensIn(response.outputs, 0));
  tokens.insert(tokens.begin(), {.id = prompt.ids[0], .logprob = kNoLogprob});
  const bool same = std::equal(tokens.begin(), tokens.end(), prompt.ids.begin(), prompt.ids.end(),
                               [](const ModelToken& token, int64_t id) { return token.id == id; });
  if (!same) return Internal("it returned other tokens than the prompt's");
  prompt.tokens = std::move(tokens);
  to_echo_.push_back(index);
  return absl::OkStatus();
}

CompletionRun::Call CompletionRun::ReadPrompt(size_t index) {
  const Prompt& prompt = prompts_[index];
  Call call{.model = &models_.detokenizer};
  const std::vector<int64_t> ids = IdsToRead(prompt.ids, prompt.tokens);
  const Tensor options = Tensor::Of<int64_t>({1, 3}, {0, 1, names_per_token()});
  std::vector<std::string> outputs = {"text"};
  if (request_.logprobs) outputs.emplace_back("lengths");
  call.request = RequestOf({{"ids", Row(ids)}, {"options", options}}, std::move(outputs));
  call.request.model = config_.detokenizer;
  call.take = [index](CompletionRun& run, StatusOr<InferResponse> response) -> Status {
    CHAIRLIFT_RETURN_IF_ERROR(response.status());
    return run.TakePromptText(index, *response);
  };
  return call;
}

Status CompletionRun::TakePromptText(size_t index, const InferResponse& response) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const Tensor* const read,
                             FindOutput(response.outputs, "text", DType::kBytes));
  if (read->size() != 1) return Internal("it returned {} strings", read->size());
  std::string text(TextsOf(*read)[0]);
  std::vector<TextToken> tokens;
  if (request_.logprobs) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const Tensor* const lengths,
                               FindOutput(response.outputs, "lengths", DType::kInt64));
    const std::vector<ModelToken>& own = prompts_[index].tokens;
    CHAIRLIFT_RETURN_IF_ERROR(CountNames(own.size() * static_cast<size_t>(request_.answers)));
    CHAIRLIFT_ASSIGN_OR_RETURN(tokens, TextTokensOf(own, lengths->values<int64_t>(), text));
  }
  return AddEcho(index, text, tokens);
}

// Adds the echo before each answer to the prompt.
Status CompletionRun::AddEcho(size_t index, const std::string& text,
                              const std::vector<TextToken>& tokens) {
  prompts_[index].echoed = true;
  echoed_bytes_ += text.size() * static_cast<size_t>(request_.answers);
  if (echoed_bytes_ > kMostEchoedBytes) {
    return InvalidArgument(
        "echo is true: the prompts of all answers have more than {} bytes; ask for fewer answers, "
        "or leave echo out",
        kMostEchoedBytes);
  }
  const auto answers = static_cast<size_t>(request_.answers);
  for (size_t i = index * answers; i < std::min((index + 1) * answers, answers_.size()); ++i) {
    answers_[i].out = text.size();
    completions_[i].text = text;
    completions_[i].text_tokens = tokens;
    if (request_.in_pieces) pieces_.push_back({i, {.text = text, .tokens = tokens}});
  }
  return absl::OkStatus();
}

CompletionRun::Call CompletionRun::Generate(size_t answer) {
  const std::vector<int64_t>& prompt = prompts_[PromptOf(answer)].ids;
  std::vector<NamedTensor> inputs = request_.given;
  inputs.push_back({"input_ids", Row(prompt)});
  if (const int64_t left = request_.longest - static_cast<int64_t>(prompt.size()); left > 0) {
    inputs.push_back({"max_tokens", Tensor::Of<int32_t>({1}, {static_cast<int32_t>(left)})});
  }
  if (request_.seed) {
    const auto seed =
        static_cast<uint64_t>(*request_.seed) + answer % static_cast<size_t>(request_.answers);
    inputs.push_back({"seed", Tensor::Of<int64_t>({1}, {static_cast<int64_t>(seed)})});
  }
  Call call{.model = &models_.model};
  std::vector<std::string> outputs = {"output_ids"};
  if (request_.logprobs) outputs.emplace_back("token_logprobs");
  if (request_.logprobs > 0) outputs.insert(outputs.end(), {"top_token_ids", "top_logprobs"});
  call.request = RequestOf(std::move(inputs), std::move(outputs));
  call.request.model = config_.model;
  call.answer = answer;
  // Also if a stop string may end it before its last token.
  if (!request_.beams && (request_.in_pieces || !request_.stops.empty())) {
    call.request.on_parts = [self = weak_from_this(), answer](std::span<const InferPart> parts) {
      const std::shared_ptr<CompletionRun> run = self.lock();
      if (run == nullptr) return;
      Lock lock(run->mutex_);
      const Status taken = CatchOutOfMemory([&]() -> Status {
        for (const InferPart& part : parts) {
          CHAIRLIFT_ASSIGN_OR_RETURN(const auto tokens, run->TokensIn(part.outputs, std::nullopt));
          run->TakeTokens(answer, tokens);
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

StatusOr<std::vector<CompletionRun::ModelToken>> CompletionRun::TokensIn(
    std::span<const NamedTensor> outputs, std::optional<int64_t> row) const {
  CHAIRLIFT_ASSIGN_OR_RETURN(const Tensor ids,
                             TokenOutput(outputs, "output_ids", DType::kInt64, row, 1));
  std::vector<ModelToken> tokens(static_cast<size_t>(ids.size()));
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i].id = ids.values<int64_t>()[i];
  if (!request_.logprobs) return tokens;
  CHAIRLIFT_ASSIGN_OR_RETURN(const Tensor logprobs,
                             TokenOutput(outputs, "token_logprobs", DType::kFloat, row, 1));
  if (logprobs.size() != ids.size()) return Internal("it returned too few log-probabilities");
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i].logprob = logprobs.values<float>()[i];
  if (*request_.logprobs < 1) return tokens;
  CHAIRLIFT_ASSIGN_OR_RETURN(const Tensor likely,
                             TokenOutput(outputs, "top_token_ids", DType::kInt64, row, 2));
  CHAIRLIFT_ASSIGN_OR_RETURN(const Tensor likely_logprobs,
                             TokenOutput(outputs, "top_logprobs", DType::kFloat, row, 2));
  const Shape wanted{ids.size(), *request_.logprobs};
  if (likely.shape() != wanted || likely_logprobs.shape() != wanted) {
    return Internal("it returned log-probabilities of shape {}, not {}", likely.shape().ToString(),
                    wanted.ToString());
  }
  for (size_t i = 0, at = 0; i < tokens.size(); ++i) {
    ModelToken& token = tokens[i];
    bool among = false;
    for (int64_t k = 0; k < *request_.logprobs; ++k, ++at) {
      const int64_t id = likely.values<int64_t>()[at];
      token.likely.emplace_back(id, likely_logprobs.values<float>()[at]);
      among |= id == token.id;
    }
    if (!among) token.likely.emplace_back(token.id, token.logprob);
  }
  return tokens;
}

// The next tokens; end tokens are not passed on.
void CompletionRun::TakeTokens(size_t index, std::span<const ModelToken> tokens) {
  Answer& answer = answers_[index];
  for (const ModelToken& token : tokens) {
    if (token.id < 0 || answer.ended_by_token || answer.stop.stopped()) break;
    ++completions_[index].tokens;
    answer.ended_by_token = request_.end_tokens.contains(token.id);
    if (answer.ended_by_token) break;
    answer.ids.push_back(token.id);
    if (request_.logprobs) answer.unread.push_back(token);
  }
}

Status CompletionRun::TakeAnswer(size_t index, StatusOr<InferResponse> response) {
  answers_[index].call.reset();
  answers_[index].complete = true;
  if (answers_[index].stop.stopped()) {  // it may have been cancelled because of that
    if (!answers_[index].reading) Finish(index);
    return absl::OkStatus();
  }
  CHAIRLIFT_RETURN_IF_ERROR(response.status());
  CHAIRLIFT_ASSIGN_OR_RETURN(const Tensor* const ids,
                             FindOutput(response->outputs, "output_ids", DType::kInt64));
  if (ids->shape().rank() != 2) return Internal("its 'output_ids' are not a matrix");
  if (request_.beams) {  // there may be fewer
    const auto given = static_cast<size_t>(std::min(ids->shape()[0], request_.answers));
    answers_.resize(given, Answer(request_.stops));
    completions_.resize(given);
  }
  const size_t end = request_.beams ? answers_.size() : index + 1;
  for (size_t i = index; i < end; ++i) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const auto tokens,
                               TokensIn(response->outputs, static_cast<int64_t>(i - index)));
    const auto had = static_cast<size_t>(completions_[i].tokens);
    if (had < tokens.size()) TakeTokens(i, std::span(tokens).subspan(had));
    answers_[i].complete = true;
  }
  return absl::OkStatus();
}

int64_t CompletionRun::names_per_token() const {
  const int64_t likely = request_.logprobs.value_or(-1);
  return likely > 0 ? likely + 1 : likely;  // plus the token itself
}

std::vector<int64_t> CompletionRun::IdsToRead(std::span<const int64_t> read,
                                              std::span<const ModelToken> added) const {
  std::vector<int64_t> ids(read.begin(), read.end());
  if (names_per_token() < 1) return ids;
  for (const ModelToken& token : added) {
    for (const auto& [id, logprob] : token.likely) ids.push_back(id);
    const auto names = static_cast<size_t>(names_per_token());
    ids.insert(ids.end(), names - token.likely.size(), token.id);
  }
  return ids;
}

std::optional<CompletionRun::Call> CompletionRun::Read(size_t index) {
  Answer& answer = answers_[index];
  if (answer.reading || answer.over || answer.stop.stopped()) return std::nullopt;
  if (!prompts_[PromptOf(index)].echoed) return std::nullopt;
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
  const std::vector<int64_t> ids =
      IdsToRead(std::span(answer.ids).subspan(answer.window), answer.unread);
  const Tensor options =
      Tensor::Of<int64_t>({1, 3}, {known, last || held_long ? 1 : 0, names_per_token()});
  std::vector<std::string> outputs = {"text"};
  if (request_.logprobs) outputs.emplace_back("lengths");
  call.request = RequestOf({{"ids", Row(ids)}, {"options", options}}, std::move(outputs));
  call.request.model = config_.detokenizer;
  call.take = [index, end, known, last, held_long](CompletionRun& run,
                                                   StatusOr<InferResponse> response) -> Status {
    CHAIRLIFT_RETURN_IF_ERROR(response.status());
    Answer& own = run.answers_[index];
    own.reading = false;
    CHAIRLIFT_ASSIGN_OR_RETURN(const Tensor* const text,
                               FindOutput(response->outputs, "text", DType::kBytes));
    if (text->size() != 1) return Internal("it returned {} strings", text->size());
    std::string piece(TextsOf(*text)[0]);
    const size_t added = end - own.read;
    if (run.request_.logprobs) {
      CHAIRLIFT_ASSIGN_OR_RETURN(const Tensor* const lengths,
                                 FindOutput(response->outputs, "lengths", DType::kInt64));
      const auto values = lengths->values<int64_t>();
      const auto from = static_cast<size_t>(known);
      if (values.size() < from) return Internal("it returned {} lengths", values.size());
      CHAIRLIFT_RETURN_IF_ERROR(
          run.TakeTextTokens(index, added, values.subspan(from), last || held_long, piece));
    }
    if (!piece.empty() || last || held_long) {
      own.window = own.read;
      own.read = end;
    }
    run.AddText(index, own.stop.Append(piece), false);
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

StatusOr<std::vector<TextToken>> CompletionRun::TextTokensOf(std::span<const ModelToken> tokens,
                                                             std::span<const int64_t> lengths,
                                                             std::string& text) const {
  const auto names = static_cast<size_t>(std::max<int64_t>(names_per_token(), 0));
  const size_t count = tokens.size();
  size_t at = 0;
  bool fits = lengths.size() == count * (1 + names);
  const auto next = [&](size_t i) -> std::string {
    const auto length = static_cast<size_t>(lengths[i]);
    fits = fits && lengths[i] >= 0 && length <= text.size() - at;
    if (!fits) return {};
    at += length;
    return text.substr(at - length, length);
  };
  std::vector<TextToken> made;
  for (size_t i = 0; fits && i < count; ++i) {
    made.push_back({.text = next(i), .logprob = tokens[i].logprob});
  }
  const size_t own = at;
  for (size_t i = 0; fits && i < count; ++i) {
    for (size_t k = 0; k < names; ++k) {
      std::string name = next(count + i * names + k);
      if (k >= tokens[i].likely.size()) continue;
      made[i].likely.emplace_back(std::move(name), tokens[i].likely[k].second);
    }
  }
  if (!fits || at != text.size()) return Internal("its 'lengths' are not those of its text");
  text.resize(own);
  return made;
}

Status CompletionRun::CountNames(size_t tokens) {
  names_ += static_cast<int64_t>(tokens) * std::max<int64_t>(names_per_token(), 0);
  if (names_ <= kMostNames) return absl::OkStatus();
  return InvalidArgument(
      "logprobs is {}: the answers have more than {} log-probabilities; ask for fewer, or for "
      "fewer or shorter answers",
      *request_.logprobs, kMostNames);
}

Status CompletionRun::TakeTextTokens(size_t index, size_t count, std::span<const int64_t> lengths,
                                     bool whole, std::string& text) {
  Answer& answer = answers_[index];
  if (answer.unread.size() < count) return Internal("its 'lengths' are not those of its text");
  CHAIRLIFT_ASSIGN_OR_RETURN(std::vector<TextToken> tokens,
                             TextTokensOf(std::span(answer.unread).first(count), lengths, text));
  if (text.empty() && !whole) return absl::OkStatus();  // they are read again
  CHAIRLIFT_RETURN_IF_ERROR(CountNames(count));
  answer.unread.erase(answer.unread.begin(),
                      answer.unread.begin() + static_cast<std::ptrdiff_t>(count));
  answer.held.insert(answer.held.end(), std::make_move_iterator(tokens.begin()),
                     std::make_move_iterator(tokens.end()));
  return absl::OkStatus();
}

// With the tokens that end in it or, if nothing follows, begin in it.
void CompletionRun::AddText(size_t index, std::string text, bool last) {
  Answer& answer = answers_[index];
  Completion& completion = completions_[index];
  completion.text += text;
  CompletionPiece piece{.text = std::move(text)};
  while (!answer.held.empty()) {
    TextToken& token = answer.held.front();
    const size_t room = completion.text.size() - answer.out;
    const bool whole = token.text.size() <= room;
    if (!whole && (!last || room == 0)) break;
    if (!whole) token.text.resize(room);
    answer.out += token.text.size();
    completion.text_tokens.push_back(token);
    if (request_.in_pieces) piece.tokens.push_back(std::move(token));
    answer.held.pop_front();
    if (!whole) break;
  }
  if (request_.in_pieces && !(piece.text.empty() && piece.tokens.empty())) {
    pieces_.push_back({index, std::move(piece)});
  }
}

void CompletionRun::Finish(size_t index) {
  Answer& answer = answers_[index];
  AddText(index, answer.stop.stopped() ? std::string() : answer.stop.Rest(), true);
  completions_[index].stopped = answer.stop.stopped() || answer.ended_by_token;
  if (!std::exchange(answer.over, true)) ++over_;
}

}  // namespace chairlift
