// Text requests in any order of tokens, answers, failures and cancellations: the text is that
// of all tokens, up to the first stop string, however it came.
#include "engine/programs/completing/completion_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <set>

#include "chairlift/text.h"

namespace chairlift {
namespace {

constexpr int64_t kEnd = 0, kSpecial = 1, kFirstHalf = 2, kSecondHalf = 3;
constexpr std::string_view kBroken = "\xEF\xBF\xBD";

// Letters are tokens; two halves make a character; a special token has no text.
std::string Decode(std::span<const int64_t> ids) {
  std::string text;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] == kSpecial) continue;
    if (ids[i] == kFirstHalf && i + 1 < ids.size() && ids[i + 1] == kSecondHalf) {
      text += "é";
      ++i;
    } else if (ids[i] == kFirstHalf || ids[i] == kSecondHalf) {
      text += kBroken;
    } else {
      text.push_back(static_cast<char>(ids[i]));
    }
  }
  return text;
}

// What tokens add to a text, one by one; nothing while a character is not complete.
std::vector<std::string> PiecesOf(std::span<const int64_t> ids, size_t known, bool last) {
  std::vector<std::string> pieces;
  std::string before = Decode(ids.first(known));
  for (size_t i = known; i < ids.size(); ++i) {
    const std::string text = Decode(ids.first(i + 1));
    const bool whole = text.size() > before.size() && !text.ends_with(kBroken);
    pieces.emplace_back();
    if (!whole && !(last && i + 1 == ids.size())) continue;
    pieces.back() = text.substr(before.size());
    before = text;
  }
  return pieces;
}

// The log-probability of token `place` of an answer, and of what might have been in its place.
float LogprobOf(int64_t place) { return static_cast<float>(-1 - place); }
std::vector<int64_t> LikelyOf(std::span<const int64_t> ids, size_t place, int64_t count) {
  std::vector<int64_t> likely;
  for (int64_t i = 0; i < count; ++i) {
    likely.push_back(place % 2 == 0 && i == 0 ? ids[place] : 200 + i);
  }
  return likely;
}
std::string NameOf(int64_t token) { return "<" + std::to_string(token) + ">"; }

Tensor Row(std::span<const int64_t> ids) {
  return Tensor::Of<int64_t>({1, static_cast<int64_t>(ids.size())}, ids);
}

// Answers when it is asked to.
class HeldCalls final : public ModelCalls {
 public:
  struct Call {
    InferRequest request;
    InferCallback callback;
    std::vector<std::vector<int64_t>> answers = {};  // of the model
    size_t sent = 0;
  };

  StatusOr<CalledModel> Find(const std::string& /*name*/, const std::string& /*version*/) override {
    return CalledModel{};
  }
  RequestId Begin(const CalledModel& /*model*/, InferRequest request,
                  std::shared_ptr<Admission> /*admission*/, InferCallback callback) override {
    Call call{std::move(request), std::move(callback)};
    if (call.request.model == "m") {
      const auto forced =
          std::find_if(call.request.inputs.begin(), call.request.inputs.end(),
                       [](const NamedTensor& input) { return input.name == "forced_tokens"; });
      if (forced != call.request.inputs.end()) {
        const auto ids = forced->tensor.values<int64_t>();
        call.answers.emplace_back(ids.begin(), ids.end());
      } else if (!of_prompts.empty()) {
        const auto prompt = Input(call.request, "input_ids").values<int64_t>();
        auto& left = of_prompts.at(std::string(prompt.begin(), prompt.end()));
        call.answers.push_back(std::move(left.front()));
        left.pop_front();
      } else {
        const size_t count = beams ? answers.size() : 1;
        for (size_t i = 0; i < count; ++i) call.answers.push_back(answers[next_answer_++]);
      }
    } else if (at_once) {
      call.callback(Answer(call));
      return 0;
    }
    calls.emplace(++last_, std::move(call));
    return last_;
  }
  void Cancel(RequestId request) override { cancelled.insert(request); }

