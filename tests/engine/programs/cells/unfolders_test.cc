// Models made of cells answer as a plain loop over the cells does, whichever requests join and
// leave.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <random>

#include "chairlift/engine.h"
#include "engine/cell_models.h"

namespace chairlift {
namespace {

using testing::ClassesCell;
using testing::DecoderCell;
using testing::EncoderCell;
using ::testing::HasSubstr;
using testing::InternalCell;
using testing::kClasses;
using testing::kHidden;
using testing::kVocabulary;
using testing::LeafCell;
using testing::PlainCell;
using testing::TempFolder;
using testing::WriteFile;

using Inputs = std::vector<NamedTensor>;
using Outputs = std::map<std::string, Tensor>;

int64_t Draw(std::mt19937& random, int64_t first, int64_t last) {
  return std::uniform_int_distribution<int64_t>(first, last)(random);
}

Tensor Tokens(const Shape& shape, std::mt19937& random) {
  Tensor tokens = Tensor::Allocate(DType::kInt64, shape);
  for (int64_t i = 0; i < tokens.size(); ++i) {
    tokens.data<int64_t>()[i] = Draw(random, 0, kVocabulary - 1);
  }
  return tokens;
}

Tensor Zeros(const Shape& shape) {
  Tensor zeros = Tensor::Allocate(DType::kFloat, shape);
  std::fill_n(zeros.data<float>(), zeros.size(), 0.0f);
  return zeros;
}

Tensor Token(int64_t token) { return Tensor::Of<int64_t>(Shape{1}, {token}); }

void CopyRow(const Tensor& from, int64_t row, Tensor& to) {
  std::copy_n(from.data<float>(), from.size(), to.data<float>() + row * from.size());
}

void ExpectClose(const InferResponse& got, const Outputs& want) {
  ASSERT_EQ(got.outputs.size(), want.size());
  for (const NamedTensor& output : got.outputs) {
    ASSERT_TRUE(want.contains(output.name)) << output.name;
    const Tensor& g = output.tensor;
    const Tensor& w = want.at(output.name);
    ASSERT_EQ(g.dtype(), w.dtype()) << output.name;
    ASSERT_EQ(g.shape(), w.shape()) << output.name;
    for (int64_t i = 0; i < g.size(); ++i) {
      if (g.dtype() == DType::kInt64) {
        ASSERT_EQ(g.data<int64_t>()[i], w.data<int64_t>()[i]) << output.name << " " << i;
      } else {
        ASSERT_NEAR(g.data<float>()[i], w.data<float>()[i], 5e-6) << output.name << " " << i;
      }
    }
  }
}

class UnfoldersTest : public ::testing::Test {
 protected:
  void Write(const std::string& cell, const testing::ModelBuilder& model) {
    WriteFile(folder_ / ("m/1/" + cell + ".onnx"), model.Bytes());
  }
  Status Load(const std::string& yaml, int workers = 2) {
    yaml_ = yaml;
    WriteFile(folder_ / "m/model.yaml", yaml);
    EngineOptions options;
    options.workers = workers;
    options.autotune = false;
    auto engine = Engine::Create(options);
    if (!engine.ok()) return engine.status();
    engine_ = *std::move(engine);
    const Status added = engine_->AddRepository(folder_.string());
    return added.ok() ? engine_->LoadFromRepository("m") : added;
  }
  StatusOr<InferResponse> Ask(Inputs inputs) {
    return engine_->Infer({.model = "m", .inputs = std::move(inputs)});
  }
  std::string Refusal(Inputs inputs) {
    const Status status = Ask(std::move(inputs)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  }

  // Under every policy that runs cells.
  void Check(const std::function<Inputs(std::mt19937&)>& make,
             const std::function<Outputs(const Inputs&)>& plain) {
    const std::string yaml = yaml_;
    for (const char* policy : {"cellular", "graph_merge", "bucketed"}) {
      SCOPED_TRACE(policy);
      const Status loaded = Load(fmt::format("policy: {}\n{}", policy, yaml));
      ASSERT_TRUE(loaded.ok()) << loaded;
      CheckLoaded(make, plain);
    }
  }
  // Many requests at once, some of them cancelled on the way, against the plain loop.
  void CheckLoaded(const std::function<Inputs(std::mt19937&)>& make,
                   const std::function<Outputs(const Inputs&)>& plain) {
    std::mt19937 random(7);
    std::vector<Inputs> asked;
    std::vector<Outputs> want;
    for (int i = 0; i < 60; ++i) {
      asked.push_back(make(random));
      want.push_back(plain(asked.back()));
    }
    std::mutex mutex;
    std::condition_variable told;
    size_t answered = 0;
    int cancelled = 0, widest = 0;
    for (size_t i = 0; i < asked.size(); ++i) {
      const RequestId id = engine_->InferAsync(
          {.model = "m", .inputs = asked[i]}, [&, i](const StatusOr<InferResponse>& answer) {
            const std::lock_guard<std::mutex> lock(mutex);
            if (answer.ok()) {
              ExpectClose(*answer, want[i]);
              widest = std::max(widest, answer->batch_rows);
            } else {
              EXPECT_TRUE(absl::IsCancelled(answer.status())) << answer.status();
              ++cancelled;
            }
            ++answered;
            told.notify_one();
          });
      if (i % 5 == 3) engine_->Cancel(id);
    }
    std::unique_lock<std::mutex> lock(mutex);
    told.wait(lock, [&] { return answered == asked.size(); });
    EXPECT_GT(widest, 1);
    EXPECT_LE(cancelled, 12);
  }

  TempFolder folder_;
  std::string yaml_;  // as loaded
  std::unique_ptr<Engine> engine_;
};

class ChainTest : public UnfoldersTest {
 protected:
  void SetUp() override {
    Write("step", EncoderCell());
    Write("classes", ClassesCell());
    const Status loaded = Load(R"(
max_batch_size: 16
cells:
  step: {file: step.onnx, max_batch_size: 7}
  classes: {}
unfold:
  chain:
    cell: step
    tokens: {input: token, request: tokens}
    lengths: lengths
    states:
      - {input: h, output: h_next, initial: h0}
      - {input: c, output: c_next}
    outputs:
      - {name: states, output: h_next, at: every_step}
      - {name: memory, output: c_next}
    head: {cell: classes, inputs: {state: h_next}, outputs: [{output: logits}]}
)");
    ASSERT_TRUE(loaded.ok()) << loaded;
  }

