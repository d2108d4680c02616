// Cells as users write them, small, and a plain way to run one.
#ifndef CHAIRLIFT_TESTS_ENGINE_CELL_MODELS_H_
#define CHAIRLIFT_TESTS_ENGINE_CELL_MODELS_H_

#include "device/cpu/team.h"
#include "engine/test_models.h"
#include "runtime/executable.h"

namespace chairlift::testing {

inline constexpr int64_t kHidden = 12;
inline constexpr int64_t kVocabulary = 9;
inline constexpr int64_t kClasses = 3;

// h_next and c_next from `x` [batch, features], h and c.
inline void AppendLstm(GraphProtoBuilder& m, const std::string& x, int64_t features,
                       unsigned seed) {
  RandomWeights(m, "w", {features + kHidden, 4 * kHidden}, seed);
  RandomWeights(m, "b", {4 * kHidden}, seed + 1);
  m.Node("Concat", {x, "h"}, {"xh"}).Int("axis", 1);
  m.Node("MatMul", {"xh", "w"}, {"product"});
  m.Node("Add", {"product", "b"}, {"gates"});
  m.Ints("sizes", {kHidden, kHidden, kHidden, kHidden});
  m.Node("Split", {"gates", "sizes"}, {"gi", "gf", "gg", "go"}).Int("axis", 1);
  m.Node("Sigmoid", {"gi"}, {"i"});
  m.Node("Sigmoid", {"gf"}, {"f"});
  m.Node("Tanh", {"gg"}, {"g"});
  m.Node("Sigmoid", {"go"}, {"o"});
  m.Node("Mul", {"f", "c"}, {"kept"});
  m.Node("Mul", {"i", "g"}, {"added"});
  m.Node("Add", {"kept", "added"}, {"c_next"});
  m.Node("Tanh", {"c_next"}, {"t"});
  m.Node("Mul", {"o", "t"}, {"h_next"});
}

// token [batch], h, c → embedding → h_next, c_next.
inline ModelBuilder EncoderCell(unsigned seed = 1) {
  ModelBuilder m(17);
  m.Input("token", kInt64, {"batch"})
      .Input("h", kFloat, {"batch", kHidden})
      .Input("c", kFloat, {"batch", kHidden})
      .Output("h_next", kFloat, {"batch", kHidden})
      .Output("c_next", kFloat, {"batch", kHidden});
  RandomWeights(m, "table", {kVocabulary, 5}, seed + 10);
  m.Node("Gather", {"table", "token"}, {"x"});
  AppendLstm(m, "x", 5, seed);
  return m;
}

// The same, and the likeliest next token.
inline ModelBuilder DecoderCell(unsigned seed = 33) {
  ModelBuilder m(17);
  m.Input("token", kInt64, {"batch"})
      .Input("h", kFloat, {"batch", kHidden})
      .Input("c", kFloat, {"batch", kHidden})
      .Output("h_next", kFloat, {"batch", kHidden})
      .Output("c_next", kFloat, {"batch", kHidden})
      .Output("next", kInt64, {"batch"});
  RandomWeights(m, "table", {kVocabulary, 5}, seed + 10);
  RandomWeights(m, "v", {kHidden, kVocabulary}, seed + 11);
  m.Node("Gather", {"table", "token"}, {"x"});
  AppendLstm(m, "x", 5, seed);
  m.Node("MatMul", {"h_next", "v"}, {"logits"});
  m.Node("ArgMax", {"logits"}, {"next"}).Int("axis", 1).Int("keepdims", 0);
  return m;
}

// token [batch] → h, c.
inline ModelBuilder LeafCell() {
  ModelBuilder m(17);
  m.Input("token", kInt64, {"batch"})
      .Output("h", kFloat, {"batch", kHidden})
      .Output("c", kFloat, {"batch", kHidden});
  RandomWeights(m, "table", {kVocabulary, kHidden}, 51);
  m.Node("Gather", {"table", "token"}, {"c"});
  m.Node("Tanh", {"c"}, {"h"});
  return m;
}

// The children's states → h, c.
inline ModelBuilder InternalCell() {
  ModelBuilder m(17);
  for (const char* input : {"h_left", "h_right", "c_left", "c_right"}) {
    m.Input(input, kFloat, {"batch", kHidden});
  }
  m.Output("h", kFloat, {"batch", kHidden}).Output("c", kFloat, {"batch", kHidden});
  RandomWeights(m, "w", {2 * kHidden, 2 * kHidden}, 61);
  m.Node("Concat", {"h_left", "h_right"}, {"children"}).Int("axis", 1);
  m.Node("MatMul", {"children", "w"}, {"gates"});
  m.Ints("sizes", {kHidden, kHidden});
  m.Node("Split", {"gates", "sizes"}, {"gf", "go"}).Int("axis", 1);
  m.Node("Sigmoid", {"gf"}, {"f"});
  m.Node("Sigmoid", {"go"}, {"o"});
  m.Node("Mul", {"f", "c_left"}, {"kept"});
  m.Node("Sub", {"kept", "c_right"}, {"c"});  // left and right are told apart
  m.Node("Tanh", {"c"}, {"t"});
  m.Node("Mul", {"o", "t"}, {"h"});
  return m;
}

// state [batch, kHidden] → logits.
inline ModelBuilder ClassesCell() {
  ModelBuilder m(17);
  m.Input("state", kFloat, {"batch", kHidden}).Output("logits", kFloat, {"batch", kClasses});
  RandomWeights(m, "v", {kHidden, kClasses}, 71);
  m.Node("MatMul", {"state", "v"}, {"logits"});
  return m;
}

// y = x: rows of different requests cannot be told apart by it, as it sums over them.
inline ModelBuilder MixingCell() {
  ModelBuilder m(17);
  m.Input("x", kFloat, {"batch", 4}).Output("y", kFloat);
  m.Node("ReduceSum", {"x"}, {"sum"}).Int("keepdims", 1);
  m.Node("Add", {"x", "sum"}, {"y"});
  return m;
}

// A cell on one row at a time, by itself.
class PlainCell {
 public:
  explicit PlainCell(const ModelBuilder& model) {
    auto imported = model.Import();
    EXPECT_TRUE(imported.ok()) << imported.status();
    if (!imported.ok()) return;
    auto made = Executable::Create(std::move(imported->graph), {});
    EXPECT_TRUE(made.ok()) << made.status();
    if (made.ok()) executable_ = *std::move(made);
  }
  std::vector<Tensor> operator()(const std::vector<Tensor>& inputs) {
    auto outputs = executable_->Run(inputs, team_, 0, arena_);
    EXPECT_TRUE(outputs.ok()) << outputs.status();
    return outputs.ok() ? *std::move(outputs) : std::vector<Tensor>(8);
  }

 private:
  std::unique_ptr<Executable> executable_;
  SoloTeam team_;
  Arena arena_;
};

// The unfolding of EncoderCell and DecoderCell in a model.yaml, to be closed by go, eos and so on.
#define CHAIRLIFT_SEQ2SEQ_YAML                                               \
  "unfold:\n"                                                                \
  "  seq2seq:\n"                                                             \
  "    encoder:\n"                                                           \
  "      cell: encoder\n"                                                    \
  "      tokens: {input: token, request: source}\n"                          \
  "      states: [{input: h, output: h_next}, {input: c, output: c_next}]\n" \
  "    decoder:\n"                                                           \
  "      cell: decoder\n"                                                    \
  "      token: {input: token, output: next}\n"                              \
  "      states:\n"                                                          \
  "        - {input: h, output: h_next, initial: h_next}\n"                  \
  "        - {input: c, output: c_next, initial: c_next}\n"

}  // namespace chairlift::testing

#endif  // CHAIRLIFT_TESTS_ENGINE_CELL_MODELS_H_
