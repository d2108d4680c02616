// Matrix products, convolutions, pooling, and what else works on one image or sequence at a time.
#include <algorithm>
#include <cctype>
#include <sstream>

#include "graph/batch_axis/rule.h"

namespace chairlift::batch_axis {
namespace {

// The product of inputs a and b; all others are shared.
Status Product(Context& c, int a, int b) {
  const State& left = c.in(a);
  const State& right = c.in(b);
  for (int i = 0; i < c.num_inputs(); ++i) {
    if (i != a && i != b && !c.in(i).shared()) {
      return Unimplemented("its input {} depends on the rows", i);
    }
  }
  if (left.sizes() || right.sizes()) return Unimplemented("it computes with the batch size");
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<Extent> a_dims, c.Dims(a));
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<Extent> b_dims, c.Dims(b));
  CHAIRLIFT_ASSIGN_OR_RETURN(const int rank, c.OutputRank(0));
  const int a_rank = static_cast<int>(a_dims.size());
  const int b_rank = static_cast<int>(b_dims.size());
  // Vectors drop a dimension from the result; rows of a matrix times a vector stay rows.
  if (a_rank < 2 || b_rank < 1) return MixesRows();
  if (b_rank == 1) {
    if (right.rows() || left.axis == a_rank - 1) return MixesRows();
    c.Set(0, left);
    return absl::OkStatus();
  }
  const int a_right = a_rank - left.axis;
  const int b_right = b_rank - right.axis;
  if (left.rows() && right.rows()) {
    if (a_right != b_right || a_right <= 2 || !left.SameRows(right)) return MixesRows();
    c.Set(0, left.At(rank - a_right));
    return absl::OkStatus();
  }
  if (left.rows()) {
    if (a_right == 1) return MixesRows();
    if (a_right > 2 && b_rank >= a_right && !b_dims[b_rank - a_right].is_one()) return MixesRows();
    c.Set(0, left.At(rank - a_right));
    return absl::OkStatus();
  }
  if (b_right == 2) return MixesRows();
  if (b_right > 2 && a_rank >= b_right && !a_dims[a_rank - b_right].is_one()) return MixesRows();
  c.Set(0, right.At(rank - b_right));
  return absl::OkStatus();
}

Status MatMul(Context& c) { return Product(c, 0, 1); }
Status QLinearMatMul(Context& c) { return Product(c, 0, 3); }

Status Gemm(Context& c) {
  const State& a = c.in(0);
  const int row_axis = c.attributes().Int("transA", 0) != 0 ? 1 : 0;
  if (!a.rows() || a.axis != row_axis || !c.in(1).shared()) return MixesRows();
  const State& bias = c.in(2);
  if (c.has(2)) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<Extent> dims, c.Dims(2));
    if (bias.rows()) {
      if (dims.size() != 2 || bias.axis != 0 || !bias.SameRows(a)) return MixesRows();
    } else if (!bias.shared() || (dims.size() == 2 && !dims[0].is_one())) {
      return MixesRows();
    }
  }
  c.Set(0, a.At(0));
  return absl::OkStatus();
}

// Entries along dimension 0 of the first input are computed one by one, with shared parameters.
Status OneByOne(Context& c) {
  if (!c.in(0).rows() || c.in(0).axis != 0) return MixesRows();
  if (!c.SharedFrom(1)) return Unimplemented("one of its parameters depends on the rows");
  c.SetAll(c.in(0));
  return absl::OkStatus();
}

Status BatchNormalization(Context& c) {
  if (c.attributes().Int("training_mode", 0) != 0) {
    return Unimplemented("it is in training mode and takes statistics over the batch");
  }
  return OneByOne(c);
}

Status MaxPool(Context& c) {
  // Indices count from the start of the whole tensor, other rows included.
  if (c.num_outputs() > 1 && c.node().outputs[1] != kNoValue) {
    return Unimplemented("its indices count over all rows");
  }
  return OneByOne(c);
}

Status GridSample(Context& c) {
  const State& grid = c.in(1);
  if (!c.in(0).rows() || c.in(0).axis != 0 || !grid.rows() || grid.axis != 0 ||
      !grid.SameRows(c.in(0))) {
    return MixesRows();
  }
  c.Set(0, c.in(0));
  return absl::OkStatus();
}