  Outputs Plain(const Inputs& inputs) {
    const Tensor &tokens = inputs[0].tensor, &lengths = inputs[1].tensor, &h0 = inputs[2].tensor;
    const int64_t batch = tokens.shape()[0], longest = tokens.shape()[1];
    Tensor states = Zeros({batch, longest, kHidden});
    Tensor memory = Zeros({batch, kHidden}), logits = Zeros({batch, kClasses});
    for (int64_t row = 0; row < batch; ++row) {
      Tensor h = h0.Rows(row, 1), c = Zeros({1, kHidden});
      for (int64_t t = 0; t < lengths.data<int64_t>()[row]; ++t) {
        const auto out = step_({Token(tokens.data<int64_t>()[row * longest + t]), h, c});
        h = out[0];
        c = out[1];
        CopyRow(h, row * longest + t, states);
      }
      CopyRow(c, row, memory);
      CopyRow(classes_({h})[0], row, logits);
    }
    return {{"states", states}, {"memory", memory}, {"logits", logits}};
  }
  static Inputs Make(std::mt19937& random) {
    const int64_t batch = Draw(random, 0, 3), longest = Draw(random, 1, 20);
    Tensor lengths = Tensor::Allocate(DType::kInt64, {batch});
    for (int64_t row = 0; row < batch; ++row) {
      lengths.data<int64_t>()[row] = Draw(random, 1, longest);
    }
    Tensor h0 = Zeros({batch, kHidden});
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < h0.size(); ++i) h0.data<float>()[i] = normal(random);
    return {{"tokens", Tokens({batch, longest}, random)}, {"lengths", lengths}, {"h0", h0}};
  }

