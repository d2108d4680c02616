// Requests of a pipeline in any order of answers, failures and cancellations, against a model of
// them: a step begins once, after what it reads and with that; the answer is the steps' own; where
// something fails nothing begins any more, and what runs is cancelled.
#include "engine/programs/pipeline/pipeline_run.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

namespace chairlift {
namespace {

Tensor Number(float value) { return Tensor::Of<float>({1}, {value}); }

// Steps that give a number each: its own number and all that it reads, weighted, added up.
float Compute(size_t step, const std::vector<NamedTensor>& inputs) {
  float sum = static_cast<float>(step + 1);
  for (size_t i = 0; i < inputs.size(); ++i) {
    sum = sum * 0.5f + static_cast<float>(i + 1) * inputs[i].tensor.values<float>()[0];
  }
  return sum;
}

std::string NameOf(size_t step) { return "m" + std::to_string(step); }

// Answers when it is asked to.
class HeldCalls final : public ModelCalls {
 public:
  struct Call {
    size_t step = 0;
    InferRequest request;
    InferCallback callback;
  };

  StatusOr<CalledModel> Find(const std::string& /*name*/, const std::string& /*version*/) override {
    return CalledModel{};
  }
  RequestId Begin(const CalledModel& /*model*/, InferRequest request,
                  std::shared_ptr<Admission> /*admission*/, InferCallback callback) override {
    const size_t step = std::stoul(request.model.substr(1));
    begun.push_back(step);
    if (at_once.contains(step)) {
      callback(Answer(step, request));
      return 0;
    }
    calls[++last_] = {step, std::move(request), std::move(callback)};
    return last_;
  }
  void Cancel(RequestId request) override { cancelled.insert(request); }

  static StatusOr<InferResponse> Answer(size_t step, const InferRequest& request) {
    InferResponse response;
    response.outputs = {{"out", Number(Compute(step, request.inputs))}};
    return response;
  }
  void End(RequestId number, bool fails) {
    Call call = std::move(calls.at(number));
    calls.erase(number);
    if (cancelled.contains(number)) return call.callback(absl::CancelledError("cancelled"));
    if (fails) return call.callback(absl::InternalError("broken"));
    call.callback(Answer(call.step, call.request));
  }

  std::map<RequestId, Call> calls;
  std::vector<size_t> begun;
  std::set<RequestId> cancelled;
  std::set<size_t> at_once;  // steps that answer before Begin() returns

