#include "engine/execution/active_models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <thread>

namespace chairlift {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Entry = ActiveModels::Entry;
using Search = ActiveModels::Search;

constexpr int kMost = 1000;

class Idle final : public Program {
 public:
  explicit Idle(int lanes = 0) : Program("idle", {}, Plan()), lanes_(lanes) {}
  TaskLanes lanes() const override { return {.tasks = lanes_}; }
  StatusOr<ProgramView> View() override { return ProgramView(); }
  StatusOr<std::unique_ptr<RequestGraph>> Unfold(ValidatedRequest /*request*/,
                                                 bool /*parts*/) override {
    return absl::UnimplementedError("not asked for");
  }
  void Run(TaskRun& /*run*/, TaskDone done) override { done({}); }

 private:
  static ServingPlan Plan() {
    ServingPlan plan;
    plan.config.policy = "none";
    return plan;
  }

  const int lanes_;
};

class ActiveModelsTest : public ::testing::Test {
 protected:
  ActiveModelsTest() {
    for (int i = 0; i < 4; ++i) {
      ModelMetadata metadata;
      metadata.name = std::to_string(i);
      all_.push_back(*Model::Create(std::move(metadata), std::make_unique<Idle>()));
    }
  }

  int NumberOf(const std::shared_ptr<Model>& model) const {
    return static_cast<int>(std::find(all_.begin(), all_.end(), model) - all_.begin());
  }
  // The models that the worker asks without getting a task.
  std::vector<int> Asked(ActiveModels& models, Search& search) const {
    std::vector<int> asked;
    while (const std::shared_ptr<Model> model = models.NextToAsk(search)) {
      asked.push_back(NumberOf(model));
    }
    return asked;
  }
  std::vector<int> Asked(ActiveModels& models, WorkerId worker) const {
    Search search{.worker = worker};
    return Asked(models, search);
  }
  static void Charge(ActiveModels& models, Model& model, Duration time, int requests = 1) {
    models.Note(model, {.charge = time, .requests = requests});
  }

