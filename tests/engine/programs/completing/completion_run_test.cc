// Requests of texts in any order of tokens, answers, failures and cancellations: the text is that
// of all tokens, up to the first stop string, however it came.
#include "engine/programs/completing/completion_run.h"

#include <gtest/gtest.h>

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

  StatusOr<CalledModel> Find(const std::string& /*name*/) override { return CalledModel{}; }
  RequestId Begin(const CalledModel& /*model*/, InferRequest request,
                  InferCallback callback) override {
    Call call{std::move(request), std::move(callback)};
    if (call.request.model == "m") {
      const bool search = beams;
      const size_t count = search ? answers.size() : 1;
      for (size_t i = 0; i < count; ++i) call.answers.push_back(answers[next_answer_++]);
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
      const std::string before = Decode(ids.first(static_cast<size_t>(options[0])));
      std::string text = Decode(ids);
      if (text.ends_with(kBroken) && options[1] == 0) text = before;
      response.outputs = {{"text", TextTensor({1}, {text.substr(before.size())})}};
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
    }
    return response;
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
    const InferPart part{
        .row = 0,
        .first = static_cast<int64_t>(call.sent),
        .outputs = {{"output_ids", Tensor::Of<int64_t>(shape, std::span<const int64_t>(ids))}}};
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
  bool beams = false;
  bool at_once = false;  // tokenizer and detokenizer answer before Begin() returns

 private:
  RequestId last_ = 0;
  size_t next_answer_ = 0;
};

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
    auto run = std::make_shared<CompletionRun>(config, CompletionModels(), calls, request);
    std::vector<std::string> pieces(wanted.size());
    std::optional<Status> ended;
    run->Begin(
        std::nullopt,
        [&](size_t answer, std::string piece) {
          EXPECT_FALSE(ended.has_value());
          pieces[answer] += piece;
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
    EXPECT_EQ(run->prompt_tokens(), static_cast<int64_t>(prompt.size()));
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
    }
  }
  // Stop strings were met, and requests to the model cancelled for them.
  EXPECT_GT(stopped, 200);
  EXPECT_GT(cancelled, 50);
}

}  // namespace
}  // namespace chairlift
