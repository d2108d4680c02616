// Adds a file's nodes to a graph: normalises them, checks them against the operator registry, and
// infers shapes on the way, because normalisation needs ranks.
#ifndef CHAIRLIFT_GRAPH_ONNX_GRAPH_BUILDER_H_
#define CHAIRLIFT_GRAPH_ONNX_GRAPH_BUILDER_H_

#include <string>
#include <string_view>
#include <vector>

#include "graph/infer.h"
#include "graph/ir.h"
#include "graph/onnx/normalise.h"
#include "graph/onnx/unique_names.h"

namespace chairlift {

class GraphBuilder : public Rewriter {
 public:
  // `is_body`: a sub-graph, whose inputs may not be known yet; what cannot be inferred now is left
  // for later.
  GraphBuilder(Graph& graph, InferBudget& budget, UniqueNames& value_names, bool is_body)
      : graph_(graph), budget_(budget), value_names_(value_names), is_body_(is_body) {}

  Graph& graph() { return graph_; }
  Status Emit(OnnxNode node);
  // Nodes and values that are added next are part of `node`, which is replaced by them.
  void Begin(const OnnxNode& node);

  ValueInfo info(ValueId id) const override;
  ValueId Constant(const Tensor& tensor) override;
  StatusOr<ValueId> Add(std::string_view op_type, int opset, Attributes attributes,
                        std::vector<ValueId> inputs) override;
  ValueId NewValue() override;
  Status AddBefore(OnnxNode node) override;
  void AddAfter(OnnxNode node) override { after_.push_back(std::move(node)); }

 private:
  Status Append(OnnxNode node);
  // An error if the nodes so far made constants of too many bytes.
  Status CheckConstants() const;
  void InferLenient(Node& node);

  Graph& graph_;
  InferBudget& budget_;
  UniqueNames& value_names_;
  bool is_body_;
  std::string current_;  // the file's node being emitted; used in the names of added nodes
  int made_ = 0;         // number of values made for it
  std::vector<OnnxNode> after_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_GRAPH_ONNX_GRAPH_BUILDER_H_
