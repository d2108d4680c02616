// What happens to requests between arrival and answer. A worker is held by a callback that does not
// return, so that what waits, waits.
#include <gmock/gmock.h>

#include <condition_variable>
#include <functional>
#include <future>
#include <mutex>
#include <random>
#include <thread>

#include "base/retry_after.h"
#include "chairlift/engine.h"
#include "engine/test_models.h"

namespace chairlift {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::DoublingModel;
using ::testing::ElementsAre;
using testing::FixedModel;
using ::testing::HasSubstr;
using testing::TempFolder;
using testing::WriteFile;

using Answer = StatusOr<InferResponse>;

class QueueTest : public ::testing::Test {
 protected:
  void Start(const ModelConfig& config, int workers = 1, int max_requests = 4096) {
    EngineOptions options;
    options.workers = workers;
    options.max_requests = max_requests;
    engine_ = *Engine::Create(options);
    const std::string file = WriteFile(folder_ / "m.onnx", DoublingModel().Bytes());
    const Status loaded = engine_->LoadModel("m", file, config);
    ASSERT_TRUE(loaded.ok()) << loaded;
    const std::string fixed = WriteFile(folder_ / "f.onnx", FixedModel().Bytes());
    ASSERT_TRUE(engine_->LoadModel("f", fixed, {}).ok());
  }
  void TearDown() override { Release(); }

  static InferRequest Ask(float value = 1, int64_t rows = 1) {
    InferRequest request;
    request.model = "m";
    Tensor x = Tensor::Allocate(DType::kFloat, {rows, 4});
    std::fill_n(x.data<float>(), x.size(), value);
    request.inputs = {{"x", x}};
    return request;
  }
  static InferRequest AskFixed() {
    InferRequest request;
    request.model = "f";
    request.inputs = {{"x", Tensor::Of<float>({1, 2}, {1, 2})}};
    return request;
  }
  // Sends a request; its answer comes through the future.
  std::future<Answer> Send(InferRequest request, RequestId* id = nullptr) {
    auto promise = std::make_shared<std::promise<Answer>>();
    std::future<Answer> future = promise->get_future();
    const RequestId number = engine_->InferAsync(
        std::move(request), [promise](Answer answer) { promise->set_value(std::move(answer)); });
    if (id != nullptr) *id = number;
    return future;
  }
  // Returns when one worker is held.
  void HoldAWorker() {
    auto held = std::make_shared<std::promise<void>>();
    std::future<void> is_held = held->get_future();
    engine_->InferAsync(AskFixed(), [this, held](const Answer& answer) {
      EXPECT_TRUE(answer.ok()) << answer.status();
      held->set_value();
      release_.wait();
    });
    is_held.wait();
  }
  void Release() {
    if (!released_) releaser_.set_value();
    released_ = true;
  }