  static const Tensor& Input(const InferRequest& request, std::string_view name) {
    for (const NamedTensor& input : request.inputs) {
      if (input.name == name) return input.tensor;
    }
    ADD_FAILURE() << "no " << name;
    static const Tensor kNone;
    return kNone;
  }
  static StatusOr<InferResponse> Answer(const Call& call) {
    InferResponse response;
    if (call.request.model == "t") {
      std::vector<int64_t> ids;
      for (const char c : TextsOf(Input(call.request, "text"))[0]) ids.push_back(c);
      response.outputs = {{"input_ids", Row(ids)}};
    } else if (call.request.model == "d") {
      const auto ids = Input(call.request, "ids").values<int64_t>();
      const auto options = Input(call.request, "options").values<int64_t>();
      const auto known = static_cast<size_t>(options[0]);
      const int64_t names = std::max<int64_t>(options[2], 0);
      const size_t count = (ids.size() - known) / static_cast<size_t>(1 + names);
      const auto own = ids.first(known + count);
      std::string text = Decode(own).substr(Decode(ids.first(known)).size());
      const bool broken = Decode(own).ends_with(kBroken) && options[1] == 0;
      if (broken) text.clear();
      std::vector<int64_t> lengths(known, 0);
      if (options[2] >= 0) {
        std::vector<std::string> pieces = PiecesOf(own, known, options[1] != 0);
        if (broken) pieces.assign(pieces.size(), "");
        std::string all;
        for (const std::string& piece : pieces) all += piece;
        EXPECT_EQ(all, text);
        for (size_t i = known + count; i < ids.size(); ++i) pieces.push_back(NameOf(ids[i]));
        for (const std::string& piece : pieces) {
          lengths.push_back(static_cast<int64_t>(piece.size()));
        }
        for (size_t i = count; i < pieces.size(); ++i) text += pieces[i];
      }
      lengths.resize(ids.size(), 0);
      response.outputs = {{"text", TextTensor({1}, {text})}, {"lengths", Row(lengths)}};
    } else {
      size_t longest = 0;
      for (const auto& answer : call.answers) longest = std::max(longest, answer.size());
      std::vector<int64_t> ids;
      for (auto answer : call.answers) {
        answer.resize(longest, -1);
        ids.insert(ids.end(), answer.begin(), answer.end());
      }
      const Shape shape{static_cast<int64_t>(call.answers.size()), static_cast<int64_t>(longest)};
      response.outputs = {
          {"output_ids", Tensor::Of<int64_t>(shape, std::span<const int64_t>(ids))}};
      AddLogprobs(call, 0, longest, response.outputs, false);
    }
    return response;
  }
  // The output for tokens from `first` on of its answers: [answers, count, …] or, of a part,
  // [count, …].
  static void AddLogprobs(const Call& call, size_t first, size_t count,
                          std::vector<NamedTensor>& outputs, bool part) {
    const std::vector<std::string>& wanted = call.request.outputs;
    const auto wants = [&](const char* name) {
      return std::find(wanted.begin(), wanted.end(), name) != wanted.end();
    };
    if (!wants("token_logprobs")) return;
    const int64_t k = Input(call.request, "logprobs").values<int32_t>()[0];
    std::vector<float> logprobs, top;
    std::vector<int64_t> top_ids;
    for (const std::vector<int64_t>& answer : call.answers) {
      for (size_t i = first; i < first + count; ++i) {
        const bool behind = i >= answer.size();
        logprobs.push_back(behind ? 0 : LogprobOf(static_cast<int64_t>(i)));
        const std::vector<int64_t> likely =
            behind ? std::vector<int64_t>(static_cast<size_t>(k), 0) : LikelyOf(answer, i, k);
        top_ids.insert(top_ids.end(), likely.begin(), likely.end());
        for (int64_t j = 0; j < k; ++j) top.push_back(static_cast<float>(-j));
      }
    }
    Shape shape{static_cast<int64_t>(call.answers.size()), static_cast<int64_t>(count)};
    if (part) shape.Erase(0);
    Shape top_shape = shape;
    top_shape.Append(k);
    outputs.push_back(
        {"token_logprobs", Tensor::Of<float>(shape, std::span<const float>(logprobs))});
    EXPECT_EQ(wants("top_logprobs"), k > 0);
    if (k == 0) return;
    outputs.push_back(
        {"top_token_ids", Tensor::Of<int64_t>(top_shape, std::span<const int64_t>(top_ids))});
    outputs.push_back({"top_logprobs", Tensor::Of<float>(top_shape, std::span<const float>(top))});
  }
  // Sends some of the model's tokens; false where it sends none.
  bool SendSome(RequestId number, size_t count) {
    Call& call = calls.at(number);
    if (call.request.on_parts == nullptr || call.sent == call.answers[0].size()) return false;
    count = std::min(count, call.answers[0].size() - call.sent);
    const std::vector<int64_t> ids(
        call.answers[0].begin() + static_cast<std::ptrdiff_t>(call.sent),
        call.answers[0].begin() + static_cast<std::ptrdiff_t>(call.sent + count));
    const Shape shape{static_cast<int64_t>(count)};
    InferPart part{
        .row = 0,
        .first = static_cast<int64_t>(call.sent),
        .outputs = {{"output_ids", Tensor::Of<int64_t>(shape, std::span<const int64_t>(ids))}}};
    AddLogprobs(call, call.sent, count, part.outputs, true);
    call.sent += count;
    const PartsCallback send = call.request.on_parts;
    send({&part, 1});
    return true;
  }
  void End(RequestId number, bool fails) {
    Call call = std::move(calls.at(number));
    calls.erase(number);
    if (cancelled.contains(number)) return call.callback(absl::CancelledError("cancelled"));
    if (fails) return call.callback(absl::InternalError("broken"));
    call.callback(Answer(call));
  }

