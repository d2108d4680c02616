// The timeline that the engine tells: complete, in order, and bounded.
#include "engine/execution/trace.h"

#include <gmock/gmock.h>

#include <condition_variable>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>

#include "device/cpu/cores.h"
#include "engine/cell_models.h"
#include "engine/recurrent_models.h"
#include "engine/test_models.h"
#include "support/on_core.h"

namespace chairlift {
namespace {

using nlohmann::json;
using testing::DecoderCell;
using testing::DoublingModel;
using ::testing::ElementsAre;
using testing::EncoderCell;
using testing::kVocabulary;
using testing::TempFolder;
using testing::TokenClassifier;
using testing::WriteFile;

TimePoint At(int64_t ns) { return TimePoint(Duration(ns)); }

json Events(const Trace& trace) { return json::parse(trace.json)["traceEvents"]; }

// The slices of a timeline, by worker in order of their start.
std::map<int, std::vector<json>> Slices(const Trace& trace) {
  std::map<int, std::vector<json>> slices;
  for (const json& event : Events(trace)) {
    if (event["ph"] == "X") slices[event["tid"]].push_back(event);
  }
  for (auto& [worker, events] : slices) {
    std::sort(events.begin(), events.end(),
              [](const json& a, const json& b) { return a["ts"] < b["ts"]; });
  }
  return slices;
}

std::vector<std::string> Names(const std::vector<json>& slices) {
  std::vector<std::string> names;
  names.reserve(slices.size());
  for (const json& slice : slices) names.push_back(slice["name"]);
  return names;
}

TEST(TraceRecorderTest, TellsWhatEachWorkerRan) {
  const std::string model = "m", whole;
  const std::string odd = "a\"b\\c\n\xff";
  TraceRecorder recorder;
  EXPECT_FALSE(recorder.on());
  recorder.Start({}, At(1000));
  EXPECT_TRUE(recorder.on());
  Task task;
  task.worker = 1;
  task.rows = 3;
  task.padding_rows = 5;
  task.nodes = {{.request = 9, .node = 0}, {.request = 7, .node = 2}, {.request = 9, .node = 1}};
  recorder.Record({.model = model, .cell = odd, .task = task, .start = At(999), .end = At(1500)});
  recorder.Record({.model = model,
                   .cell = odd,
                   .task = task,
                   .helped = true,
                   .start = At(2500),
                   .end = At(3750)});
  task.worker = 0;
  task.nodes = {{.request = 8, .node = 0}};
  recorder.Record(
      {.model = model, .cell = whole, .task = task, .start = At(3000), .end = At(4000)});
  const Trace trace = recorder.Stop(2);
  EXPECT_FALSE(recorder.on());
  EXPECT_EQ(trace.tasks, 2u);
  EXPECT_EQ(trace.dropped, 0u);

  auto slices = Slices(trace);
  ASSERT_EQ(slices[1].size(), 1u);  // what began before the recording is no part of it
  const json& first = slices[1][0];
  EXPECT_EQ(first["name"], "a\"b\\c\n\xef\xbf\xbd");
  EXPECT_EQ(first["cat"], "cell");
  EXPECT_DOUBLE_EQ(first["ts"], 1.5);
  EXPECT_DOUBLE_EQ(first["dur"], 1.25);
  EXPECT_EQ(first["args"], json({{"model", "m"},
                                 {"rows", 3},
                                 {"steps", 1},
                                 {"cells", 3},
                                 {"padding_rows", 5},
                                 {"helped", true},
                                 {"requests", {7, 9}}}));
  ASSERT_EQ(slices[0].size(), 1u);
  EXPECT_EQ(slices[0][0]["name"], "m");
  EXPECT_EQ(slices[0][0]["cat"], "model");

  std::map<int, std::string> tracks;
  for (const json& event : Events(trace)) {
    if (event["name"] == "thread_name") tracks[event["tid"]] = event["args"]["name"];
  }
  EXPECT_EQ(tracks, (std::map<int, std::string>{{0, "worker 0"}, {1, "worker 1"}}));
}

TEST(TraceRecorderTest, KeepsTheFirstTasksThatFitAndCountsTheRest) {
  const std::string model = "m", cell = "c";
  TraceRecorder recorder;
  recorder.Start({.max_bytes = 150},
                 At(0));  // two tasks of one request, 48 bytes each, and one of none
  Task task;
  for (uint64_t i = 0; i < 5; ++i) {
    task.nodes.assign(1, {.request = i, .node = 0});
    if (i == 2) task.nodes.resize(4, {.request = 100, .node = 0});
    if (i == 3) task.nodes.clear();  // would fit, but leave a hole before it
    recorder.Record(
        {.model = model, .cell = cell, .task = task, .start = At(10 * i), .end = At(10 * i + 1)});
  }
  const Trace trace = recorder.Stop(1);
  EXPECT_EQ(trace.tasks, 2u);
  EXPECT_EQ(trace.dropped, 3u);
  EXPECT_EQ(json::parse(trace.json)["otherData"]["dropped_tasks"], 3);
  EXPECT_THAT(Names(Slices(trace)[0]), ElementsAre("c", "c"));

  recorder.Start({.max_bytes = 150}, At(100));
  recorder.Record({.model = model, .cell = cell, .task = task, .start = At(100), .end = At(101)});
  const Trace next = recorder.Stop(1);  // begins again
  EXPECT_EQ(next.tasks, 1u);
  EXPECT_EQ(next.dropped, 0u);
}

TEST(TraceRecorderTest, NodesAreTimedWithoutTheirBodies) {
  const std::string model = "m", whole;
  TraceRecorder recorder;
  recorder.Start({.nodes = true}, At(0));
  EXPECT_GT(recorder.node_bytes(), 0u);
  // A loop of two iterations of a body of "a", then "b": as they end.
  for (const int64_t at : {0, 1000}) {
    NodeRuns ran(10'000);
    const auto run = [&](const char* name, int64_t start, int64_t end) {
      ran.Add({.node = name, .op = "Op"}, At(at + start), At(at + end));
    };
    run("a", 110, 210);
    run("a", 250, 350);
    run("loop", 100, 400);
    run("b", 400, 900);
    recorder.Record(
        {.model = model, .cell = whole, .task = {}, .start = At(at), .end = At(at + 900)}, &ran);
  }
  const Trace trace = recorder.Stop(1);
  EXPECT_EQ(recorder.node_bytes(), 0u);
  EXPECT_THAT(Names(Slices(trace)[0]),
              ElementsAre("m", "Op", "Op", "Op", "Op", "m", "Op", "Op", "Op", "Op"));
  std::map<std::string, std::pair<uint64_t, int64_t>> nodes;
  for (const NodeProfile& node : trace.nodes) nodes[node.node] = {node.runs, node.median.count()};
  using Times = std::map<std::string, std::pair<uint64_t, int64_t>>;
  EXPECT_EQ(nodes, (Times{{"a", {4, 100}}, {"b", {2, 500}}, {"loop", {2, 100}}}));
  EXPECT_EQ(trace.nodes[0].node, "b");  // 1000 ns in all
}

TEST(TraceRecorderTest, ATaskOfTooManyNodesIsDroppedWithWhatFollows) {
  const std::string model = "m", whole;
  TraceRecorder recorder;
  recorder.Start({.max_bytes = 4000, .nodes = true}, At(0));
  size_t most = 0;
  for (const int nodes : {3, 1'000'000, 3}) {
    NodeRuns ran(recorder.node_bytes());
    for (int i = 0; i < nodes; ++i) {
      // Shapes that grow tell profiles apart.
      ran.Add({.node = "n", .op = "Op", .shapes = std::to_string(i)}, At(i), At(i + 1));
      most = std::max(most, ran.byte_size());
    }
    EXPECT_EQ(ran.complete(), nodes == 3);
    recorder.Record({.model = model, .cell = whole, .task = {}, .start = At(0), .end = At(nodes)},
                    &ran);
  }
  EXPECT_LE(most, 4000u);
  const Trace trace = recorder.Stop(1);
  EXPECT_EQ(trace.tasks, 1u);
  EXPECT_EQ(trace.dropped, 2u);
}

class TraceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    EngineOptions options;
    options.workers = 2;
    engine_ = *Engine::Create(options);
  }