  PlainCell step_{EncoderCell()}, classes_{ClassesCell()};
};

TEST_F(ChainTest, AnswersAsAPlainLoop) {
  Check(Make, [this](const Inputs& inputs) { return Plain(inputs); });
}

TEST_F(ChainTest, SaysWhatItTakesAndGives) {
  const auto metadata = engine_->Metadata("m");
  ASSERT_TRUE(metadata.ok());
  ASSERT_EQ(metadata->inputs.size(), 3u);
  EXPECT_EQ(metadata->inputs[0].name, "tokens");
  EXPECT_EQ(metadata->inputs[0].shape, (std::vector<int64_t>{-1, -1}));
  EXPECT_EQ(metadata->inputs[2].shape, (std::vector<int64_t>{-1, kHidden}));
  ASSERT_EQ(metadata->outputs.size(), 3u);
  EXPECT_EQ(metadata->outputs[0].shape, (std::vector<int64_t>{-1, -1, kHidden}));
  EXPECT_EQ(metadata->outputs[2].shape, (std::vector<int64_t>{-1, kClasses}));
  EXPECT_THAT(metadata->diagnosis,
              HasSubstr("made of cells; cellular policy: requests join and leave at every cell; "
                        "rows at most in a task of step: 7, classes: 16"));
}

TEST_F(ChainTest, LengthsThatMakeNoSenseAreRefused) {
  const auto with = [](int64_t length) -> Inputs {
    return {{"tokens", Tensor::Of<int64_t>(Shape{1, 2}, {1, 2})},
            {"lengths", Token(length)},
            {"h0", Zeros({1, kHidden})}};
  };
  EXPECT_TRUE(Ask(with(2)).ok());
  EXPECT_THAT(Refusal(with(3)), HasSubstr("the length of row 0 is 3"));
  EXPECT_THAT(Refusal(with(-1)), HasSubstr("the length of row 0 is -1"));
  EXPECT_THAT(Refusal(with(0)), HasSubstr("row 0 has no tokens"));
}

class Seq2SeqTest : public UnfoldersTest {
 protected:
  static constexpr int64_t kGo = 0, kEos = 4, kExtra = 3;
  void SetUp() override {
    Write("encoder", EncoderCell());
    Write("decoder", DecoderCell());
    const Status loaded = Load(R"(
cells:
  encoder: {}
  decoder: {max_batch_size: 5}
)" CHAIRLIFT_SEQ2SEQ_YAML R"(    lengths: source_lengths
    go: 0
    eos: 4
    extra_length: 3
)");
    ASSERT_TRUE(loaded.ok()) << loaded;
  }

  Outputs Plain(const Inputs& inputs) {
    const Tensor &tokens = inputs[0].tensor, &lengths = inputs[1].tensor;
    const int64_t batch = tokens.shape()[0], longest = tokens.shape()[1];
    std::vector<std::vector<int64_t>> said;
    for (int64_t row = 0; row < batch; ++row) {
      Tensor h = Zeros({1, kHidden}), c = h;
      const int64_t length = lengths.data<int64_t>()[row];
      for (int64_t t = 0; t < length; ++t) {
        const auto out = encoder_({Token(tokens.data<int64_t>()[row * longest + t]), h, c});
        h = out[0];
        c = out[1];
      }
      said.emplace_back();
      int64_t token = kGo;
      while (static_cast<int64_t>(said[row].size()) < length + kExtra) {
        const auto out = decoder_({Token(token), h, c});
        h = out[0];
        c = out[1];
        token = out[2].data<int64_t>()[0];
        if (token == kEos) break;
        said[row].push_back(token);
      }
      ++(token == kEos ? by_eos_ : by_length_);
    }
    size_t widest = 0;
    for (const auto& row : said) widest = std::max(widest, row.size());
    Tensor answer = Tensor::Allocate(DType::kInt64, {batch, static_cast<int64_t>(widest)});
    Tensor counts = Tensor::Allocate(DType::kInt64, {batch});
    std::fill_n(answer.data<int64_t>(), answer.size(), kEos);
    for (size_t row = 0; row < said.size(); ++row) {
      std::copy(said[row].begin(), said[row].end(), answer.data<int64_t>() + row * widest);
      counts.data<int64_t>()[row] = static_cast<int64_t>(said[row].size());
    }
    return {{"tokens", answer}, {"lengths", counts}};
  }
  static Inputs Make(std::mt19937& random) {
    const int64_t batch = Draw(random, 0, 3), longest = Draw(random, 1, 15);
    Tensor lengths = Tensor::Allocate(DType::kInt64, {batch});
    for (int64_t row = 0; row < batch; ++row) {
      lengths.data<int64_t>()[row] = Draw(random, 1, longest);
    }
    return {{"source", Tokens({batch, longest}, random)}, {"source_lengths", lengths}};
  }

