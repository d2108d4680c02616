// Jobs, teams and what happens when both want the same workers.
#include "device/cpu/worker_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <future>
#include <limits>
#include <mutex>
#include <new>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "device/cpu/cores.h"
#include "support/on_core.h"

namespace chairlift {
namespace {

std::unique_ptr<WorkerPool> MakePool(int workers, int queue_capacity = 16) {
  WorkerPoolOptions options;
  options.workers = workers;
  options.queue_capacity = queue_capacity;
  StatusOr<std::unique_ptr<WorkerPool>> pool = WorkerPool::Create(options);
  EXPECT_TRUE(pool.ok()) << pool.status();
  return *std::move(pool);
}

// Runs `body` as a job and waits for it.
template <typename F>
void RunJob(WorkerPool& pool, int worker, F body) {
  // Shared: the worker may still be inside set_value() when wait() returns.
  auto done = std::make_shared<std::promise<void>>();
  ASSERT_TRUE(pool.Submit(worker, [&body, done](int index) {
    body(index);
    done->set_value();
  }));
  done->get_future().wait();
}

// Something that one thread does and others wait for. Must outlive the pool whose jobs use it.
class Event {
 public:
  void Set() { promise_.set_value(); }
  void Wait() const { future_.wait(); }

 private:
  std::promise<void> promise_;
  std::shared_future<void> future_ = promise_.get_future().share();
};

TEST(WorkerPoolTest, JobsOfAWorkerRunInOrderOnOneThread) {
  Event done;
  std::vector<int> order;
  std::set<std::thread::id> threads;
  auto pool = MakePool(2, 100);
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(pool->Submit(1, [&, i](int worker) {
      EXPECT_EQ(worker, 1);
      order.push_back(i);
      threads.insert(std::this_thread::get_id());
      if (i == 99) done.Set();
    }));
  }
  done.Wait();
  EXPECT_EQ(order.size(), 100u);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
  EXPECT_EQ(threads.size(), 1u);
}

TEST(WorkerPoolTest, AFullQueueRefuses) {
  Event started;
  Event release;
  auto pool = MakePool(1, 2);
  ASSERT_TRUE(pool->Submit(0, [&](int) {
    started.Set();
    release.Wait();
  }));
  started.Wait();
  EXPECT_TRUE(pool->Submit(0, [](int) {}));
  EXPECT_TRUE(pool->Submit(0, [](int) {}));
  WorkerPool::Job job = [](int) {};
  EXPECT_FALSE(pool->Submit(0, std::move(job)));
  // NOLINTNEXTLINE(bugprone-use-after-move): that it was not is what is tested
  EXPECT_TRUE(job != nullptr) << "a refused job stays with the caller";
  release.Set();
}

TEST(WorkerPoolTest, QueuedJobsRunBeforeThePoolEnds) {
  std::atomic<int> ran{0};
  {
    auto pool = MakePool(3, 50);
    for (int i = 0; i < 150; ++i) ASSERT_TRUE(pool->Submit(i % 3, [&](int) { ++ran; }));
  }
  EXPECT_EQ(ran, 150);
}

TEST(WorkerPoolTest, AJobIsAsWideAsThePoolAndEveryPartRunsOnce) {
  auto pool = MakePool(4);
  RunJob(*pool, 2, [&](int worker) {
    WorkerPool::TeamLease lease = pool->OpenTeam(worker, true);
    EXPECT_EQ(lease.team().width(), 4);
    for (int parts : {0, 1, 2, 3, 7, 64, 1000}) {
      std::vector<std::atomic<int>> runs(static_cast<size_t>(parts));
      std::vector<std::atomic<int>> inside(4);
      lease.team().For(parts, [&](int part, int w) {
        ASSERT_TRUE(w >= 0 && w < 4);
        EXPECT_EQ(inside[static_cast<size_t>(w)]++, 0) << "two parts at once under one number";
        ++runs[static_cast<size_t>(part)];
        --inside[static_cast<size_t>(w)];
      });
      for (const auto& r : runs) ASSERT_EQ(r, 1);
    }
  });
}

TEST(WorkerPoolTest, HelpersTakePart) {
  auto pool = MakePool(2);
  RunJob(*pool, 0, [&](int worker) {
    WorkerPool::TeamLease lease = pool->OpenTeam(worker, true);
    // Part 0 ends only when part 1 has run, and the other way round: two threads are needed.
    std::atomic<int> arrived{0};
    lease.team().For(2, [&](int, int) {
      ++arrived;
      while (arrived < 2) std::this_thread::yield();
    });
    EXPECT_EQ(arrived, 2);
  });
}

TEST(WorkerPoolTest, OwnersBeginWithTheFirstPartAndHelpersWithTheLast) {
  auto pool = MakePool(2);
  RunJob(*pool, 1, [&](int worker) {
    WorkerPool::TeamLease lease = pool->OpenTeam(worker, true);
    for (int round = 0; round < 100; ++round) {
      std::array<std::atomic<int>, 4> ran_by = {-1, -1, -1, -1};
      std::atomic<int> arrived{0};
      lease.team().For(4, [&](int part, int w) {
        ran_by[static_cast<size_t>(part)] = w;
        ++arrived;
        while (arrived < 2) std::this_thread::yield();
      });
      ASSERT_EQ(ran_by[0], worker);
      ASSERT_EQ(ran_by[3], 1 - worker);
    }
  });
}

TEST(WorkerPoolTest, AForkMayHaveMillionsOfParts) {
  auto pool = MakePool(2);
  RunJob(*pool, 0, [&](int worker) {
    WorkerPool::TeamLease lease = pool->OpenTeam(worker, true);
    constexpr int kParts = (5 << 20) + 1;
    std::vector<uint8_t> runs(kParts);
    lease.team().For(kParts, [&](int part, int) { ++runs[static_cast<size_t>(part)]; });
    EXPECT_EQ(std::count(runs.begin(), runs.end(), 1), kParts);
  });
}

TEST(WorkerPoolTest, WhatAPartThrowsReachesTheJobOnceAllPartsHaveRun) {
  auto pool = MakePool(2);
  for (int round = 0; round < 200; ++round) {
    std::atomic<int> ran{0};
    int caught = 0;
    RunJob(*pool, 0, [&](int worker) {
      WorkerPool::TeamLease lease = pool->OpenTeam(worker, true);
      try {
        lease.team().For(8, [&](int part, int) {
          ++ran;
          if (part % 3 == round % 3) throw std::bad_alloc();
        });
      } catch (const std::bad_alloc&) {
        caught = ran.load();
      }
      lease.team().For(8, [&](int, int) { ++ran; });
    });
    EXPECT_EQ(caught, 8);
    EXPECT_EQ(ran.load(), 16);
  }
}

TEST(WorkerPoolTest, WhoeverWantsNoHelpGetsNone) {
  auto pool = MakePool(2);
  RunJob(*pool, 0, [&](int worker) {
    WorkerPool::TeamLease lease = pool->OpenTeam(worker, false);
    EXPECT_EQ(lease.team().width(), 1);
    lease.team().For(8, [&](int, int w) { EXPECT_EQ(w, worker); });
    EXPECT_FALSE(lease.helped());
  });
}

TEST(WorkerPoolTest, AWorkerThatBecomesIdleHelpsAJobThatRuns) {
  Event began;
  Event open;
  auto pool = MakePool(2);
  ASSERT_TRUE(pool->Submit(1, [&](int) {
    began.Set();
    open.Wait();
  }));
  began.Wait();
  RunJob(*pool, 0, [&](int worker) {
    WorkerPool::TeamLease lease = pool->OpenTeam(worker, true);
    lease.team().For(8, [&](int, int w) { EXPECT_EQ(w, 0); });
    EXPECT_FALSE(lease.helped());
    // In the middle of a fork: part 0 ends only when the other worker runs another part of it.
    std::atomic<int> helpers{0};
    lease.team().For(2, [&](int part, int w) {
      if (w == 1) ++helpers;
      if (w == 0 && part == 0) {
        open.Set();
        while (helpers == 0) std::this_thread::yield();
      }
    });
    EXPECT_EQ(helpers, 1);
    EXPECT_TRUE(lease.helped());
  });
}

TEST(WorkerPoolTest, AHelperServesTwoJobsAtOnce) {
  std::atomic<int> helped{0};
  auto pool = MakePool(3);
  const auto body = [&](int worker) {
    WorkerPool::TeamLease lease = pool->OpenTeam(worker, true);
    // Until the third worker has run a part of this job.
    for (bool mine = false; !mine;) {
      std::atomic<bool> came{false};
      lease.team().For(4, [&](int, int w) {
        if (w == 2) came = true;
      });
      mine = came;
    }
    ++helped;
    while (helped < 2) std::this_thread::yield();
  };
  std::promise<void> done;
  ASSERT_TRUE(pool->Submit(1, [&](int worker) {
    body(worker);
    done.set_value();
  }));
  RunJob(*pool, 0, body);
  done.get_future().wait();
  EXPECT_EQ(helped, 2);
}

TEST(WorkerPoolTest, AJobDoesNotWaitForAWorkerThatGotItsOwn) {
  Event started;
  Event release;
  auto pool = MakePool(2);
  RunJob(*pool, 0, [&](int worker) {
    WorkerPool::TeamLease lease = pool->OpenTeam(worker, true);
    ASSERT_TRUE(pool->Submit(1, [&](int) {
      started.Set();
      release.Wait();
    }));
    started.Wait();
    std::atomic<int> ran{0};
    lease.team().For(100, [&](int, int w) {
      EXPECT_EQ(w, 0);
      ++ran;
    });
    EXPECT_EQ(ran, 100);
    release.Set();
  });
}

TEST(WorkerPoolTest, DenormalsAreFlushed) {
  auto pool = MakePool(1);
  RunJob(*pool, 0, [](int) {
    volatile float smallest = std::numeric_limits<float>::min();
    volatile float half = 0.5f;
    EXPECT_EQ(smallest * half, 0.0f);
  });
}

// Jobs and teams at random from several threads; sums must come out right.
TEST(WorkerPoolTest, ACallerMayRunAJobItself) {
  auto pool = MakePool(2);
  std::thread::id thread;
  EXPECT_TRUE(pool->RunHere(1, [&](int worker) {
    EXPECT_EQ(worker, 1);
    thread = std::this_thread::get_id();
  }));
  EXPECT_EQ(thread, std::this_thread::get_id());
}

TEST(WorkerPoolTest, ACallerKnowsTheWorkerOfItsCore) {
  WorkerPoolOptions options;
  options.cores = AllowedCores();
  std::reverse(options.cores.begin(), options.cores.end());
  const auto pool = *WorkerPool::Create(options);
  for (int worker = 0; worker < pool->size(); ++worker) {
    const int core = options.cores[static_cast<size_t>(worker)];
    EXPECT_EQ(testing::OnCore(core, [&] { return pool->WorkerHere(); }), worker);
  }
  options.cores.resize(1);
  const auto one = *WorkerPool::Create(options);
  if (pool->size() > 1) {
    const auto ask = [&] { return one->WorkerHere(); };
    EXPECT_EQ(testing::OnCore(AllowedCores().front(), ask), std::nullopt);
  }
}

TEST(WorkerPoolTest, ACallerRunsNothingAsAWorkerThatIsBusy) {
  Event started, ends;
  auto pool = MakePool(1);
  ASSERT_TRUE(pool->Submit(0, [&](int) {
    started.Set();
    ends.Wait();
  }));
  started.Wait();
  EXPECT_FALSE(pool->RunHere(0, [](int) { ADD_FAILURE(); }));
  ends.Set();
}

TEST(WorkerPoolTest, WhatIsSubmittedToAWorkerWaitsForTheCallerThatRunsAsIt) {
  Event ran;
  std::atomic<bool> here{false};
  auto pool = MakePool(2);
  EXPECT_TRUE(pool->RunHere(0, [&](int) {
    here = true;
    EXPECT_TRUE(pool->Submit(0, [&](int) {
      EXPECT_FALSE(here);
      ran.Set();
    }));
    for (int i = 0; i < 1000; ++i) std::this_thread::yield();
    here = false;
  }));
  ran.Wait();
}

TEST(WorkerPoolTest, ACallersJobIsHelped) {
  auto pool = MakePool(2);
  EXPECT_TRUE(pool->RunHere(0, [&](int worker) {
    WorkerPool::TeamLease lease = pool->OpenTeam(worker, true);
    std::atomic<int> met{0};  // each part waits for the other
    lease.team().For(2, [&](int, int) {
      ++met;
      while (met < 2) std::this_thread::yield();
    });
    EXPECT_TRUE(lease.helped());
  }));
}

TEST(WorkerPoolTest, ACallerKeepsItsOwnDenormals) {
  const volatile float smallest = std::numeric_limits<float>::min();
  auto pool = MakePool(1);
  EXPECT_TRUE(pool->RunHere(0, [&](int) { EXPECT_EQ(smallest / 2, 0.0f); }));
  EXPECT_NE(smallest / 2, 0.0f);
}

TEST(WorkerPoolTest, ThePoolOutlivesACallersJob) {
  Event started;
  std::atomic<bool> ended{false};
  auto pool = MakePool(1);
  std::thread caller([&, own = pool.get()] {
    EXPECT_TRUE(own->RunHere(0, [&](int) {
      started.Set();
      for (int i = 0; i < 1000; ++i) std::this_thread::yield();
      ended = true;
    }));
  });
  started.Wait();
  pool.reset();
  EXPECT_TRUE(ended);
  caller.join();
}

// Never two at once, and every job once.
TEST(WorkerPoolTest, CallersAndThreadsTakeTurnsAsAWorker) {
  constexpr int kWorkers = 2, kCallers = 4, kJobs = 3000;
  std::atomic<int> running[kWorkers] = {}, submitted{0}, ran{0}, parts{0}, forks{0};
  const auto job = [&](WorkerPool& pool, int worker) {
    EXPECT_EQ(++running[worker], 1);
    if (ran++ % 3 == 0) {
      ++forks;
      WorkerPool::TeamLease lease = pool.OpenTeam(worker, true);
      lease.team().For(3, [&](int, int) { ++parts; });
    }
    EXPECT_EQ(--running[worker], 0);
  };
  {
    auto pool = MakePool(kWorkers, 64);
    std::vector<std::thread> callers;
    callers.reserve(kCallers);
    for (int c = 0; c < kCallers; ++c) {
      callers.emplace_back([&, c] {
        for (int i = 0; i < kJobs; ++i) {
          const int worker = (c + i) % kWorkers;
          if (i % 4 == 0) {
            submitted += pool->Submit(worker, [&](int own) { job(*pool, own); });
          } else {
            submitted += pool->RunHere(worker, [&](int own) { job(*pool, own); });
          }
        }
      });
    }
    for (std::thread& caller : callers) caller.join();
  }
  EXPECT_EQ(ran, submitted);
  EXPECT_GT(ran, 0);  // how many depends on the order of the threads
  EXPECT_EQ(parts, 3 * forks);
}

TEST(WorkerPoolTest, JobsAndTeamsUnderLoad) {
  auto pool = MakePool(3, 1000);
  std::atomic<int64_t> sum{0};
  std::vector<std::thread> submitters;
  submitters.reserve(3);
  for (int t = 0; t < 3; ++t) {
    submitters.emplace_back([&, t] {
      for (int i = 0; i < 300; ++i) {
        RunJob(*pool, (t + i) % 3, [&](int worker) {
          WorkerPool::TeamLease lease = pool->OpenTeam(worker, true);
          for (int fork = 0; fork < 5; ++fork) {
            lease.team().For(20, [&](int part, int) { sum += part; });
          }
        });
      }
    });
  }
  for (std::thread& thread : submitters) thread.join();
  EXPECT_EQ(sum, int64_t{3} * 300 * 5 * 190);
}

}  // namespace
}  // namespace chairlift
