// Graphs built by hand in tests.
#ifndef CHAIRLIFT_TESTS_GRAPH_GRAPH_BUILDER_H_
#define CHAIRLIFT_TESTS_GRAPH_GRAPH_BUILDER_H_

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "graph/ir.h"

namespace chairlift::testing {

class GraphBuilder {
 public:
  ValueId Input(std::string name, DType dtype, SymbolicShape shape) {
    const ValueId id = graph_.AddValue({.name = std::move(name), .dtype = dtype, .shape = shape});
    graph_.inputs.push_back(id);
    return id;
  }
  // An input read from the enclosing graph; after all formal inputs.
  ValueId Capture(DType dtype, SymbolicShape shape) {
    ++graph_.num_captures;
    return Input("capture" + std::to_string(graph_.num_captures), dtype, std::move(shape));
  }
  ValueId Constant(Tensor t) {
    Value v{.name = "constant" + std::to_string(graph_.values.size()),
            .dtype = t.dtype(),
            .shape = SymbolicShape(t.shape())};
    v.constant = std::move(t);
    return graph_.AddValue(std::move(v));
  }
  std::vector<ValueId> Call(const OperatorDef& def, std::vector<ValueId> inputs, int num_outputs,
                            Attributes attributes = {}) {
    Node node;
    node.name = def.name + std::to_string(graph_.nodes.size());
    node.def = &def;
    node.attributes = std::move(attributes);
    node.inputs = std::move(inputs);
    for (int i = 0; i < num_outputs; ++i) {
      node.outputs.push_back(graph_.AddValue({.name = node.name + "_" + std::to_string(i)}));
    }
    graph_.nodes.push_back(node);
    return node.outputs;
  }
  // A builtin operator with one output.
  ValueId Op(const std::string& name, std::vector<ValueId> inputs, Attributes attributes = {},
             const std::string& domain = "") {
    const OperatorDef* def = OperatorRegistry::Builtin().Find(domain, name);
    if (def == nullptr) {
      fprintf(stderr, "no operator %s\n", name.c_str());
      abort();
    }
    return Call(*def, std::move(inputs), 1, std::move(attributes))[0];
  }
  ValueId Op(const OperatorDef& def, std::vector<ValueId> inputs, Attributes attributes = {}) {
    return Call(def, std::move(inputs), 1, std::move(attributes))[0];
  }
  void Output(ValueId id) { graph_.outputs.push_back(id); }
  Value& value(ValueId id) { return graph_.values[id]; }

  Graph Build() && { return std::move(graph_); }
  std::shared_ptr<const Graph> BuildShared() && {
    return std::make_shared<const Graph>(std::move(graph_));
  }

 private:
  Graph graph_;
};

inline Attributes Attrs(std::initializer_list<std::pair<std::string, AttributeValue>> values) {
  Attributes attributes;
  for (const auto& [name, value] : values) attributes.Set(name, value);
  return attributes;
}

}  // namespace chairlift::testing

#endif  // CHAIRLIFT_TESTS_GRAPH_GRAPH_BUILDER_H_
