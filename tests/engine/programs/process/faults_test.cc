// What a function may do wrong, and which requests fail because of it.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <sstream>
#include <thread>

#include "engine/programs/process/functions.h"

namespace chairlift {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::FunctionTest;
using ::testing::HasSubstr;
using testing::WriteFile;

class FaultsTest : public FunctionTest {
 protected:
  // A function that does `harm` where a row is negative, and else returns its rows; "gate" holds
  // it until Open().
  Status LoadHarmful(const std::string& harm, const std::string& settings = "") {
    return Load(
        "import os, time, sys\n"
        "gate = '" +
            (folder_ / "gate").string() +
            "'\n"
            "def predict(x):\n"
            "  while not os.path.exists(gate): time.sleep(0.001)\n"
            "  if (x < 0).any():\n    " +
            harm +
            "\n"
            "  return x\n",
        settings);
  }
  void Open() { WriteFile(folder_ / "gate", ""); }
  static Tensor Row(float value) { return Rows({value}); }

  // Answers of requests of these values that share a batch: one before them holds the worker.
  std::vector<StatusOr<InferResponse>> Together(const std::vector<float>& values) {
    Answer front = Submit(Row(1));
    std::vector<Answer> answers;
    answers.reserve(values.size());
    for (const float value : values) answers.push_back(Submit(Row(value)));
    Open();
    EXPECT_TRUE(front.get().ok());
    std::vector<StatusOr<InferResponse>> all;
    all.reserve(answers.size());
    for (Answer& answer : answers) all.push_back(answer.get());
    return all;
  }

