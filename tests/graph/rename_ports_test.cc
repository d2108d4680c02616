#include "graph/rename_ports.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "graph/graph_builder.h"

namespace chairlift {
namespace rename_ports_test {

using ::testing::ElementsAre;
using testing::GraphBuilder;
using ::testing::HasSubstr;

using Names = std::map<std::string, std::string>;

// k_0, k_12 and ids; out_0 = -k_0, out_12 = -k_12, `kept` between.
Graph Model() {
  GraphBuilder b;
  for (const char* name : {"k_0", "k_12"}) {
    const ValueId input = b.Input(name, DType::kFloat, SymbolicShape(Shape{3}));
    b.Output(b.Op("Neg", {b.Op("Abs", {input})}));
  }
  b.Output(b.Op("Neg", {b.Input("ids", DType::kFloat, SymbolicShape(Shape{3}))}));
  Graph graph = std::move(b).Build();
  const auto name = [&](ValueId id, const char* to) {
    graph.values[static_cast<size_t>(id)].name = to;
  };
  name(graph.outputs[0], "out_0");
  name(graph.outputs[1], "out_12");
  name(graph.outputs[2], "scores");
  name(graph.nodes[0].outputs[0], "kept");
  return graph;
}

std::vector<std::string> NamesOf(const Graph& graph, const std::vector<ValueId>& ids) {
  std::vector<std::string> names;
  for (const ValueId id : ids) names.push_back(graph.values[static_cast<size_t>(id)].name);
  return names;
}

std::string Refusal(const Names& names) {
  Graph graph = Model();
  return std::string(RenamePorts(graph, names).message());
}

TEST(RenamePortsTest, NamesAndNumbersOfNamesAreReplaced) {
  Graph graph = Model();
  const Status status = RenamePorts(graph, {{"ids", "input_ids"},
                                            {"k_{i}", "past.{i}.key"},
                                            {"out_{i}", "present.{i}.key"},
                                            {"out_12", "last"}});
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(NamesOf(graph, graph.inputs), ElementsAre("past.0.key", "past.12.key", "input_ids"));
  EXPECT_THAT(NamesOf(graph, graph.outputs), ElementsAre("present.0.key", "last", "scores"));
}

TEST(RenamePortsTest, NamesMayBeExchanged) {
  Graph graph = Model();
  ASSERT_TRUE(RenamePorts(graph, {{"ids", "scores"}, {"scores", "ids"}}).ok());
  EXPECT_EQ(NamesOf(graph, graph.inputs)[2], "scores");
  EXPECT_EQ(NamesOf(graph, graph.outputs)[2], "ids");
}

TEST(RenamePortsTest, WhatDoesNotFitIsRefusedByName) {
  EXPECT_THAT(Refusal({{"idz", "input_ids"}}), HasSubstr("no input or output 'idz'; did you mean"));
  EXPECT_THAT(Refusal({{"kept", "other"}}), HasSubstr("no input or output 'kept'"));
  EXPECT_THAT(Refusal({{"v_{i}", "past.{i}"}}), HasSubstr("no input or output 'v_{i}'"));
  EXPECT_THAT(Refusal({{"k_{i}", "past"}}), HasSubstr("must have {i} as often"));
  EXPECT_THAT(Refusal({{"k_{i}{i}", "past{i}{i}"}}), HasSubstr("once at most"));
  EXPECT_THAT(Refusal({{"k_{i}", "a{i}"}, {"k_1{i}", "b{i}"}}), HasSubstr("fits both"));
  EXPECT_THAT(Refusal({{"ids", "scores"}}), HasSubstr("'ids' cannot become 'scores'"));
  EXPECT_THAT(Refusal({{"ids", "kept"}}), HasSubstr("'ids' cannot become 'kept'"));
  EXPECT_THAT(Refusal({{"ids", "x"}, {"scores", "x"}}), HasSubstr("cannot become 'x'"));
}

}  // namespace rename_ports_test
}  // namespace chairlift
