// Dimensions that a Reshape joins and splits.
#include "graph/analysis/shapes.h"

#include <gtest/gtest.h>

namespace chairlift::analysis {
namespace {

const Line kLength = Line::Of("length");

Line Times(int64_t n, const Line& line) { return *Line::Product(Line::Number(n), line); }

// "{0,1}→{0} {2}→{1,2}"; "-": none.
std::string Groups(const Dims& from, const Dims& to) {
  const auto groups = GroupAxes(from, to);
  if (!groups) return "-";
  std::string text;
  for (const AxisGroup& group : *groups) {
    const auto run = [](size_t begin, size_t end) {
      std::vector<size_t> axes;
      for (size_t i = begin; i < end; ++i) axes.push_back(i);
      return fmt::format("{{{}}}", fmt::join(axes, ","));
    };
    text += fmt::format("{}{}→{}", text.empty() ? "" : " ", run(group.from, group.from_end),
                        run(group.to, group.to_end));
  }
  return text;
}

TEST(ShapesTest, GroupsOfAxesAreAsShortAsPossible) {
  const Line batch = Line::Batch(), both = *Line::Product(batch, kLength);
  const auto n = Line::Number;
  EXPECT_EQ(Groups({batch, kLength, n(12)}, {both, n(3), n(4)}), "{0,1}→{0} {2}→{1,2}");
  EXPECT_EQ(Groups({both, n(12)}, {batch, kLength, n(12)}), "{0}→{0,1} {1}→{2}");
  EXPECT_EQ(Groups({batch, n(1), kLength}, {batch, kLength}), "{0}→{0} {1,2}→{1}");
  EXPECT_EQ(Groups({batch, n(1)}, {batch, n(1), n(1)}), "{0}→{0} {1}→{1}");
  // Neither divides the other: as many entries, but no axis of its own.
  EXPECT_EQ(Groups({n(4), kLength}, {kLength, n(4)}), "{0,1}→{0,1}");
  EXPECT_EQ(Groups({batch, n(6)}, {Times(2, batch), n(3)}), "{0,1}→{0,1}");
  EXPECT_EQ(Groups({batch, kLength}, {kLength}), "-");
  EXPECT_EQ(Groups({n(0), batch}, {n(0), kLength}), "-");
}

TEST(ShapesTest, OnlyEqualShapesAreReshaped) {
  Node node;
  node.def = OperatorRegistry::Builtin().Find("", "Reshape");
  const Dims from = {Line::Batch(), kLength, Line::Number(12)};
  const auto reshaped = [&](const Dims& given) -> std::string {
    const auto dims = Reshaped(node, from, &given);
    return dims.ok() ? ToString(*dims) : "-";
  };
  EXPECT_EQ(reshaped({Line(), Line(), Line::Number(3), Line::Number(-1)}), "[batch,length,3,4]");
  EXPECT_EQ(reshaped({Line::Number(-1), Line::Number(12)}), "[batch·length,12]");
  EXPECT_EQ(reshaped({Line(), Line::Of("other"), Line::Number(12)}), "[batch,length,12]");
  EXPECT_EQ(reshaped({Line(), Line::Number(-1), Line::Number(5)}), "-");
  EXPECT_EQ(reshaped({Line::Number(-1), Line::Number(-1)}), "-");
}

}  // namespace
}  // namespace chairlift::analysis