  std::vector<std::shared_ptr<Model>> all_;
};

TEST_F(ActiveModelsTest, TheModelChargedLeastIsAskedFirst) {
  ActiveModels models(1);
  for (int i : {0, 1, 2}) EXPECT_EQ(models.Enter(all_[i], kMost), Entry::kDone);
  Charge(models, *all_[0], microseconds(30));
  Charge(models, *all_[1], microseconds(10));
  Charge(models, *all_[2], microseconds(20));
  EXPECT_THAT(Asked(models, 0), ElementsAre(1, 2, 0));
}

TEST_F(ActiveModelsTest, WhoeverBecomesActiveStartsLevelWithThoseAtWork) {
  ActiveModels models(1);
  for (int i : {0, 1}) models.Enter(all_[i], kMost);
  Charge(models, *all_[0], microseconds(30));
  Charge(models, *all_[1], microseconds(10));
  models.Enter(all_[2], kMost);
  EXPECT_EQ(all_[2]->queue().share.used, Duration(microseconds(10)));
  // All leave; the next starts with the most that any was charged.
  for (int i : {0, 1, 2}) {
    EXPECT_EQ(models.Note(*all_[i], {.charge = microseconds(i == 1 ? 5 : 0)}), all_[i]);
  }
  models.Enter(all_[3], kMost);
  EXPECT_EQ(all_[3]->queue().share.used, Duration(microseconds(30)));
  EXPECT_THAT(models.All(), ElementsAre(all_[3]));
}

// Not with its place behind all others: no worker would ask it.
TEST_F(ActiveModelsTest, WhoeverComesAfterAModelThatNoWorkerAsksIsAsked) {
  ActiveModels models(1);
  ModelMetadata metadata;
  const std::shared_ptr<Model> elsewhere =
      *Model::Create(std::move(metadata), std::make_unique<Idle>(1));
  models.Enter(elsewhere, kMost);
  EXPECT_THAT(Asked(models, 0), IsEmpty());
  EXPECT_EQ(models.Note(*elsewhere, {.may_run = false}), elsewhere);
  models.Enter(all_[0], kMost);
  EXPECT_THAT(Asked(models, 0), ElementsAre(0));
}

TEST_F(ActiveModelsTest, NobodyIsAskedAgainBeforeItHasChanged) {
  ActiveModels models(2);
  for (int i : {0, 1}) models.Enter(all_[i], kMost);
  EXPECT_THAT(Asked(models, 0), ElementsAre(0, 1));
  EXPECT_THAT(Asked(models, 0), IsEmpty());
  EXPECT_THAT(Asked(models, 1), ElementsAre(0, 1));  // another worker may get what that one did not
  models.Note(*all_[1], {.requests = 1});
  EXPECT_THAT(Asked(models, 0), ElementsAre(1));
  models.Note(*all_[1], {.may_run = false, .charge = microseconds(1), .requests = 1});
  EXPECT_THAT(Asked(models, 0), IsEmpty());
  models.Note(*all_[0], {.requests = 0});
  models.Enter(all_[0], kMost);
  EXPECT_THAT(Asked(models, 0), ElementsAre(0));
}

TEST_F(ActiveModelsTest, AChangeWhileItIsAskedIsNotMissed) {
  ActiveModels models(1);
  models.Enter(all_[0], kMost);
  Search search{.worker = 0};
  EXPECT_EQ(models.NextToAsk(search), all_[0]);
  models.Note(*all_[0], {.requests = 1});  // an arrival, after it was asked
  EXPECT_EQ(models.NextToAsk(search), nullptr);
  EXPECT_FALSE(models.BecomeIdle(search));
  EXPECT_THAT(Asked(models, 0), ElementsAre(0));
}

TEST_F(ActiveModelsTest, IdleWorkersComeLastInFirstOut) {
  ActiveModels models(3);
  const auto first = models.TakeIdle(), second = models.TakeIdle(), third = models.TakeIdle();
  EXPECT_EQ(first->worker, 0);
  EXPECT_EQ(second->worker, 1);
  EXPECT_EQ(third->worker, 2);
  EXPECT_FALSE(models.TakeIdle().has_value());
  EXPECT_TRUE(models.BecomeIdle(*first));
  EXPECT_TRUE(models.BecomeIdle(*third));
  EXPECT_EQ(models.TakeIdle()->worker, 2);
  models.Enter(all_[0], kMost);
  models.Note(*all_[0], {.requests = 1});
  EXPECT_FALSE(models.BecomeIdle(*second));
}

TEST_F(ActiveModelsTest, AnIdleWorkerMayBePreferred) {
  ActiveModels models(3);
  EXPECT_EQ(models.TakeIdle(2)->worker, 2);
  EXPECT_EQ(models.TakeIdle(2)->worker, 0);
  EXPECT_EQ(models.TakeIdle(1)->worker, 1);
  EXPECT_FALSE(models.TakeIdle(1).has_value());
}

TEST_F(ActiveModelsTest, NoMoreEnterThanMayNorAfterTheEnd) {
  ActiveModels models(1);
  EXPECT_EQ(models.Enter(all_[0], 2), Entry::kDone);
  EXPECT_EQ(models.Enter(all_[1], 2), Entry::kDone);
  EXPECT_EQ(models.Enter(all_[1], 2), Entry::kFull);
  models.Note(*all_[0], {.requests = 0});
  EXPECT_EQ(models.Enter(all_[1], 2), Entry::kDone);
  models.Close();
  EXPECT_EQ(models.Enter(all_[1], 9), Entry::kClosed);
}

TEST_F(ActiveModelsTest, PartsOfAcceptedRequestsEnterUntilAllIsClosed) {
  ActiveModels models(1);
  EXPECT_EQ(models.Enter(all_[0], 1), Entry::kDone);
  EXPECT_EQ(models.Enter(all_[1], 1), Entry::kFull);
  EXPECT_EQ(models.Enter(all_[1], 1, true), Entry::kDone);
  models.Close();
  EXPECT_EQ(models.Enter(all_[1], 9), Entry::kClosed);
  EXPECT_EQ(models.Enter(all_[1], 9, true), Entry::kDone);
  models.CloseToAll();
  EXPECT_EQ(models.Enter(all_[1], 9, true), Entry::kClosed);
}

TEST_F(ActiveModelsTest, ModelsAreLookedAtWhenTheyAskedToBe) {
  ActiveModels models(1);
  const Clock& clock = Clock::Steady();
  for (int i : {0, 1, 2}) models.Enter(all_[i], kMost);
  const TimePoint now = clock.Now();
  models.Note(*all_[0], {.requests = 1, .wake = now + std::chrono::hours(1)});
  models.Note(*all_[1], {.requests = 1, .wake = now + milliseconds(5)});
  std::vector<std::shared_ptr<Model>> due;
  EXPECT_TRUE(models.WaitForDue(clock, due));
  EXPECT_THAT(due, ElementsAre(all_[1]));
  EXPECT_GE(clock.Now(), now + milliseconds(5));
  // A sooner time, set while the thread sleeps until the next.
  std::thread other([&] {
    std::this_thread::sleep_for(milliseconds(5));
    models.Note(*all_[2], {.requests = 1, .wake = clock.Now()});
  });
  EXPECT_TRUE(models.WaitForDue(clock, due));
  other.join();
  EXPECT_THAT(due, ElementsAre(all_[2]));
  models.Wake(*all_[0]);
  EXPECT_TRUE(models.WaitForDue(clock, due));
  EXPECT_THAT(due, ElementsAre(all_[0]));
  models.Wake(*all_[3]);  // not active
  EXPECT_TRUE(models.WaitForDue(clock, due));
  EXPECT_THAT(due, IsEmpty());
  models.Stop();
  EXPECT_FALSE(models.WaitForDue(clock, due));
}

TEST_F(ActiveModelsTest, WaitingEndsAtTheLatestTime) {
  ActiveModels models(1);
  const Clock& clock = Clock::Steady();
  std::vector<std::shared_ptr<Model>> due;
  EXPECT_TRUE(models.WaitForDue(clock, due, clock.Now()));
  EXPECT_THAT(due, IsEmpty());
  models.Enter(all_[0], kMost);
  const TimePoint now = clock.Now();
  models.Note(*all_[0], {.requests = 1, .wake = now + std::chrono::hours(1)});
  EXPECT_TRUE(models.WaitForDue(clock, due, now + milliseconds(1)));
  EXPECT_THAT(due, IsEmpty());
  EXPECT_GE(clock.Now(), now + milliseconds(1));
}

// Random events against what the header says, written down plainly: which models are active, what
// each was charged, and which each worker has asked since its last change.
TEST_F(ActiveModelsTest, AgreesWithAPlainModelOfIt) {
  struct Known {
    int requests = 0;
    Duration used{0};
    int entered = 0;
    std::vector<bool> asked = std::vector<bool>(3, false);
  };
  std::mt19937 random(5);
  const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  ActiveModels models(3);
  std::vector<Known> known(4);
  std::vector<int> idle = {2, 1, 0};
  Duration most{0};
  int entries = 0;
  for (int step = 0; step < 20'000; ++step) {
    const int at = pick(4);
    Known& model = known[at];
    const auto order = [&](int worker) {
      std::vector<int> active;
      for (int i = 0; i < 4; ++i) {
        if (known[i].requests > 0 && !known[i].asked[worker]) active.push_back(i);
      }
      std::sort(active.begin(), active.end(), [&](int a, int b) {
        return std::pair(known[a].used, known[a].entered) <
               std::pair(known[b].used, known[b].entered);
      });
      return active;
    };
    switch (pick(4)) {
      case 0: {
        if (model.requests++ == 0) {
          std::optional<Duration> least;
          for (int i = 0; i < 4; ++i) {
            if (i == at || known[i].requests == 0) continue;
            least = least ? std::min(*least, known[i].used) : known[i].used;
          }
          model.used = std::max(model.used, least.value_or(most));
          model.entered = ++entries;
          model.asked.assign(3, false);
        }
        ASSERT_EQ(models.Enter(all_[at], 1 << 30), Entry::kDone);
        break;
      }
      case 1: {
        if (model.requests == 0) break;
        const bool may_run = pick(2) == 0;
        const Duration charge = pick(2) == 0 ? Duration(pick(50)) : Duration(0);
        model.requests -= std::min(model.requests, pick(3));
        model.used += charge;
        most = std::max(most, model.used);
        if (may_run) model.asked.assign(3, false);
        const auto released = models.Note(
            *all_[at], {.may_run = may_run, .charge = charge, .requests = model.requests});
        ASSERT_EQ(released, model.requests == 0 ? all_[at] : nullptr);
        break;
      }
      case 2: {
        const auto search = models.TakeIdle();
        ASSERT_EQ(search.has_value(), !idle.empty());
        if (!search) break;
        ASSERT_EQ(search->worker, idle.back());
        ASSERT_TRUE(models.BecomeIdle(*search));
        break;
      }
      default: {
        auto search = models.TakeIdle();
        ASSERT_TRUE(search.has_value());
        const int worker = search->worker;
        const bool again = pick(3) == 0;  // a change meanwhile, at one that is active
        const std::vector<int> expected = order(worker);
        ASSERT_EQ(Asked(models, *search), expected);
        for (const int i : expected) known[i].asked[worker] = true;
        if (again && model.requests > 0) {
          models.Note(*all_[at], {.requests = model.requests});
          model.asked.assign(3, false);
          ASSERT_FALSE(models.BecomeIdle(*search));
          Search second{.worker = worker};
          ASSERT_EQ(Asked(models, second), std::vector<int>{at});
          model.asked[worker] = true;
          ASSERT_TRUE(models.BecomeIdle(second));
        } else {
          ASSERT_TRUE(models.BecomeIdle(*search));
        }
      }
    }
  }
}

}  // namespace
}  // namespace chairlift
