// Ensembles of decision trees as the rules of ai.onnx.ml read them: one form for every operator and
// every kind of branch.
#ifndef CHAIRLIFT_GRAPH_ONNX_CONTRIB_TREES_H_
#define CHAIRLIFT_GRAPH_ONNX_CONTRIB_TREES_H_

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/onnx/contrib/maker.h"

namespace chairlift::contrib {

enum class BranchMode : uint8_t { kLeaf, kLeq, kLt, kGte, kGt, kEq, kNeq, kMember };

// A node as the file has it.
struct TreeNode {
  BranchMode mode = BranchMode::kLeaf;
  int64_t feature = 0;
  double value = 0;
  std::vector<double> members = {};  // of kMember
  int64_t on_true = 0, on_false = 0;
  bool missing_is_true = false;  // NaN leads to on_true
};

// The weights of one leaf: (result, weight), in the order of the file.
using LeafWeights = std::vector<std::pair<int64_t, double>>;

struct TreeEnsembleSpec {
  std::vector<TreeNode> nodes;
  std::vector<int64_t> roots;
  std::vector<LeafWeights> leaves;  // by node; empty for branches
  int64_t results = 1;
};

enum class TreeAggregate : uint8_t { kSum, kAverage, kMin, kMax };

// The aggregated weights of the leaves that each row of input 0 reaches, [rows, results]. They are
// float64 if the input is, otherwise float32.
ValueId AggregateTrees(Maker& make, const TreeEnsembleSpec& spec, TreeAggregate aggregate);

}  // namespace chairlift::contrib

#endif  // CHAIRLIFT_GRAPH_ONNX_CONTRIB_TREES_H_