  std::map<RequestId, Call> calls;
  std::set<RequestId> cancelled;
  std::vector<std::vector<int64_t>> answers;
  std::map<std::string, std::deque<std::vector<int64_t>>> of_prompts;  // in their place
  bool beams = false;
  bool at_once = false;  // tokenizer and detokenizer answer before Begin() returns

 private:
  RequestId last_ = 0;
  size_t next_answer_ = 0;
};

// `ids`: of the whole answer.
void CheckTokens(const std::vector<TextToken>& tokens, std::span<const int64_t> ids,
                 const Completion& wanted, int64_t logprobs) {
  std::string text;
  for (size_t i = 0; i < tokens.size(); ++i) {
    text += tokens[i].text;
    EXPECT_EQ(tokens[i].logprob, LogprobOf(static_cast<int64_t>(i)));
    const std::vector<int64_t> likely = LikelyOf(ids, i, logprobs);
    const bool among = std::find(likely.begin(), likely.end(), ids[i]) != likely.end();
    const size_t count = likely.size() + (logprobs > 0 && !among ? 1 : 0);
    ASSERT_EQ(tokens[i].likely.size(), count);
    for (size_t k = 0; k < likely.size(); ++k) {
      EXPECT_EQ(tokens[i].likely[k].first, NameOf(likely[k]));
      EXPECT_EQ(tokens[i].likely[k].second, -static_cast<float>(k));
    }
    if (count == likely.size()) continue;
    EXPECT_EQ(tokens[i].likely.back(), std::pair(NameOf(ids[i]), tokens[i].logprob));
  }
  EXPECT_EQ(text, wanted.text);
  const bool ended = ids.back() == kEnd;
  if (wanted.tokens >= 0) {  // no stop string
    EXPECT_EQ(tokens.size(), ids.size() - (ended ? 1 : 0));
  }
}