  // Asks all at once; the numbers of the requests, once every one is answered.
  std::set<RequestId> Ask(const std::string& model,
                          const std::vector<std::vector<NamedTensor>>& all) {
    std::mutex mutex;
    std::condition_variable told;
    size_t left = all.size();
    std::set<RequestId> numbers;
    for (const std::vector<NamedTensor>& inputs : all) {
      InferRequest request;
      request.model = model;
      request.inputs = inputs;
      numbers.insert(
          engine_->InferAsync(std::move(request), [&](const StatusOr<InferResponse>& answer) {
            EXPECT_TRUE(answer.ok()) << answer.status();
            const std::lock_guard<std::mutex> lock(mutex);
            if (--left == 0) told.notify_one();
          }));
    }
    std::unique_lock<std::mutex> lock(mutex);
    told.wait(lock, [&] { return left == 0; });
    return numbers;
  }

  static Tensor Tokens(int64_t length) {
    Tensor tokens = Tensor::Allocate(DType::kInt64, {1, length});
    for (int64_t i = 0; i < length; ++i) tokens.data<int64_t>()[i] = i % kVocabulary;
    return tokens;
  }

  // What holds of every timeline; returns the requests in it, and adds up the cells by name.
  static std::set<RequestId> Check(const Trace& trace, std::map<std::string, int64_t>* cells) {
    std::set<RequestId> seen;
    uint64_t tasks = 0;
    for (const auto& [worker, slices] : Slices(trace)) {
      EXPECT_GE(worker, 0);
      EXPECT_LT(worker, 2);
      double end = 0;
      for (const json& slice : slices) {
        ++tasks;
        // In thousandths, to which both are rounded.
        EXPECT_GE(slice["ts"].get<double>(), end - 0.002) << slice;
        end = slice["ts"].get<double>() + slice["dur"].get<double>();
        (*cells)[slice["name"]] += slice["args"]["cells"].get<int64_t>();
        for (const json& request : slice["args"]["requests"]) seen.insert(request.get<RequestId>());
      }
    }
    EXPECT_EQ(tasks, trace.tasks);
    EXPECT_EQ(trace.dropped, 0u);
    return seen;
  }