  int by_eos_ = 0, by_length_ = 0;
  PlainCell encoder_{EncoderCell()}, decoder_{DecoderCell()};
};

TEST_F(Seq2SeqTest, AnswersAsAPlainLoop) {
  Check(Make, [this](const Inputs& inputs) { return Plain(inputs); });
  EXPECT_GT(by_eos_, 10);
  EXPECT_GT(by_length_, 10);
}

TEST_F(Seq2SeqTest, OneRequestsBadTokenFailsItAlone) {
  std::mutex mutex;
  std::condition_variable told;
  int good = 0, bad = 0;
  for (int i = 0; i < 20; ++i) {
    const bool wrong = i % 4 == 1;
    const Tensor tokens = Tensor::Of<int64_t>(Shape{1, 3}, {1, wrong ? int64_t{99} : 2, 3});
    engine_->InferAsync(
        {.model = "m", .inputs = {{"source", tokens}, {"source_lengths", Token(3)}}},
        [&, wrong](const StatusOr<InferResponse>& answer) {
          const std::lock_guard<std::mutex> lock(mutex);
          EXPECT_EQ(answer.ok(), !wrong) << answer.status();
          ++(wrong ? bad : good);
          told.notify_one();
        });
  }
  std::unique_lock<std::mutex> lock(mutex);
  told.wait(lock, [&] { return good + bad == 20; });
  EXPECT_EQ(bad, 5);
}

TEST_F(Seq2SeqTest, RequestsOfTooManyTokensAreRefusedBeforeTheyCost) {
  Tensor tokens = Tensor::Allocate(DType::kInt64, {1025, 1024});
  std::fill_n(tokens.data<int64_t>(), tokens.size(), 1);
  Tensor lengths = Tensor::Allocate(DType::kInt64, {1025});
  std::fill_n(lengths.data<int64_t>(), lengths.size(), 1);
  const Status status = Ask({{"source", tokens}, {"source_lengths", lengths}}).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("1025 sequences of 1024 tokens"));
}

class TreeTest : public UnfoldersTest {
 protected:
  void SetUp() override {
    Write("leaf", LeafCell());
    Write("internal", InternalCell());
    Write("classes", ClassesCell());
    const Status loaded = Load(R"(
cells:
  leaf: {}
  internal: {}
  classes: {}
unfold:
  tree:
    leaf: leaf
    internal: internal
    tokens: {input: token, request: tokens}
    states:
      h: {leaf: h, internal: h, left: h_left, right: h_right}
      c: {leaf: c, internal: c, left: c_left, right: c_right}
    outputs:
      - {name: memory, state: c, at: every_node}
      - {name: root, state: h}
    head: {cell: classes, inputs: {state: h}, outputs: [{output: logits}]}
)");
    ASSERT_TRUE(loaded.ok()) << loaded;
  }

  Outputs Plain(const Inputs& inputs) {
    const Tensor &tokens = inputs[0].tensor, &children = inputs[1].tensor;
    const int64_t nodes = tokens.shape()[0];
    const int64_t* child = children.data<int64_t>();
    std::vector<std::vector<Tensor>> states(static_cast<size_t>(nodes));
    const std::function<void(int64_t)> compute = [&](int64_t node) {
      const int64_t left = child[2 * node], right = child[2 * node + 1];
      if (left < 0) {
        states[node] = leaf_({Token(tokens.data<int64_t>()[node])});
        return;
      }
      compute(left);
      compute(right);
      states[node] =
          internal_({states[left][0], states[right][0], states[left][1], states[right][1]});
    };
    std::vector<int64_t> roots;
    for (int64_t node = 0; node < nodes; ++node) {
      if (std::find(child, child + 2 * nodes, node) == child + 2 * nodes) roots.push_back(node);
    }
    const auto trees = static_cast<int64_t>(roots.size());
    Tensor memory = Zeros({nodes, kHidden}), root = Zeros({trees, kHidden});
    Tensor logits = Zeros({trees, kClasses});
    for (int64_t tree = 0; tree < trees; ++tree) {
      compute(roots[tree]);
      CopyRow(states[roots[tree]][0], tree, root);
      CopyRow(classes_({states[roots[tree]][0]})[0], tree, logits);
    }
    for (int64_t node = 0; node < nodes; ++node) CopyRow(states[node][1], node, memory);
    return {{"memory", memory}, {"root", root}, {"logits", logits}};
  }
  // Trees of random form, their nodes in any order.
  static Inputs Make(std::mt19937& random) {
    const int64_t leaves = Draw(random, 0, 14);
    const int64_t roots = std::min<int64_t>(leaves, Draw(random, 1, 2));
    const int64_t nodes = std::max<int64_t>(0, 2 * leaves - roots);
    std::vector<int64_t> number(static_cast<size_t>(nodes));
    for (int64_t i = 0; i < nodes; ++i) number[i] = i;
    std::shuffle(number.begin(), number.end(), random);
    Tensor children = Tensor::Allocate(DType::kInt64, {nodes, 2});
    std::fill_n(children.data<int64_t>(), children.size(), -1);
    std::vector<int64_t> open(number.begin(), number.begin() + leaves);
    for (int64_t node = leaves; node < nodes; ++node) {
      for (int side = 0; side < 2; ++side) {
        const auto at = open.begin() + Draw(random, 0, static_cast<int64_t>(open.size()) - 1);
        children.data<int64_t>()[2 * number[node] + side] = *at;
        open.erase(at);
      }
      open.push_back(number[node]);
    }
    return {{"tokens", Tokens({nodes}, random)}, {"children", children}};
  }
  static Inputs Nodes(std::initializer_list<int64_t> children) {
    const auto nodes = static_cast<int64_t>(children.size() / 2);
    Tensor tokens = Tensor::Allocate(DType::kInt64, {nodes});
    std::fill_n(tokens.data<int64_t>(), nodes, 1);
    return {{"tokens", tokens}, {"children", Tensor::Of<int64_t>(Shape{nodes, 2}, children)}};
  }