  TempFolder folder_;
  std::promise<void> releaser_;
  std::shared_future<void> release_ = releaser_.get_future().share();
  bool released_ = false;
  std::unique_ptr<Engine> engine_;
};

float FirstValue(const Answer& answer) { return answer->outputs[0].tensor.data<float>()[0]; }

TEST_F(QueueTest, RequestsThatWaitShareABatchAndGetTheirOwnAnswers) {
  Start({.max_batch_size = 8});
  HoldAWorker();
  std::vector<std::future<Answer>> answers;
  for (int i = 1; i <= 3; ++i) answers.push_back(Send(Ask(static_cast<float>(i), i)));
  Release();
  for (int i = 1; i <= 3; ++i) {
    const Answer answer = answers[static_cast<size_t>(i - 1)].get();
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(answer->batch_rows, 6);
    EXPECT_EQ(answer->outputs[0].tensor.shape(), (Shape{i, 4}));
    for (float v : answer->outputs[0].tensor.values<float>()) EXPECT_EQ(v, 2.0f * i);
  }
  const ModelStatistics statistics = (*engine_->Statistics("m"))[0];
  EXPECT_EQ(statistics.inference_count, 6u);
  EXPECT_EQ(statistics.execution_count, 1u);
  EXPECT_EQ(statistics.success.count, 3u);
  EXPECT_EQ(statistics.queue.count, 3u);
  EXPECT_EQ(statistics.batches.at(6).count, 1u);
  EXPECT_GT(statistics.last_inference_ms, 0);
  EXPECT_EQ(statistics.waiting, 0);
  EXPECT_EQ(statistics.running, 0);
}

TEST_F(QueueTest, AFullQueueRefusesAtOnce) {
  Start({.max_queue_size = 2});
  HoldAWorker();
  std::future<Answer> first = Send(Ask());
  std::future<Answer> second = Send(Ask());
  const Answer third = Send(Ask()).get();
  EXPECT_EQ(third.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(third.status().message()), HasSubstr("model 'm', its max_queue_size"));
  EXPECT_EQ((*engine_->Statistics("m"))[0].waiting, 2);
  EXPECT_EQ((*engine_->Statistics("m"))[0].failures.at("queue_full"), 1u);
  Release();
  EXPECT_TRUE(first.get().ok());
  EXPECT_TRUE(second.get().ok());
}

TEST_F(QueueTest, AQueueThatIsTooLongInTimeRefusesAtOnce) {
  Start({.max_queue_size = 100'000, .max_queue_wait_us = 1}, 1, 100'000);
  EXPECT_TRUE(Send(Ask()).get().ok());  // nothing is known of its costs before
  HoldAWorker();
  std::vector<std::future<Answer>> accepted;
  Status refused;
  while (refused.ok() && accepted.size() < 10'000) {
    std::future<Answer> answer = Send(Ask());
    if (answer.wait_for(seconds(0)) == std::future_status::ready) {
      refused = answer.get().status();
    } else {
      accepted.push_back(std::move(answer));
    }
  }
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("its max_queue_wait of 0 ms"));
  EXPECT_FALSE(accepted.empty());
  EXPECT_EQ((*engine_->Statistics("m"))[0].failures.at("queue_full"), 1u);
  EXPECT_GT((*engine_->Statistics("m"))[0].queued_work.count(), 0);
  Release();
  for (std::future<Answer>& answer : accepted) EXPECT_TRUE(answer.get().ok());
  EXPECT_TRUE(Send(Ask()).get().ok());  // the queue is empty again
}

TEST_F(QueueTest, APlaceCountsBeforeItsRequestArrives) {
  Start({.max_queue_size = 100'000, .max_queue_wait_us = 1}, 1, 100'000);
  EXPECT_TRUE(Send(Ask()).get().ok());  // nothing is known of its costs before
  HoldAWorker();
  std::vector<std::shared_ptr<Admission>> places;
  Status refused;
  while (refused.ok() && places.size() < 10'000) {
    StatusOr<std::shared_ptr<Admission>> place = engine_->Reserve("m", "", {}, {});
    if (place.ok()) {
      ASSERT_NE(*place, nullptr);
      places.push_back(*std::move(place));
    } else {
      refused = place.status();
    }
  }
  EXPECT_THAT(std::string(refused.message()), HasSubstr("its max_queue_wait of 0 ms"));
  EXPECT_EQ((*engine_->Statistics("m"))[0].failures.at("queue_full"), 1u);
  ASSERT_FALSE(places.empty());
  EXPECT_TRUE(absl::IsResourceExhausted(Send(Ask()).get().status()));
  InferRequest admitted = Ask(3);
  admitted.place = std::move(places.back());  // without its own place, the queue has room for it
  places.pop_back();
  std::future<Answer> answer = Send(std::move(admitted));
  EXPECT_EQ(answer.wait_for(seconds(0)), std::future_status::timeout);
  EXPECT_TRUE(absl::IsResourceExhausted(Send(Ask()).get().status()));
  places.clear();
  Release();
  EXPECT_EQ(FirstValue(answer.get()), 6);
  EXPECT_TRUE(Send(Ask()).get().ok()) << "the places have been given back";
  EXPECT_EQ(*engine_->Reserve("unknown", "", {}, {}), nullptr) << "InferAsync() says why";
}

// Each of several simultaneous requests is admitted by the work of those before it, by their sizes.
TEST_F(QueueTest, PlacesCountByTheSizeOfTheBody) {
  Start({.max_queue_wait_us = 100'000'000});
  EXPECT_TRUE(Send(Ask()).get().ok());  // what a small one costs
  const UnreadBody small = {.bytes = 64}, large = {.bytes = 1'000'000'000'000};
  const auto reserve = [&](const UnreadBody& body) { return engine_->Reserve("m", "", {}, body); };
  std::vector<StatusOr<std::shared_ptr<Admission>>> places;
  for (int i = 0; i < 9; ++i) EXPECT_TRUE(places.emplace_back(reserve(small)).ok());
  // Longer than the bound by itself: it is admitted where nothing long is before it.
  StatusOr<std::shared_ptr<Admission>> first = reserve(large);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_TRUE(absl::IsResourceExhausted(reserve(large).status()));
  // No request of its size ever ran: what is only estimated keeps no small one out.
  EXPECT_TRUE(reserve(small).ok());
  EXPECT_TRUE(Send(Ask()).get().ok());
  InferRequest parsed = Ask(3);  // it is much smaller than its body made one think
  parsed.place = *std::move(first);
  EXPECT_EQ(FirstValue(Send(std::move(parsed)).get()), 6);
  EXPECT_TRUE(reserve(large).ok()) << "the place was given back";
}

// Requests of 4 and of millions of numbers run one by one, and the cost of the latter is not known.
TEST_F(QueueTest, ARequestOfANewShapeCountsByItsSize) {
  engine_ = *Engine::Create({.workers = 1});
  testing::ModelBuilder model(17);
  model.Input("x", testing::kFloat, {"batch", "n"}).Output("y", testing::kFloat, {"batch", "n"});
  model.Node("ReduceMean", {"x"}, {"mean"});
  model.Node("Sub", {"x", "mean"}, {"y"});
  const Status loaded = engine_->LoadModel("m", WriteFile(folder_ / "m.onnx", model.Bytes()),
                                           {.max_queue_wait_us = 1000});
  ASSERT_TRUE(loaded.ok()) << loaded;
  const std::string fixed = WriteFile(folder_ / "f.onnx", FixedModel().Bytes());
  ASSERT_TRUE(engine_->LoadModel("f", fixed, {}).ok());
  EXPECT_TRUE(Send(Ask()).get().ok());
  HoldAWorker();
  const auto ask_wide = [](int64_t numbers) {
    InferRequest request;
    request.model = "m";
    request.inputs = {{"x", Tensor::Allocate(DType::kFloat, {1, numbers})}};
    std::fill_n(request.inputs[0].tensor.data<float>(), numbers, 1.0f);
    return request;
  };
  std::future<Answer> wide = Send(ask_wide(4'000'000));
  EXPECT_EQ(wide.wait_for(seconds(0)), std::future_status::timeout) << "it waits for the worker";
  std::future<Answer> next = Send(ask_wide(4'000'001));
  const bool answered = next.wait_for(seconds(0)) == std::future_status::ready;
  Release();
  EXPECT_TRUE(answered && absl::IsResourceExhausted(next.get().status()));
  EXPECT_TRUE(wide.get().ok());
}

// Nothing is known of its costs, so only a burst is admitted, whatever the bound.
TEST_F(QueueTest, AnUnmeasuredModelAdmitsABurst) {
  Start({.policy = "none", .max_queue_wait_us = 1000});
  HoldAWorker();
  std::vector<std::future<Answer>> accepted;
  Status refused;
  while (refused.ok() && accepted.size() < 100) {
    std::future<Answer> answer = Send(Ask());
    if (answer.wait_for(seconds(0)) == std::future_status::ready) {
      refused = answer.get().status();
    } else {
      accepted.push_back(std::move(answer));
    }
  }
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_EQ(accepted.size(), 16u);
  Release();
  for (std::future<Answer>& answer : accepted) EXPECT_TRUE(answer.get().ok());
  EXPECT_TRUE(Send(Ask()).get().ok());
}

// Nine at once must not all be admitted, even if they are the first that the model gets.
TEST_F(QueueTest, AnUnmeasuredModelCountsLargeRequestsByTheirSize) {
  Start({.policy = "none", .max_queue_wait_us = 1'000'000});
  std::vector<std::shared_ptr<Admission>> places;
  for (int i = 0; i < 9; ++i) {
    StatusOr<std::shared_ptr<Admission>> place =
        engine_->Reserve("m", "", {}, {.bytes = 16'000'000, .binary = true});
    if (!place.ok()) {
      EXPECT_TRUE(absl::IsResourceExhausted(place.status())) << place.status();
      EXPECT_GT(RetryAfterOf(place.status()), Duration(0));
      continue;
    }
    places.push_back(*std::move(place));
  }
  EXPECT_EQ(places.size(), 1u) << "there is one worker";
  places.clear();
  EXPECT_TRUE(Send(Ask()).get().ok());
}

// A free worker does not hide what the other has to do.
TEST_F(QueueTest, LargeRequestsWaitForThoseThatRun) {
  Start({.policy = "none", .max_queue_wait_us = 1'000'000}, 2);
  HoldAWorker();
  HoldAWorker();
  std::future<Answer> runs = Send(Ask(1, 1'000'000));
  const UnreadBody large = {.bytes = 16'000'000, .binary = true};
  const StatusOr<std::shared_ptr<Admission>> second = engine_->Reserve("m", "", {}, large);
  EXPECT_TRUE(second.ok()) << second.status();
  EXPECT_TRUE(absl::IsResourceExhausted(engine_->Reserve("m", "", {}, large).status()));
  Release();
  EXPECT_TRUE(runs.get().ok());
}

// Whatever ends a request, its work leaves the queue: otherwise the queue would seem full for ever.
TEST_F(QueueTest, NoWorkIsLeftInAnEmptyQueue) {
  Start({.max_queue_size = 64, .max_queue_wait_us = 2000}, 2);
  std::mt19937 random(5);
  const auto below = [&](uint32_t n) { return static_cast<int>(random() % n); };
  for (int round = 0; round < 30; ++round) {
    std::vector<std::future<Answer>> answers;
    std::vector<std::shared_ptr<Admission>> places;
    for (int i = 0; i < 100; ++i) {
      InferRequest request = Ask(1, 1 + below(2000));
      if (below(4) == 0) request.timeout = microseconds(below(200));
      if (below(8) == 0) request.inputs[0].name = "none";
      StatusOr<std::shared_ptr<Admission>> place =
          engine_->Reserve("m", "", {}, {.bytes = below(100'000), .binary = below(2) == 0});
      if (place.ok() && below(3) > 0) request.place = *place;
      if (place.ok() && below(3) == 0) places.push_back(*place);
      RequestId id = 0;
      answers.push_back(Send(std::move(request), &id));
      if (below(4) == 0) engine_->Cancel(id);
    }
    for (std::future<Answer>& answer : answers) (void)answer.get();
  }
  HoldAWorker();
  HoldAWorker();
  EXPECT_TRUE(engine_->Reserve("m", "", {}, {}).ok()) << "an eighth of the bound is left, or more";
}

TEST_F(QueueTest, AFullQueueHasNoPlace) {
  Start({.max_queue_size = 1});
  HoldAWorker();
  std::future<Answer> waits = Send(Ask());
  EXPECT_TRUE(absl::IsResourceExhausted(engine_->Reserve("m", "", {}, {}).status()));
  Release();
  EXPECT_TRUE(waits.get().ok());
}

// What runs on one worker is no wait where another has nothing to do.
TEST_F(QueueTest, ARequestForAnIdleWorkerIsNotRefusedForWhatRunsOnOthers) {
  Start({.policy = "none", .max_queue_wait_us = 1}, 2);
  const InferRequest large = Ask(2, 1'000'000);
  EXPECT_TRUE(engine_->Infer(large).ok());  // its cost is known, and more than the bound
  bool beside = false;
  for (const auto give_up = std::chrono::steady_clock::now() + seconds(60);
       !beside && std::chrono::steady_clock::now() < give_up;) {
    std::future<Answer> runs = Send(large);
    const auto over = [&] { return runs.wait_for(seconds(0)) == std::future_status::ready; };
    // Refused for a moment perhaps, until the other worker has found nothing to do.
    bool answered = false;
    while (!answered && !over()) answered = engine_->Infer(Ask(3)).ok();
    beside = answered && !over();
    (void)runs.get();
  }
  EXPECT_TRUE(beside);
}

TEST_F(QueueTest, ACallerWithManyRequestsLeavesPlacesForOthers) {
  Start({.max_queue_size = 100});
  HoldAWorker();
  std::vector<std::future<Answer>> accepted;
  const auto send = [&](uint64_t group) {
    InferRequest request = Ask();
    request.caller = {.group = group, .member = 0};
    std::future<Answer> answer = Send(std::move(request));
    if (answer.wait_for(seconds(0)) == std::future_status::ready) return answer.get().status();
    accepted.push_back(std::move(answer));
    return Status();
  };
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(send(1).ok());
  EXPECT_TRUE(send(2).ok());
  Status refused;
  while (refused.ok() && accepted.size() < 200) refused = send(1);
  EXPECT_EQ(accepted.size(), 51u) << "half of the queue, where it has had about twice the average";
  EXPECT_THAT(std::string(refused.message()), HasSubstr("more than its share"));
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(send(2).ok());
  Release();
  for (std::future<Answer>& answer : accepted) EXPECT_TRUE(answer.get().ok());
}

TEST_F(QueueTest, TheEnginesLimitHoldsOverAllModels) {
  Start({}, 1, 2);
  HoldAWorker();  // answered, so it no longer counts
  std::future<Answer> first = Send(Ask());
  std::future<Answer> second = Send(AskFixed());
  const Answer third = Send(Ask()).get();
  EXPECT_EQ(third.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(third.status().message()), HasSubstr("the engine's limit"));
  Release();
  EXPECT_TRUE(first.get().ok());
  EXPECT_TRUE(second.get().ok());
}

TEST_F(QueueTest, AnExpiredRequestLeavesWhileTheWorkerIsBusyAndIsNotComputed) {
  Start({});
  HoldAWorker();
  InferRequest request = Ask();
  request.timeout = milliseconds(1);
  const Answer expired = Send(std::move(request)).get();  // while the worker is held
  EXPECT_EQ(expired.status().code(), absl::StatusCode::kDeadlineExceeded);
  Release();
  EXPECT_TRUE(Send(Ask()).get().ok());
  const ModelStatistics statistics = (*engine_->Statistics("m"))[0];
  EXPECT_EQ(statistics.execution_count, 1u);
  EXPECT_EQ(statistics.failures.at("timeout"), 1u);
}

TEST_F(QueueTest, NoTimeLeftMeansNoComputation) {
  Start({});
  InferRequest request = Ask();
  request.timeout = microseconds(0);
  EXPECT_EQ(engine_->Infer(std::move(request)).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ((*engine_->Statistics("m"))[0].execution_count, 0u);
}

TEST_F(QueueTest, TheModelsDefaultTimeoutApplies) {
  Start({.default_timeout_us = 1000});
  HoldAWorker();
  EXPECT_EQ(Send(Ask()).get().status().code(), absl::StatusCode::kDeadlineExceeded);
  InferRequest patient = Ask();
  patient.timeout = seconds(3600 * 24 * 365 * 200LL);
  std::future<Answer> answer = Send(std::move(patient));
  Release();
  EXPECT_TRUE(answer.get().ok());
}

TEST_F(QueueTest, ACancelledRequestLeavesAtOnceAndIsNotComputed) {
  Start({});
  HoldAWorker();
  RequestId id = 0;
  std::future<Answer> cancelled = Send(Ask(), &id);
  engine_->Cancel(id);
  EXPECT_EQ(cancelled.get().status().code(), absl::StatusCode::kCancelled);
  engine_->Cancel(id);
  engine_->Cancel(123456);
  Release();
  EXPECT_TRUE(Send(Ask()).get().ok());
  EXPECT_EQ((*engine_->Statistics("m"))[0].execution_count, 1u);
  EXPECT_EQ((*engine_->Statistics("m"))[0].failures.at("cancelled"), 1u);
}

TEST_F(QueueTest, AnswersToAClientKeepTheOrderOfItsRequests) {
  Start({.max_batch_size = 4}, 3);
  std::mutex mutex;
  std::vector<float> order;
  std::promise<void> all;
  constexpr int kRequests = 300;
  for (int i = 0; i < kRequests; ++i) {
    // Tasks of different models and sizes, so that workers overtake each other.
    InferRequest request = i % 3 == 0 ? AskFixed() : Ask(static_cast<float>(i), 1 + i % 2);
    request.client = 77;
    engine_->InferAsync(std::move(request), [&, i](const Answer& answer) {
      EXPECT_TRUE(answer.ok()) << answer.status();
      std::unique_lock<std::mutex> lock(mutex);
      order.push_back(static_cast<float>(i));
      const bool last = order.size() == kRequests;
      lock.unlock();  // the thread that waits for the last one ends what `mutex` lives in
      if (last) all.set_value();
    });
  }
  all.get_future().wait();
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

TEST_F(QueueTest, ACancelledRequestDoesNotHoldUpItsClient) {
  Start({});
  HoldAWorker();
  RequestId id = 0;
  InferRequest first = Ask();
  first.client = 5;
  InferRequest second = Ask(3);
  second.client = 5;
  std::future<Answer> cancelled = Send(std::move(first), &id);
  std::future<Answer> answered = Send(std::move(second));
  engine_->Cancel(id);
  Release();
  EXPECT_EQ(cancelled.get().status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(FirstValue(answered.get()), 6);
}

TEST_F(QueueTest, AMisfitIsRefusedOnTheCallersThread) {
  Start({});
  InferRequest request = Ask();
  request.inputs[0].name = "z";
  bool called = false;
  engine_->InferAsync(std::move(request), [&](const Answer& answer) {
    called = true;
    EXPECT_EQ(answer.status().code(), absl::StatusCode::kInvalidArgument);
  });
  EXPECT_TRUE(called);
  EXPECT_EQ((*engine_->Statistics("m"))[0].failures.at("invalid"), 1u);
}

TEST_F(QueueTest, AnUnloadedModelStillAnswersWhatItAccepted) {
  Start({});
  HoldAWorker();
  std::future<Answer> accepted = Send(Ask(4));
  EXPECT_TRUE(engine_->UnloadModel("m").ok());
  EXPECT_EQ(Send(Ask()).get().status().code(), absl::StatusCode::kUnavailable);
  const auto state = [this] {
    for (const ModelIndexEntry& e : engine_->Index()) {
      if (e.name == "m") return e.state;
    }
    return ModelState::kLoading;
  };
  EXPECT_EQ(state(), ModelState::kUnloading);
  Release();
  EXPECT_EQ(FirstValue(accepted.get()), 8);
  while (state() != ModelState::kUnavailable) std::this_thread::yield();
}

TEST_F(QueueTest, ReplacingAModelLosesNoRequest) {
  Start({}, 2);
  std::atomic<bool> stop{false};
  std::atomic<int> answered{0};
  std::thread client([&] {
    while (!stop) {
      const Answer answer = engine_->Infer(Ask(1));
      EXPECT_TRUE(answer.ok()) << answer.status();
      ++answered;
    }
  });
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(engine_->LoadModel("m", (folder_ / "m.onnx").string(), {}).ok());
  }
  while (answered < 20) std::this_thread::yield();
  stop = true;
  client.join();
}

TEST_F(QueueTest, ShutdownDrainsWhatWasAcceptedAndRefusesTheRest) {
  Start({});
  HoldAWorker();
  std::future<Answer> accepted = Send(Ask(2));
  std::thread stopping([this] { engine_->Shutdown(seconds(60)); });
  // Requests with no time left end at once, until the shutdown has begun and they are refused.
  absl::StatusCode code = absl::StatusCode::kOk;
  while (code != absl::StatusCode::kUnavailable) {
    InferRequest hurried = Ask();
    hurried.timeout = microseconds(0);
    code = Send(std::move(hurried)).get().status().code();
  }
  Release();
  EXPECT_EQ(FirstValue(accepted.get()), 4);
  stopping.join();
}

TEST_F(QueueTest, ShutdownWithoutPatienceFailsWhatWaits) {
  Start({});
  HoldAWorker();
  std::future<Answer> waiting = Send(Ask());
  std::thread stopping([this] { engine_->Shutdown(milliseconds(0)); });
  EXPECT_EQ(waiting.get().status().code(), absl::StatusCode::kUnavailable);
  Release();
  stopping.join();
}

// Each answer of m brings another request to it, so that some of m always wait until f's answers
// have come: a starved model would wait for ever.
TEST_F(QueueTest, ABusyModelDoesNotStarveAnother) {
  Start({.policy = "none"});
  HoldAWorker();
  std::mutex mutex;
  std::condition_variable changed;
  int of_m = 20, of_f = 10;  // not answered yet
  bool over = false;
  std::function<void()> ask_m = [&] {
    engine_->InferAsync(Ask(), [&](const Answer& answer) {
      EXPECT_TRUE(answer.ok()) << answer.status();
      {
        const std::lock_guard<std::mutex> lock(mutex);
        if (over || !answer.ok()) {
          --of_m;
          changed.notify_one();
          return;
        }
      }
      ask_m();
    });
  };
  // None is answered before the worker is released.
  for (int i = 0; i < 20; ++i) ask_m();
  for (int i = 0; i < 10; ++i) {
    engine_->InferAsync(AskFixed(), [&](const Answer& answer) {
      EXPECT_TRUE(answer.ok()) << answer.status();
      const std::lock_guard<std::mutex> lock(mutex);
      --of_f;
      changed.notify_one();
    });
  }
  Release();
  std::unique_lock<std::mutex> lock(mutex);
  EXPECT_TRUE(changed.wait_for(lock, seconds(60), [&] { return of_f == 0; }))
      << of_f << " of 10 are not answered";
  over = true;
  changed.wait(lock, [&] { return of_m == 0 && of_f == 0; });
  lock.unlock();
  engine_.reset();  // no callback that uses `mutex` still runs
}

TEST_F(QueueTest, OneRequestsBadDataDoesNotFailItsCompanions) {
  engine_ = *Engine::Create({.workers = 1});
  testing::ModelBuilder m(17);
  m.Input("i", testing::kInt64, {"batch"}).Output("y", testing::kFloat);
  m.Floats("table", {3}, {10, 20, 30});
  m.Node("Gather", {"table", "i"}, {"y"});
  ASSERT_TRUE(engine_->LoadModel("m", WriteFile(folder_ / "g.onnx", m.Bytes()), {}).ok());
  const std::string fixed = WriteFile(folder_ / "f.onnx", FixedModel().Bytes());
  ASSERT_TRUE(engine_->LoadModel("f", fixed, {}).ok());
  ASSERT_TRUE(engine_->Metadata("m")->batches) << engine_->Metadata("m")->diagnosis;
  HoldAWorker();
  std::vector<std::future<Answer>> answers;
  for (int64_t i : {0, 7, 2}) {
    InferRequest request;
    request.model = "m";
    request.inputs = {{"i", Tensor::Of<int64_t>({1}, {i})}};
    answers.push_back(Send(std::move(request)));
  }
  Release();
  EXPECT_EQ(FirstValue(answers[0].get()), 10);
  EXPECT_FALSE(answers[1].get().ok());
  EXPECT_EQ(FirstValue(answers[2].get()), 30);
}

}  // namespace
}  // namespace chairlift