TEST(CompletionRunTest, RandomSchedules) {
  int stopped = 0, cancelled = 0;
  for (unsigned seed = 0; seed < 4000; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto below = [&](size_t most) { return random() % most; };
    HeldCalls calls;
    calls.at_once = below(4) == 0;
    CompletionRequest request;
    request.beams = calls.beams = below(4) == 0;
    request.answers = static_cast<int64_t>(1 + below(3));
    request.in_pieces = below(2) == 0;
    if (below(2) == 0) {
      request.logprobs = static_cast<int64_t>(below(3));
      const auto given = static_cast<int32_t>(*request.logprobs);
      request.given.push_back({"logprobs", Tensor::Of<int32_t>({1}, {given})});
    }
    request.end_tokens = {kEnd};
    const std::string prompt = "prompt";
    request.text = TextTensor({1}, {prompt});
    request.options = Tensor::Of<int64_t>({1, 2}, {0, 0});
    while (below(2) == 0) {
      request.stops.push_back(below(3) == 0 ? "é" : below(2) == 0 ? "ab" : "cé");
    }
    for (int64_t i = 0; i < request.answers; ++i) {
      std::vector<int64_t>& answer = calls.answers.emplace_back();
      const size_t size = 1 + below(12);
      while (answer.size() < size) {
        constexpr int64_t kTokens[] = {'a', 'b', 'c', kSpecial, kFirstHalf, kSecondHalf};
        answer.push_back(kTokens[below(6)]);
      }
      if (below(2) == 0) answer.back() = kEnd;
    }
    CompletionConfig config{.tokenizer = "t", .model = "m", .detokenizer = "d"};
    config.continues_prompt = below(2) == 0;
    // What is to come of it.
    std::vector<Completion> wanted;
    for (const std::vector<int64_t>& answer : calls.answers) {
      std::vector<int64_t> ids;
      for (const char c : prompt) ids.push_back(c);
      const bool ended = answer.back() == kEnd;
      ids.insert(ids.end(), answer.begin(), answer.end() - (ended ? 1 : 0));
      StopText stop(request.stops);
      Completion& completion = wanted.emplace_back();
      completion.text = stop.Append(Decode(ids).substr(prompt.size()));
      if (!stop.stopped()) completion.text += stop.Rest();
      completion.stopped = ended || stop.stopped();
      completion.tokens = stop.stopped() ? -1 : static_cast<int64_t>(answer.size());
      stopped += stop.stopped() ? 1 : 0;
    }
    const bool in_pieces = request.in_pieces;
    const std::optional<int64_t> logprobs = request.logprobs;
    auto run = std::make_shared<CompletionRun>(config, CompletionModels(), calls, request);
    std::vector<std::string> pieces(wanted.size());
    std::vector<std::vector<TextToken>> piece_tokens(wanted.size());
    std::optional<Status> ended;
    run->Begin(
        std::nullopt, nullptr,
        [&](size_t answer, CompletionPiece piece) {
          EXPECT_FALSE(ended.has_value());
          pieces[answer] += piece.text;
          piece_tokens[answer].insert(piece_tokens[answer].end(), piece.tokens.begin(),
                                      piece.tokens.end());
        },
        [&](const Status& status) {
          EXPECT_FALSE(ended.has_value());
          ended = status;
        });
    bool broken = false;
    const bool may_break = below(5) == 0, may_stop = below(8) == 0;
    while (!calls.calls.empty()) {
      EXPECT_FALSE(ended.has_value());
      auto at = calls.calls.begin();
      std::advance(at, static_cast<std::ptrdiff_t>(below(calls.calls.size())));
      const RequestId number = at->first;
      if (may_stop && below(8) == 0) {
        run->Stop();
        broken = true;
        for (const auto& [running, call] : calls.calls) {
          EXPECT_TRUE(calls.cancelled.contains(running));
        }
        continue;
      }
      const bool model = at->second.request.model == "m";
      if (model && !calls.cancelled.contains(number) && calls.SendSome(number, 1 + below(3))) {
        continue;
      }
      const bool fails = may_break && below(8) == 0 && !calls.cancelled.contains(number);
      broken |= fails;
      cancelled += calls.cancelled.contains(number) && !broken ? 1 : 0;
      calls.End(number, fails);
    }
    ASSERT_TRUE(ended.has_value());
    EXPECT_EQ(ended->ok(), !broken);
    if (broken) continue;
    EXPECT_EQ(run->prompt_tokens(), std::vector<int64_t>{static_cast<int64_t>(prompt.size())});
    ASSERT_EQ(run->answers().size(), wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_EQ(run->answers()[i].text, wanted[i].text);
      EXPECT_EQ(run->answers()[i].stopped, wanted[i].stopped);
      if (wanted[i].tokens >= 0) {
        EXPECT_EQ(run->answers()[i].tokens, wanted[i].tokens);
      }
      if (in_pieces) {
        EXPECT_EQ(pieces[i], wanted[i].text);
      }
      const std::vector<TextToken>& tokens = run->answers()[i].text_tokens;
      if (!logprobs) {
        EXPECT_TRUE(tokens.empty());
        continue;
      }
      CheckTokens(tokens, calls.answers[i], wanted[i], *logprobs);
      if (!in_pieces) continue;
      ASSERT_EQ(piece_tokens[i].size(), tokens.size());
      for (size_t t = 0; t < tokens.size(); ++t) {
        EXPECT_EQ(piece_tokens[i][t].text, tokens[t].text);
        EXPECT_EQ(piece_tokens[i][t].logprob, tokens[t].logprob);
        EXPECT_EQ(piece_tokens[i][t].likely, tokens[t].likely);
      }
    }
  }
  // Stop strings were met, and requests to the model cancelled for them.
  EXPECT_GT(stopped, 200);
  EXPECT_GT(cancelled, 50);
}