  PlainCell leaf_{LeafCell()}, internal_{InternalCell()}, classes_{ClassesCell()};
};

TEST_F(TreeTest, AnswersAsARecursion) {
  Check(Make, [this](const Inputs& inputs) { return Plain(inputs); });
}

TEST_F(TreeTest, WhatIsNoTreeIsRefused) {
  EXPECT_THAT(Refusal(Nodes({1, 2, 0, 3, -1, -1, -1, -1})), HasSubstr("descendant of itself"));
  EXPECT_THAT(Refusal(Nodes({0, 1, -1, -1})), HasSubstr("node 0 is a descendant of itself"));
  EXPECT_THAT(Refusal(Nodes({1, 2, -1, -1})), HasSubstr("node 0 has the children 1 and 2"));
  EXPECT_THAT(Refusal(Nodes({1, -1, -1, -1})), HasSubstr("node 0 has the children 1 and -1"));
  EXPECT_THAT(Refusal(Nodes({-2, -2})), HasSubstr("a leaf has -1 and -1"));
  EXPECT_THAT(Refusal(Nodes({INT64_MAX, 1, -1, -1})), HasSubstr("node 0 has the children"));
  EXPECT_THAT(Refusal(Nodes({1, 1, -1, -1})),
              HasSubstr("node 1 is a child of node 0 and of node 0"));
  EXPECT_THAT(Refusal(Nodes({2, 3, 3, 4, -1, -1, -1, -1, -1, -1})),
              HasSubstr("node 3 is a child of node 0 and of node 1"));
}

TEST_F(TreeTest, ATreeAsDeepAsItIsLong) {
  constexpr int64_t kDepth = 100'000;
  Tensor tokens = Tensor::Allocate(DType::kInt64, {2 * kDepth + 1});
  Tensor children = Tensor::Allocate(DType::kInt64, {2 * kDepth + 1, 2});
  std::fill_n(tokens.data<int64_t>(), tokens.size(), 1);
  std::fill_n(children.data<int64_t>(), children.size(), -1);
  for (int64_t node = 0; node < kDepth; ++node) {  // the root first
    children.data<int64_t>()[2 * node] = node + 1;
    children.data<int64_t>()[2 * node + 1] = kDepth + 1 + node;
  }
  // As a circle it is refused; as a tree it is computed, until its time is over.
  Tensor circle = children.Clone();
  circle.data<int64_t>()[2 * (kDepth - 1)] = 0;
  EXPECT_THAT(Refusal({{"tokens", tokens}, {"children", circle}}), HasSubstr("descendant"));
  InferRequest request{.model = "m", .inputs = {{"tokens", tokens}, {"children", children}}};
  request.timeout = std::chrono::milliseconds(300);
  const auto answer = engine_->Infer(std::move(request));
  EXPECT_TRUE(answer.ok() || absl::IsDeadlineExceeded(answer.status())) << answer.status();
  EXPECT_TRUE(Ask(Nodes({1, 2, -1, -1, -1, -1})).ok());
}

}  // namespace
}  // namespace chairlift