  // Asks again until there is an answer, for a minute.
  StatusOr<InferResponse> InferUntilItAnswers(const Tensor& x) {
    StatusOr<InferResponse> response = Infer(x);
    for (int i = 0; i < 6000 && !response.ok(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      response = Infer(x);
    }
    return response;
  }
  std::string Index() {
    std::string reasons;
    for (const ModelIndexEntry& entry : engine_->Index()) {
      if (entry.state == ModelState::kUnavailable) reasons += entry.reason;
    }
    return reasons;
  }
};

TEST_F(FaultsTest, OnlyTheGuiltyOfABatchFailWhereItRaises) {
  ASSERT_TRUE(LoadHarmful("raise ValueError(f'no {x.min():.0f}')").ok());
  const auto answers = Together({1, -2, 3, -4, 5});
  for (const size_t good : {0, 2, 4}) EXPECT_TRUE(answers[good].ok()) << answers[good].status();
  EXPECT_THAT(MessageOf(answers[1].status()),
              AllOf(HasSubstr("ValueError: no -2"), HasSubstr("(my.py, line 7, in predict)")));
  // Lines of the user's file are for the log, not for clients.
  EXPECT_THAT(MessageOf(answers[1].status()), Not(HasSubstr("raise")));
  EXPECT_THAT(MessageOf(answers[3].status()), HasSubstr("ValueError: no -4"));
}

TEST_F(FaultsTest, AFunctionWithSideEffectsIsNotRunAgain) {
  ASSERT_TRUE(LoadHarmful("raise ValueError('no')", "retry_alone: false\n").ok());
  for (const auto& answer : Together({1, -2, 3})) {
    EXPECT_THAT(MessageOf(answer.status()), HasSubstr("ValueError: no"));
  }
}

TEST_F(FaultsTest, ResultsOfAnotherKindAreRefusedByName) {
  ASSERT_TRUE(Load("results = [lambda x: x[:-1], lambda x: x.astype('int64'), lambda x: 'text', "
                   "lambda x: (x, x), lambda x: None, lambda x: x.sum()]\n"
                   "def predict(x): return results[int(x[0, 0])](x)\n")
                  .ok());
  const std::vector<std::string> expected = {
      "returned 1 rows of 'output' for 2 rows",
      "of type int64; it is served as float32",
      "returned text for 'output', which is served as float32: annotate -> list[str]",
      "returned 2 outputs; it must return 1",
      "returned None",
      "returned a single number"};
  for (size_t i = 0; i < expected.size(); ++i) {
    const float kind = static_cast<float>(i);
    EXPECT_THAT(MessageOf(Infer(Rows({kind, kind})).status()), HasSubstr(expected[i]));
  }
}

TEST_F(FaultsTest, AnotherShapeIsRefused) {
  ASSERT_TRUE(Load("from typing import Annotated\n"
                   "def predict(x) -> Annotated[np.ndarray, np.float32, (None, 2)]: return x\n")
                  .ok());
  EXPECT_TRUE(Infer(Rows({1, 2, 3, 4}, 2)).ok());
  EXPECT_THAT(MessageOf(Infer(Rows({1, 2, 3}, 1)).status()),
              HasSubstr("returned 'output' of shape [1, 3]; it must be [1, 2]"));
}

TEST_F(FaultsTest, RaggedRowsOfOtherLengthsAreRefused) {
  ASSERT_TRUE(Load("from chairlift import Ragged\n"
                   "def predict(x: Ragged) -> Ragged:\n"
                   "  return Ragged(x.values, x.offsets * 2) if x.values[0] else "
                   "Ragged(x.values[1:], x.offsets)\n")
                  .ok());
  EXPECT_THAT(MessageOf(Infer(Rows({1, 2}, 1)).status()), HasSubstr("other offsets"));
  EXPECT_THAT(MessageOf(Infer(Rows({0, 2}, 1)).status()), HasSubstr("returned 1 rows of 'output'"));
  EXPECT_THAT(MessageOf(Infer(Tensor::Of<float>({1}, {1})).status()), HasSubstr("[rows, length"));
  // If it takes none, they are its own.
  ASSERT_TRUE(Load("from chairlift import Ragged\ndef predict(x) -> Ragged: return x\n").ok());
  EXPECT_THAT(MessageOf(Infer(Rows({1, 2}, 1)).status()), HasSubstr("must be a Ragged"));
}

TEST_F(FaultsTest, OnlyTheBatchOfAWorkerThatExitsFails) {
  ASSERT_TRUE(LoadHarmful("os._exit(3)", "max_batch_size: 1\n").ok());
  const auto answers = Together({1, -2, 3, 4});
  EXPECT_TRUE(answers[0].ok()) << answers[0].status();
  EXPECT_THAT(MessageOf(answers[1].status()), HasSubstr("exited with code 3"));
  EXPECT_TRUE(answers[2].ok()) << answers[2].status();
  EXPECT_TRUE(answers[3].ok()) << answers[3].status();
}

TEST_F(FaultsTest, OthersOfABatchWhoseWorkerEndsAreAnswered) {
  ASSERT_TRUE(LoadHarmful("os._exit(3)").ok());
  const auto answers = Together({-2, 1, 3, -4, 5});
  for (const size_t good : {1, 2, 4}) EXPECT_TRUE(answers[good].ok()) << answers[good].status();
  for (const size_t bad : {0, 3}) {
    EXPECT_EQ(answers[bad].status().code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(MessageOf(answers[bad].status()), HasSubstr("exited with code 3"));
  }
}

TEST_F(FaultsTest, AFunctionWithSideEffectsIsNotRunAgainWhereItsWorkerEnds) {
  ASSERT_TRUE(LoadHarmful("os._exit(3)", "retry_alone: false\n").ok());
  for (const auto& answer : Together({1, -2, 3})) {
    EXPECT_THAT(MessageOf(answer.status()), HasSubstr("exited with code 3"));
  }
}

TEST_F(FaultsTest, OthersOfABatchThatHangsAreAnswered) {
  ASSERT_TRUE(LoadHarmful("time.sleep(1000)", "batch_timeout_us: 3000000\n").ok());
  const auto answers = Together({1, -2, 3});
  EXPECT_TRUE(answers[0].ok()) << answers[0].status();
  EXPECT_THAT(MessageOf(answers[1].status()), HasSubstr("batch_timeout_us"));
  EXPECT_TRUE(answers[2].ok()) << answers[2].status();
}

TEST_F(FaultsTest, SystemExitEndsTheWorker) {
  ASSERT_TRUE(LoadHarmful("sys.exit(5)").ok());
  Open();
  EXPECT_THAT(MessageOf(Infer(Row(-1)).status()), HasSubstr("exited with code 5"));
  EXPECT_TRUE(InferUntilItAnswers(Row(1)).ok());
}

TEST_F(FaultsTest, AKilledWorkerIsReplaced) {
  ASSERT_TRUE(LoadHarmful("os.kill(os.getpid(), 9)", "workers: 2\nspare_workers: 1\n").ok());
  Open();
  for (int i = 0; i < 5; ++i) {
    EXPECT_THAT(MessageOf(Infer(Row(-1)).status()), HasSubstr("killed by signal 9"));
    EXPECT_TRUE(InferUntilItAnswers(Row(1)).ok());
  }
}

// With load: those that were in no killed worker are all answered.
TEST_F(FaultsTest, NobodyIsLostWhereWorkersDieUnderLoad) {
  ASSERT_TRUE(LoadHarmful("os.kill(os.getpid(), 9)", "workers: 2\nmax_batch_size: 4\n").ok());
  Open();
  std::vector<Answer> answers;
  int failed = 0;
  constexpr int kDeaths = 4, kRequests = 400;
  answers.reserve(kRequests);
  for (int i = 0; i < kRequests; ++i) {
    answers.push_back(Submit(Row(i % (kRequests / kDeaths) == 7 ? -1.0f : 1.0f)));
  }
  for (Answer& answer : answers) failed += answer.get().ok() ? 0 : 1;
  EXPECT_GE(failed, kDeaths);
  EXPECT_LE(failed, 4 * kDeaths);  // the requests that shared their batches
}

TEST_F(FaultsTest, AHangIsEndedAtItsDeadline) {
  ASSERT_TRUE(
      LoadHarmful("time.sleep(1000)", "batch_timeout_us: 3000000\nmax_batch_size: 1\n").ok());
  const auto answers = Together({1, -2, 3});
  EXPECT_TRUE(answers[0].ok()) << answers[0].status();
  EXPECT_THAT(MessageOf(answers[1].status()), HasSubstr("batch_timeout_us"));
  EXPECT_TRUE(answers[2].ok()) << answers[2].status();
}

// C code that never gives the interpreter a turn.
TEST_F(FaultsTest, AHangInForeignCodeIsEnded) {
  ASSERT_TRUE(
      LoadHarmful("import ctypes; ctypes.PyDLL(None).sleep(1000)", "batch_timeout_us: 1500000\n")
          .ok());
  Open();
  EXPECT_THAT(MessageOf(Infer(Row(-1)).status()), HasSubstr("batch_timeout_us"));
  EXPECT_TRUE(InferUntilItAnswers(Row(1)).ok());
}

TEST_F(FaultsTest, ADeadlineIsKeptWhileTheFunctionHangs) {
  ASSERT_TRUE(LoadHarmful("pass").ok());
  InferRequest request = Request(Row(1));
  request.timeout = std::chrono::milliseconds(50);
  EXPECT_EQ(engine_->Infer(request).status().code(), absl::StatusCode::kDeadlineExceeded);
  Open();
  EXPECT_TRUE(InferUntilItAnswers(Row(1)).ok());
}

// The answer is the worker's process.
constexpr const char* kProcessId =
    "import os\n"
    "from numpy.typing import NDArray\n"
    "kept = []\n"
    "def predict(x) -> NDArray[np.int64]:\n"
    "  kept.append(np.ones(int(x[0, 0])))\n"
    "  return np.full(len(x), os.getpid())\n";

TEST_F(FaultsTest, AnotherWorkerIsStartedWhileAllAreBusy) {
  ASSERT_TRUE(Load("import os, time\n"
                   "def predict(x):\n"
                   "  while x[0, 0] < 0 and not os.path.exists('" +
                       (folder_ / "gate").string() +
                       "'): time.sleep(0.001)\n"
                       "  return x\n",
                   "max_workers: 2\nbatches_in_flight: 1\nmax_batch_size: 1\n")
                  .ok());
  Answer busy = Submit(Row(-1));
  EXPECT_THAT(Values(Infer(Row(1))), ElementsAre(1));
  Open();
  EXPECT_TRUE(busy.get().ok());
}

TEST_F(FaultsTest, AWorkerIsReplacedAfterItsBatches) {
  ASSERT_TRUE(Load(kProcessId, "restart_after_batches: 10\n").ok());
  std::set<int64_t> processes;
  EXPECT_TRUE(Soon([&] {
    const auto response = Infer(Row(1));
    EXPECT_TRUE(response.ok()) << response.status();
    if (response.ok()) processes.insert(response->outputs[0].tensor.values<int64_t>()[0]);
    return !response.ok() || processes.size() == 3;
  }));
}

TEST_F(FaultsTest, AWorkerThatGrowsIsReplaced) {
  ASSERT_TRUE(Load(kProcessId, "restart_after_bytes: 150000000\n").ok());
  std::set<int64_t> processes;
  EXPECT_TRUE(Soon([&] {
    const auto response = Infer(Row(20'000));
    EXPECT_TRUE(response.ok()) << response.status();
    if (response.ok()) processes.insert(response->outputs[0].tensor.values<int64_t>()[0]);
    return !response.ok() || processes.size() == 2;
  }));
}

TEST_F(FaultsTest, WhatItPrintsIsNoAnswer) {
  ASSERT_TRUE(Load("import os, sys\n"
                   "print('hello', flush=True)\n"
                   "def predict(x):\n"
                   "  print('\\x03' * 1000)\n"
                   "  sys.stderr.write('no newline')\n"
                   "  os.write(1, b'\\xff' * 200000)\n"
                   "  os.system('echo from a shell')\n"
                   "  return x\n")
                  .ok());
  EXPECT_TRUE(Infer(Row(1)).ok());
  EXPECT_TRUE(Infer(Row(2)).ok());
}

// A child that returns from the function answers no request, and no child keeps its parent's end
// open.
TEST_F(FaultsTest, ForksAnswerNobody) {
  ASSERT_TRUE(Load("import os, time\n"
                   "def predict(x):\n"
                   "  if os.fork() == 0 and x[0, 0] < 0: time.sleep(1000)\n"
                   "  elif x[0, 0] == 0: os._exit(1)\n"
                   "  return x\n")
                  .ok());
  for (int i = 1; i < 4; ++i) EXPECT_THAT(Values(Infer(Row(float(i)))), ElementsAre(float(i)));
  EXPECT_TRUE(Infer(Row(-1)).ok());
  EXPECT_THAT(MessageOf(Infer(Row(0)).status()), HasSubstr("exited"));
  EXPECT_TRUE(InferUntilItAnswers(Row(5)).ok());
}

TEST_F(FaultsTest, AMemoryErrorIsTheRequests) {
  ASSERT_TRUE(LoadHarmful("np.ones(1 << 50)").ok());
  Open();
  EXPECT_THAT(MessageOf(Infer(Row(-1)).status()), HasSubstr("Unable to allocate"));
  EXPECT_TRUE(Infer(Row(1)).ok());
}

TEST_F(FaultsTest, AWorkerAllocatesNoMoreThanItsLimit) {
  constexpr const char* kLimit = "max_memory_bytes: 400000000\n";
  const std::string allocate =
      "import numpy as np\n"
      "def predict(x):\n"
      "  np.ones(int(x[0, 0]) << 20, np.uint8)\n"
      "  return x\n";
  ASSERT_TRUE(Load(allocate, kLimit).ok());
  const auto answer = Infer(Row(1000));
  EXPECT_THAT(MessageOf(answer.status()),
              AllOf(HasSubstr("Unable to allocate"), HasSubstr("max_memory_bytes"),
                    HasSubstr("400000000")));
  EXPECT_TRUE(Infer(Row(10)).ok());
  EXPECT_THAT(MessageOf(Load("import numpy as np\n"
                             "kept = np.ones(1000 << 20, np.uint8)\n"
                             "def predict(x): return x\n",
                             kLimit)),
              HasSubstr("max_memory_bytes"));
  EXPECT_TRUE(Load(allocate).ok());
  EXPECT_TRUE(Infer(Row(1000)).ok()) << "there is no limit where none is set";
}

TEST_F(FaultsTest, WhatCannotBeLoadedSaysWhy) {
  EXPECT_THAT(MessageOf(Load("def predict(x): return x\nraise RuntimeError('no weights')\n")),
              AllOf(HasSubstr("RuntimeError: no weights"), HasSubstr("my.py\", line 3")));
  EXPECT_THAT(Index(), HasSubstr("no weights"));
  EXPECT_THAT(MessageOf(Load("def predict(x) return x")), HasSubstr("SyntaxError"));
  EXPECT_THAT(MessageOf(Load("import nothing_of_that_name\n")),
              HasSubstr("No module named 'nothing_of_that_name'"));
  EXPECT_THAT(MessageOf(Load("import os\nprint('last words')\nos._exit(7)\n")),
              AllOf(HasSubstr("exited with code 7"), HasSubstr("last words")));
  EXPECT_THAT(MessageOf(Load("def predict(): return 1\n")),
              HasSubstr("takes no required argument"));
  EXPECT_THAT(MessageOf(Load("def predict(x, *, y): return x\n")),
              HasSubstr("takes 'y' by name only"));
  EXPECT_THAT(MessageOf(Load("predict = 3\n")), HasSubstr("not a function"));
  EXPECT_THAT(MessageOf(Load("def predict(x: set): return x\n")), HasSubstr("annotated"));
  EXPECT_THAT(MessageOf(Load("async def predict(x): yield x\n")), HasSubstr("async generator"));
  EXPECT_THAT(MessageOf(Load("import time\ntime.sleep(1000)\n", "load_timeout_us: 300000\n")),
              HasSubstr("load_timeout_us"));
  EXPECT_THAT(MessageOf(Load("def predict(x): return x\n", "python_executable: no-such-python\n")),
              HasSubstr("'no-such-python' cannot be started"));
  EXPECT_THAT(MessageOf(Load("def predict(x): return x\n", "policy: cellular\n")),
              HasSubstr("cannot serve a Python model"));
  ASSERT_TRUE(Load("def predict(x): return x\n").ok());
  EXPECT_TRUE(Infer(Row(1)).ok());
}

TEST_F(FaultsTest, ASlowLoadIsWaitedFor) {
  ASSERT_TRUE(Load("import time\ntime.sleep(0.5)\ndef predict(x): return x\n").ok());
  EXPECT_TRUE(Infer(Row(1)).ok());
}

// Backed off, not ready, with the reason in the index; and ready again where it works again.
TEST_F(FaultsTest, ACrashLoopIsUnready) {
  ASSERT_TRUE(LoadHarmful("os._exit(9)").ok());
  Open();
  WriteFile(folder_ / "my/1/my.py", "import os; os._exit(4)");
  EXPECT_THAT(MessageOf(Infer(Row(-1)).status()), HasSubstr("exited with code 9"));
  for (int i = 0; i < 6000 && engine_->ModelReady("my"); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_FALSE(engine_->ModelReady("my"));
  EXPECT_THAT(Index(), HasSubstr("exited with code 4"));
  EXPECT_THAT(MessageOf(Infer(Row(1)).status()), HasSubstr("not ready"));
  WriteFile(folder_ / "my/1/my.py", "def predict(x): return x");
  EXPECT_TRUE(InferUntilItAnswers(Row(1)).ok());
  EXPECT_TRUE(engine_->ModelReady("my"));
}

TEST_F(FaultsTest, AWorkerThatBreaksTheProtocolIsReplaced) {
  for (const char* message :
       {"b''", "b'x'", "b'x' * 5000", "struct.pack('=IIQ', 3, 0, 1)",
        "struct.pack('=IIQ', 9, 0, 0)", "struct.pack('=IIQIIQqq', 3, 1, 1, 1, 2, 1 << 62, 1, 1)",
        "struct.pack('=IIQIIQqq', 3, 1, 1, 1, 2, 0, 1, 1 << 61)"}) {
    ASSERT_TRUE(Load("import struct, socket\n"
                     "def predict(x):\n"
                     "  if x[0, 0] < 0: socket.socket(fileno=3).send(" +
                     std::string(message) +
                     ")\n"
                     "  return x\n")
                    .ok());
    EXPECT_FALSE(Infer(Row(-1)).ok()) << message;
    EXPECT_THAT(Values(InferUntilItAnswers(Row(6))), ElementsAre(6));
  }
}

// Fewer than there were, or none: what a worker does not hand back is not kept.
TEST_F(FaultsTest, AnAnswerBeyondTheMemoryBudgetIsRefused) {
  auto engine = Engine::Create({.workers = 1, .memory_budget = 1 << 20, .allow_plugins = true});
  ASSERT_TRUE(engine.ok());
  engine_ = *std::move(engine);
  ASSERT_TRUE(Load("def predict(x): return np.repeat(x, int(x[0, 0]), axis=1)\n").ok());
  EXPECT_TRUE(Infer(Row(1000)).ok());
  EXPECT_THAT(MessageOf(Infer(Row(1'000'000)).status()), HasSubstr("memory-budget"));
  EXPECT_TRUE(Infer(Row(1000)).ok());
}

int SharedRegionsOfThisProcess() {
  std::ifstream maps("/proc/self/maps");
  std::stringstream text;
  text << maps.rdbuf();
  int count = 0;
  for (size_t at = 0; (at = text.str().find("memfd:chairlift", at)) != std::string::npos; ++at) {
    ++count;
  }
  return count;
}

TEST_F(FaultsTest, NothingIsLeftInSharedMemory) {
  ASSERT_TRUE(LoadHarmful("os.kill(os.getpid(), 9)").ok());
  Open();
  EXPECT_TRUE(Infer(Row(1)).ok());
  EXPECT_GT(SharedRegionsOfThisProcess(), 0);
  EXPECT_FALSE(Infer(Row(-1)).ok());
  EXPECT_TRUE(InferUntilItAnswers(Row(1)).ok());
  ASSERT_TRUE(engine_->UnloadModel("my").ok());
  // The thread that gave the last answer may still be on its way back.
  EXPECT_TRUE(Soon([] { return SharedRegionsOfThisProcess() == 0; }));
}

TEST_F(FaultsTest, AShutDownDoesNotWaitForAHang) {
  ASSERT_TRUE(LoadHarmful("time.sleep(1000)").ok());
  Open();
  Answer answer = Submit(Row(-1));
  engine_->Shutdown(std::chrono::milliseconds(10));
  EXPECT_FALSE(answer.get().ok());
  engine_.reset();
}

}  // namespace
}  // namespace chairlift