 private:
  RequestId last_ = 0;
};

// A random pipeline of steps with one output each, and what it computes.
struct Case {
  std::shared_ptr<WiredPipeline> pipeline = std::make_shared<WiredPipeline>();
  std::vector<Tensor> inputs;
  std::vector<int> wanted;
  std::vector<bool> needed;   // by step
  std::vector<float> values;  // by number
};

Case RandomCase(std::mt19937& random) {
  const auto below = [&](size_t most) { return random() % most; };
  Case made;
  PipelineWiring& wiring = made.pipeline->wiring;
  const size_t inputs = 1 + below(3), steps = 1 + below(8);
  for (size_t i = 0; i < inputs; ++i) {
    made.inputs.push_back(Number(static_cast<float>(i) + 0.25f));
    made.values.push_back(static_cast<float>(i) + 0.25f);
    wiring.signature.inputs.push_back({"i" + std::to_string(i), DType::kFloat, SymbolicShape()});
  }
  wiring.steps.resize(steps);
  for (size_t step = 0; step < steps; ++step) {
    made.pipeline->config.steps.push_back({NameOf(step)});
    std::vector<NamedTensor> read;
    for (size_t i = 0; i < below(4); ++i) {
      const size_t value = below(inputs + step);
      wiring.steps[step].reads.emplace_back("r" + std::to_string(i), value);
      read.push_back({"r", Number(made.values[value])});
    }
    wiring.steps[step].gives = {{"out", inputs + step}};
    made.values.push_back(Compute(step, read));
  }
  wiring.num_values = inputs + steps;
  made.needed.resize(steps);
  for (size_t i = 0; i < 1 + below(3); ++i) {
    const size_t value = inputs + below(steps);
    wiring.outputs.push_back(value);
    wiring.signature.outputs.push_back({"o" + std::to_string(i), DType::kFloat, SymbolicShape()});
    made.wanted.push_back(static_cast<int>(i));
    made.needed[value - inputs] = true;
  }
  for (size_t step = steps; step-- > 0;) {
    if (!made.needed[step]) continue;
    for (const auto& [input, value] : wiring.steps[step].reads) {
      if (value >= inputs) made.needed[value - inputs] = true;
    }
  }
  return made;
}

TEST(PipelineRunTest, RandomSchedules) {
  for (unsigned seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const Case made = RandomCase(random);
    const size_t inputs = made.inputs.size(), steps = made.needed.size();
    HeldCalls calls;
    for (size_t step = 0; step < steps; ++step) {
      if (random() % 4 == 0) calls.at_once.insert(step);
    }
    const bool some_fail = random() % 3 == 0, some_stop = random() % 3 == 0;
    auto budget = std::make_shared<ByteBudget>(1 << 20);
    auto run = std::make_shared<PipelineRun>(made.pipeline, std::vector<CalledModel>(steps), calls,
                                             made.inputs, made.wanted);
    std::optional<Status> done;
    run->Begin({.deadline = {}, .bytes = budget}, [&](const Status& status) {
      ASSERT_FALSE(done.has_value()) << "called twice";
      done = status;
    });
    std::set<size_t> ended;
    bool failed = false, stopped = false;
    size_t begun_before = 0;
    const auto check = [&] {
      for (size_t i = begun_before; i < calls.begun.size(); ++i) {
        EXPECT_FALSE(failed || stopped) << "began step " << calls.begun[i];
        EXPECT_TRUE(made.needed[calls.begun[i]]);
      }
      begun_before = calls.begun.size();
      EXPECT_EQ(done.has_value(), calls.calls.empty());
      if (!failed && !stopped) {  // all that could begin has
        std::set<size_t> begun(calls.begun.begin(), calls.begun.end());
        EXPECT_EQ(begun.size(), calls.begun.size()) << "one began twice";
        std::set<size_t> waiting;
        for (const auto& [number, call] : calls.calls) waiting.insert(call.step);
        for (size_t step = 0; step < steps; ++step) {
          bool ready = made.needed[step];
          for (const auto& [input, value] : made.pipeline->wiring.steps[step].reads) {
            if (value < inputs) continue;
            const size_t giver = value - inputs;
            ready = ready && begun.contains(giver) && !waiting.contains(giver);
          }
          EXPECT_EQ(begun.contains(step), ready) << "step " << step;
        }
      } else {
        for (const auto& [number, call] : calls.calls) {
          EXPECT_TRUE(calls.cancelled.contains(number)) << "step " << call.step << " goes on";
        }
      }
    };
    check();
    while (!calls.calls.empty()) {
      if (some_stop && !failed && random() % 6 == 0) {
        stopped = true;
        run->Stop();
      } else {
        auto call = calls.calls.begin();
        std::advance(call, random() % calls.calls.size());
        const bool fails = some_fail && random() % 4 == 0;
        failed = failed || (fails && !stopped);
        calls.End(call->first, fails);
      }
      check();
      if (HasFailure()) return;
    }
    ASSERT_TRUE(done.has_value());
    if (stopped && !failed) {
      EXPECT_EQ(done->code(), absl::StatusCode::kCancelled);
    } else if (failed) {
      EXPECT_EQ(done->message().substr(0, 5), "step ");
      EXPECT_EQ(done->code(), absl::StatusCode::kInternal);
    } else {
      ASSERT_TRUE(done->ok()) << *done;
      const std::vector<NamedTensor> outputs = run->TakeOutputs();
      ASSERT_EQ(outputs.size(), made.wanted.size());
      for (size_t i = 0; i < outputs.size(); ++i) {
        EXPECT_EQ(outputs[i].tensor.values<float>()[0],
                  made.values[made.pipeline->wiring.outputs[i]]);
      }
    }
    run.reset();
    EXPECT_EQ(budget->held(), 0);
  }
}

TEST(PipelineRunTest, WhatIsBetweenStepsIsBounded) {
  auto pipeline = std::make_shared<WiredPipeline>();
  pipeline->config.steps = {{"m0"}, {"m1"}};
  pipeline->wiring.steps = {{{}, {{"out", 0}}}, {{{"r", 0}}, {{"out", 1}}}};
  pipeline->wiring.outputs = {1};
  pipeline->wiring.num_values = 2;
  pipeline->wiring.signature.outputs = {{"o", DType::kFloat, SymbolicShape()}};
  auto budget = std::make_shared<ByteBudget>(3);
  HeldCalls calls;
  auto run = std::make_shared<PipelineRun>(pipeline, std::vector<CalledModel>(2), calls,
                                           std::vector<Tensor>{}, std::vector<int>{0});
  Status done;
  run->Begin({.deadline = {}, .bytes = budget}, [&](const Status& status) { done = status; });
  calls.End(1, false);
  EXPECT_EQ(done.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(done.message().find("step 1 (m0): its output 'out' takes 4 bytes"), std::string::npos)
      << done;
  EXPECT_EQ(calls.begun.size(), 1u);
}

TEST(PipelineRunTest, AStepHasTheTimeThatIsLeft) {
  auto pipeline = std::make_shared<WiredPipeline>();
  pipeline->config.steps = {{"m0"}};
  pipeline->wiring.steps = {{{}, {{"out", 0}}}};
  pipeline->wiring.outputs = {0};
  pipeline->wiring.num_values = 1;
  HeldCalls calls;
  const auto timeout = [&](Duration from_now) {
    auto run = std::make_shared<PipelineRun>(pipeline, std::vector<CalledModel>(1), calls,
                                             std::vector<Tensor>{}, std::vector<int>{0});
    run->Begin({.deadline = Clock::Steady().Now() + from_now, .bytes = nullptr},
               [](const Status& /*status*/) {});
    const auto timeout = calls.calls.begin()->second.request.timeout;
    calls.End(calls.calls.begin()->first, true);
    return timeout;
  };
  EXPECT_EQ(timeout(-std::chrono::hours(1)), std::chrono::microseconds(0));
  const auto left = timeout(std::chrono::hours(1));
  EXPECT_GT(left, std::chrono::microseconds(0));
  EXPECT_LE(left, std::chrono::hours(1));
}

}  // namespace
}  // namespace chairlift