TEST(CompletionRunTest, RandomSchedulesOfSeveralPrompts) {
  for (unsigned seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto below = [&](size_t most) { return random() % most; };
    HeldCalls calls;
    calls.at_once = below(3) == 0;
    CompletionRequest request;
    request.answers = static_cast<int64_t>(1 + below(3));
    request.in_pieces = below(2) == 0;
    request.echo = below(3) > 0;
    request.no_tokens = request.echo && below(4) == 0;
    request.end_tokens = {kEnd};
    if (below(2) == 0) {
      request.logprobs = static_cast<int64_t>(below(2));
      const auto given = static_cast<int32_t>(*request.logprobs);
      request.given.push_back({"logprobs", Tensor::Of<int32_t>({1}, {given})});
    }
    const size_t count = 1 + below(below(4) == 0 ? 60 : 4);
    std::vector<std::string> prompts;
    struct Wanted {
      std::string text;
      size_t prompt = 0, tokens = 0;  // in front, and with a text in all
    };
    std::vector<Wanted> wanted;
    for (size_t i = 0; i < count; ++i) {
      prompts.push_back(i == 0 ? "p" : "prompt" + std::to_string(i));
      auto& answers = calls.of_prompts[prompts[i]];
      for (int64_t k = 0; k < request.answers; ++k) {
        std::vector<int64_t> ids(prompts[i].begin(), prompts[i].end());
        std::vector<int64_t>& answer = answers.emplace_back(1 + below(6), 'a');
        for (int64_t& id : answer) id = "abc"[below(3)];
        if (!request.no_tokens) ids.insert(ids.end(), answer.begin(), answer.end());
        if (below(2) == 0) answer.push_back(kEnd);
        const size_t echoed = request.echo ? prompts[i].size() : 0;
        wanted.push_back({Decode(ids).substr(prompts[i].size() - echoed), echoed,
                          ids.size() - prompts[i].size() + echoed});
      }
    }
    request.text = TextTensor({static_cast<int64_t>(count)}, prompts);
    request.options = Tensor::Allocate(DType::kInt64, Shape{static_cast<int64_t>(count), 2});
    const int64_t kind = static_cast<int64_t>(below(2));  // token ids are echoed as their text
    std::fill_n(request.options.data<int64_t>(), request.options.size(), kind);
    const bool in_pieces = request.in_pieces, logprobs = request.logprobs.has_value();
    const auto run = std::make_shared<CompletionRun>(
        CompletionConfig{.tokenizer = "t", .model = "m", .detokenizer = "d"}, CompletionModels(),
        calls, request);
    std::vector<std::string> pieces(wanted.size());
    std::optional<Status> ended;
    run->Begin(
        std::nullopt, nullptr,
        [&](size_t answer, CompletionPiece piece) { pieces[answer] += piece.text; },
        [&](const Status& status) { ended = status; });
    while (!calls.calls.empty()) {
      auto at = calls.calls.begin();
      std::advance(at, static_cast<std::ptrdiff_t>(below(calls.calls.size())));
      EXPECT_LE(calls.calls.size(), 3u * 32u);  // others' turns come between
      if (at->second.request.model == "m" && calls.SendSome(at->first, 1 + below(3))) continue;
      calls.End(at->first, false);
    }
    ASSERT_TRUE(ended.has_value());
    ASSERT_TRUE(ended->ok()) << *ended;
    ASSERT_EQ(run->answers().size(), wanted.size());
    EXPECT_EQ(run->prompt_tokens().size(), count);
    for (size_t i = 0; i < wanted.size(); ++i) {
      const Completion& answer = run->answers()[i];
      EXPECT_EQ(answer.text, wanted[i].text);
      if (in_pieces) {
        EXPECT_EQ(pieces[i], wanted[i].text);
      }
      if (!logprobs) continue;
      ASSERT_EQ(answer.text_tokens.size(), wanted[i].tokens);
      std::string text;
      for (size_t k = 0; k < answer.text_tokens.size(); ++k) {
        text += answer.text_tokens[k].text;
        const bool own = k >= wanted[i].prompt;
        const auto place = static_cast<int64_t>(own ? k - wanted[i].prompt : k - 1);
        EXPECT_EQ(answer.text_tokens[k].logprob, place < 0 ? kNoLogprob : LogprobOf(place));
      }
      EXPECT_EQ(text, wanted[i].text);
    }
  }
}

TEST(CompletionRunTest, MoreLogProbabilitiesThanARequestMayHaveAreRefused) {
  HeldCalls calls;
  calls.at_once = true;
  calls.beams = true;
  CompletionRequest request;
  request.text = TextTensor({1}, {"prompt"});
  request.options = Tensor::Of<int64_t>({1, 2}, {0, 0});
  request.answers = 32;
  request.beams = true;
  request.logprobs = 20;
  request.given = {{"logprobs", Tensor::Of<int32_t>({1}, {20})}};
  calls.answers.assign(32, std::vector<int64_t>(1600, 'a'));
  const auto run = std::make_shared<CompletionRun>(
      CompletionConfig{.tokenizer = "t", .model = "m", .detokenizer = "d"}, CompletionModels(),
      calls, request);
  std::optional<Status> ended;
  run->Begin(
      std::nullopt, nullptr, [](size_t /*answer*/, CompletionPiece /*piece*/) {},
      [&](const Status& status) { ended = status; });
  calls.End(calls.calls.begin()->first, false);
  ASSERT_TRUE(ended.has_value());
  EXPECT_TRUE(absl::IsInvalidArgument(*ended)) << *ended;
}

}  // namespace
}  // namespace chairlift