Status Resize(Context& c) {
  const State& x = c.in(0);
  if (!x.rows() || x.axis != 0) return MixesRows();
  if (c.attributes().String("coordinate_transformation_mode", "half_pixel") ==
      "tf_crop_and_resize") {
    return Unimplemented("it crops");
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::vector<Extent> dims, c.Dims(0));
  const std::vector<int64_t> axes = c.attributes().Ints("axes");
  for (size_t i = 0; i < std::max<size_t>(1, axes.size()); ++i) {
    // The entry that holds dimension 0, if any does.
    if (!axes.empty() && axes[i] != 0 && axes[i] != -static_cast<int64_t>(dims.size())) continue;
    if (c.has(3)) {
      const std::vector<Extent>* sizes = c.Elements(3);
      if (sizes == nullptr || sizes->size() <= i || !((*sizes)[i] == dims[0])) return MixesRows();
    } else {
      if (!c.has(2)) return MixesRows();
      const Value& scales = c.graph().values[c.node().inputs[2]];
      if (!scales.is_constant() || scales.dtype != DType::kFloat ||
          scales.constant.size() <= static_cast<int64_t>(i) ||
          scales.constant.values<float>()[i] != 1.0f) {
        return Unimplemented("its scale along the batch is not known to be 1");
      }
    }
  }
  if (c.has(3)) {
    for (size_t i = 1; i < c.Elements(3)->size(); ++i) {
      if ((*c.Elements(3))[i].batch() > 0) return MixesRows();
    }
  }
  c.Set(0, x);
  return absl::OkStatus();
}

Status Recurrent(Context& c) {
  const bool batch_first = c.attributes().Int("layout", 0) != 0;
  const int axis = batch_first ? 0 : 1;
  const State& x = c.in(0);
  if (!x.rows() || x.axis != axis) return MixesRows();
  for (int i = 1; i < c.num_inputs(); ++i) {
    const State& state = c.in(i);
    const bool by_row = i == 4 || i == 5 || (i == 6 && c.op() == "LSTM");
    if (!by_row) {
      if (!state.shared()) return Unimplemented("its weights depend on the rows");
      continue;
    }
    if (!c.has(i)) continue;
    const int wanted = i == 4 ? 0 : axis;
    if (!state.rows() || state.axis != wanted || !state.SameRows(x)) {
      return Unimplemented("its input {} has a fixed number of rows", i);
    }
  }
  c.SetAll(x.At(axis));
  c.Set(0, x.At(batch_first ? 0 : 2));
  return absl::OkStatus();
}

// Explicit labels only: "bij,bjk->bik".
Status Einsum(Context& c) {
  std::string equation;
  for (char ch : c.attributes().String("equation", "")) {
    if (std::isspace(static_cast<unsigned char>(ch)) == 0) equation += ch;
  }
  const size_t arrow = equation.find("->");
  if (arrow == std::string::npos || equation.find('.') != std::string::npos) {
    return Unimplemented("its equation is not followed");
  }
  const std::string result = equation.substr(arrow + 2);
  std::vector<std::string> terms;
  std::istringstream in(equation.substr(0, arrow));
  for (std::string term; std::getline(in, term, ',');) terms.push_back(term);
  if (static_cast<int>(terms.size()) != c.num_inputs()) {
    return Unimplemented("its equation is not followed");
  }
  const State* rows = nullptr;
  char label = 0;
  for (int i = 0; i < c.num_inputs(); ++i) {
    const State& state = c.in(i);
    if (state.sizes()) return Unimplemented("it computes with the batch size");
    if (!state.rows()) continue;
    if (state.axis >= static_cast<int>(terms[i].size())) return MixesRows();
    if (rows != nullptr && (terms[i][state.axis] != label || !state.SameRows(*rows))) {
      return MixesRows();
    }
    rows = &state;
    label = terms[i][state.axis];
  }
  for (int i = 0; i < c.num_inputs(); ++i) {
    for (size_t d = 0; d < terms[i].size(); ++d) {
      const bool is_rows = c.in(i).rows() && static_cast<int>(d) == c.in(i).axis;
      if (terms[i][d] == label && !is_rows) return MixesRows();
    }
  }
  const size_t axis = result.find(label);
  if (axis == std::string::npos) return MixesRows();
  c.Set(0, rows->At(static_cast<int>(axis)));
  return absl::OkStatus();
}

}  // namespace

void AddLinearRules(RuleTable& rules) {
  for (const char* op :
       {"AveragePool", "Col2Im", "Conv", "ConvInteger", "ConvTranspose", "DepthToSpace",
        "GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool", "GroupNormalization",
        "InstanceNormalization", "LRN", "LpPool", "QLinearConv", "STFT", "SpaceToDepth"}) {
    rules[op] = OneByOne;
  }
  rules["BatchNormalization"] = BatchNormalization;
  rules["Einsum"] = Einsum;
  rules["GRU"] = Recurrent;
  rules["Gemm"] = Gemm;
  rules["GridSample"] = GridSample;
  rules["LSTM"] = Recurrent;
  rules["MatMul"] = MatMul;
  rules["MatMulInteger"] = MatMul;
  rules["MaxPool"] = MaxPool;
  rules["QLinearMatMul"] = QLinearMatMul;
  rules["RNN"] = Recurrent;
  rules["Resize"] = Resize;
}

}  // namespace chairlift::batch_axis