  TempFolder folder_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(TraceTest, ShowsEveryCellOfEveryRequest) {
  const std::string file = WriteFile(folder_ / "m.onnx", TokenClassifier().Bytes());
  ASSERT_TRUE(engine_->LoadModel("m", file, {}).ok());
  Ask("m", {{{"x", Tokens(3)}}});
  engine_->StartTrace();
  std::vector<std::vector<NamedTensor>> all;
  int64_t tokens = 0;
  for (int i = 0; i < 40; ++i) {
    all.push_back({{"x", Tokens(1 + i % 7)}});
    tokens += 1 + i % 7;
  }
  const std::set<RequestId> asked = Ask("m", all);
  const Trace trace = engine_->StopTrace();
  std::map<std::string, int64_t> cells;
  EXPECT_EQ(Check(trace, &cells), asked);
  // Two layers, each a projection and a step, and a head of one row a request.
  ASSERT_EQ(cells.size(), 5u) << trace.json;
  int heads = 0;
  for (const auto& [name, count] : cells) {
    heads += count == 40 ? 1 : 0;
    EXPECT_TRUE(count == 40 || count == tokens) << name << " " << count;
  }
  EXPECT_EQ(heads, 1);
  EXPECT_EQ(engine_->StopTrace().tasks, 0u);
}

// On another worker's core the two would share it, and the core of that worker would be idle.
TEST_F(TraceTest, WhoWaitsRunsItsRequestAsTheWorkerOfItsCore) {
  EngineOptions options;
  options.cores = AllowedCores();
  engine_ = *Engine::Create(options);
  const std::string file = WriteFile(folder_ / "doubling.onnx", DoublingModel().Bytes());
  ASSERT_TRUE(engine_->LoadModel("doubling", file, {}).ok());
  for (int round = 0; round < 3; ++round) {
    for (int worker = 0; worker < static_cast<int>(options.cores.size()); ++worker) {
      engine_->StartTrace();
      EXPECT_TRUE(testing::OnCore(options.cores[static_cast<size_t>(worker)], [&] {
        InferRequest request;
        request.model = "doubling";
        request.inputs = {{"x", Tensor::Of<float>({1, 4}, {1, 2, 3, 4})}};
        return engine_->Infer(std::move(request)).ok();
      }));
      const auto slices = Slices(engine_->StopTrace());
      ASSERT_EQ(slices.size(), 1u);
      EXPECT_EQ(slices.begin()->first, worker);
    }
  }
}

TEST_F(TraceTest, NamesCellsAsTheUserDid) {
  WriteFile(folder_ / "t/1/encoder.onnx", EncoderCell().Bytes());
  WriteFile(folder_ / "t/1/decoder.onnx", DecoderCell().Bytes());
  WriteFile(folder_ / "t/model.yaml",
            R"(
cells: {encoder: {}, decoder: {}}
)" CHAIRLIFT_SEQ2SEQ_YAML R"(    go: 1
    eos: 0
    extra_length: 2
)");
  const Status loaded = engine_->LoadModel("t", (folder_ / "t/1").string(), {});
  ASSERT_TRUE(loaded.ok()) << loaded;
  engine_->StartTrace();
  const std::set<RequestId> asked =
      Ask("t", {{{"source", Tokens(4)}}, {{"source", Tokens(2)}}, {{"source", Tokens(5)}}});
  std::map<std::string, int64_t> cells;
  EXPECT_EQ(Check(engine_->StopTrace(), &cells), asked);
  ASSERT_EQ(cells.size(), 2u);
  EXPECT_EQ(cells["encoder"], 11);
  EXPECT_GE(cells["decoder"], 3);
}

// What products multiply is known by the shapes that ran: of a model as a whole and of its cells.
TEST_F(TraceTest, CountsWhatNodesMultiply) {
  testing::ModelBuilder m(17);
  m.Input("x", testing::kFloat, {3, 8}).Output("y", testing::kFloat);
  auto* w = m.Tensor("w", testing::kFloat, {8, 5});
  for (int i = 0; i < 40; ++i) w->add_float_data(0.5F);
  m.Node("MatMul", {"x", "w"}, {"y"});
  ASSERT_TRUE(engine_->LoadModel("product", WriteFile(folder_ / "p.onnx", m.Bytes()), {}).ok());
  ASSERT_TRUE(
      engine_->LoadModel("cells", WriteFile(folder_ / "c.onnx", TokenClassifier().Bytes()), {})
          .ok());
  Tensor x = Tensor::Allocate(DType::kFloat, {3, 8});
  std::fill_n(x.data<float>(), x.size(), 1.0F);
  engine_->StartTrace({.nodes = true});
  Ask("product", {{{"x", x}}, {{"x", x}}});
  Ask("cells", {{{"x", Tokens(4)}}});
  const Trace trace = engine_->StopTrace();
  int steps = 0;
  for (const NodeProfile& node : trace.nodes) {
    if (node.model == "product") {
      EXPECT_EQ(node.runs, 2u);
      EXPECT_EQ(node.flops, 2 * 3 * 8 * 5);
      EXPECT_EQ(node.bytes, 4 * (24 + 40 + 15));
      EXPECT_NE(node.implementation, "");
    } else if (node.op == "RecurrentStep") {
      EXPECT_NE(node.cell, "");
      EXPECT_GT(node.flops, 0);
      steps += static_cast<int>(node.runs);
    }
  }
  EXPECT_EQ(steps, 8);  // of two layers
}

TEST_F(TraceTest, NamesAModelThatRunsWhole) {
  const std::string file = WriteFile(folder_ / "m.onnx", DoublingModel().Bytes());
  ASSERT_TRUE(engine_->LoadModel("doubling", file, {}).ok());
  engine_->StartTrace();
  Tensor x = Tensor::Allocate(DType::kFloat, {2, 4});
  std::fill_n(x.data<float>(), x.size(), 1.0f);
  const std::set<RequestId> asked = Ask("doubling", {{{"x", x}}, {{"x", x}}, {{"x", x}}});
  std::map<std::string, int64_t> cells;
  EXPECT_EQ(Check(engine_->StopTrace(), &cells), asked);
  EXPECT_EQ(cells, (std::map<std::string, int64_t>{{"doubling", 6}}));
}

TEST_F(TraceTest, ALoopOfManyStepsTakesNoMoreThanItMay) {
  testing::ModelBuilder m(17);
  m.Input("trips", testing::kInt64, {}).Input("x", testing::kFloat, {1}).Output("y");
  testing::GraphProtoBuilder body(m.Node("Loop", {"trips", "", "x"}, {"y"}).Body("body"));
  body.Input("i", testing::kInt64, {}).Input("go", testing::kBool, {});
  body.Input("s", testing::kFloat, {1}).Output("still", testing::kBool).Output("next");
  body.Node("Identity", {"go"}, {"still"});
  body.Node("Cos", {"s"}, {"next"});
  ASSERT_TRUE(engine_->LoadModel("m", WriteFile(folder_ / "m.onnx", m.Bytes()), {}).ok());
  const auto traced = [&](int64_t trips) {
    engine_->StartTrace({.max_bytes = 100'000, .nodes = true});
    Ask("m", {{{"trips", Tensor::Scalar(trips)}, {"x", Tensor::Of<float>({1}, {0.5F})}}});
    return engine_->StopTrace();
  };
  const Trace few = traced(1000);
  EXPECT_EQ(few.tasks, 1u);
  EXPECT_EQ(few.dropped, 0u);
  EXPECT_EQ(few.nodes.size(), 2u);  // Loop and Cos
  const Trace many = traced(20'000);
  EXPECT_EQ(many.tasks, 0u);
  EXPECT_EQ(many.dropped, 1u);
  EXPECT_TRUE(many.nodes.empty());
}

TEST_F(TraceTest, SaysWhatDidNotFit) {
  const std::string file = WriteFile(folder_ / "m.onnx", TokenClassifier().Bytes());
  ASSERT_TRUE(engine_->LoadModel("m", file, {}).ok());
  engine_->StartTrace({.max_bytes = 200});
  for (int i = 0; i < 10; ++i) Ask("m", {{{"x", Tokens(30)}}});
  const Trace trace = engine_->StopTrace();
  EXPECT_GT(trace.tasks, 0u);
  EXPECT_LT(trace.tasks, 5u);
  EXPECT_GE(trace.tasks + trace.dropped, 50u);  // five cells a request
}

}  // namespace
}  // namespace chairlift
