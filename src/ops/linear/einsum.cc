// Einsum: operands are contracted pair by pair, each pair as one batched matrix product.
#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <set>
#include <type_traits>
#include <utility>

#include "base/stop_poll.h"
#include "ops/axis_map.h"
#include "ops/linear/einsum_equation.h"
#include "ops/linear/linear.h"
#include "ops/linear/product.h"

namespace chairlift {
namespace {

using LabelList = std::vector<EinsumLabel>;
using LabelSizes = std::map<EinsumLabel, int64_t>;

// A tensor with labelled axes: an input of the node, or an intermediate in scratch memory.
struct View {
  int input = -1;         // −1: in scratch
  size_t scratch_at = 0;  // bytes
  LabelList labels;       // without repetition
  std::map<EinsumLabel, int64_t> strides;

  bool Has(EinsumLabel label) const { return strides.count(label) != 0; }
  int64_t Stride(EinsumLabel label) const {
    const auto it = strides.find(label);
    return it == strides.end() ? 0 : it->second;
  }
};

int64_t SizeOf(const LabelList& labels, const LabelSizes& sizes) {
  int64_t size = 1;
  for (EinsumLabel label : labels) size *= sizes.at(label);
  return size;
}

// Loops over labels, outermost first.
struct Loop {
  int64_t size = 0, stride = 0;
};
std::vector<Loop> Loops(const LabelList& labels, const View& view, const LabelSizes& sizes) {
  std::vector<Loop> loops;
  for (EinsumLabel label : labels) loops.push_back({sizes.at(label), view.Stride(label)});
  return loops;
}

// The stride of `labels` traversed as one axis, or nullopt if they are not evenly spaced.
std::optional<int64_t> Collapsed(const LabelList& labels, const View& view,
                                 const LabelSizes& sizes) {
  std::optional<int64_t> stride;
  int64_t next = 0;
  for (size_t i = labels.size(); i-- > 0;) {
    const int64_t size = sizes.at(labels[i]);
    if (size == 1) continue;
    if (!stride.has_value()) {
      stride = next = view.Stride(labels[i]);
    } else if (view.Stride(labels[i]) != next) {
      return std::nullopt;
    }
    next *= size;
  }
  return stride.value_or(1);
}

// Sums over `summed` and writes the rest densely in the order of `kept`.
struct GatherStep {
  View from;
  std::vector<Loop> kept, summed;
};
// C = A·B, written to scratch memory or the output.
struct ProductStep {
  View a, b;
  std::unique_ptr<Kernel> kernel;
};
struct Step {
  std::optional<GatherStep> gather;
  std::optional<ProductStep> product;
  bool to_output = false;
  size_t scratch_at = 0;
};

constexpr int kMaxLoops = 64;

// Calls f(offset) for every combination, the last loop innermost, until `stopped()`.
template <typename F, typename Stopped>
void ForEach(const std::vector<Loop>& loops, const F& f, const Stopped& stopped) {
  std::array<int64_t, kMaxLoops> index{};
  int64_t count = 1, offset = 0;
  for (const Loop& loop : loops) count *= loop.size;
  for (int64_t i = 0; i < count && !stopped(); ++i) {
    f(offset);
    for (size_t axis = loops.size(); axis-- > 0;) {
      offset += loops[axis].stride;
      if (++index[axis] < loops[axis].size) break;
      offset -= loops[axis].stride * loops[axis].size;
      index[axis] = 0;
    }
  }
}

template <typename F>
void ForEach(const std::vector<Loop>& loops, const F& f) {
  ForEach(loops, f, [] { return false; });
}

template <typename T>
void Gather(const GatherStep& step, const T* from, T* to, StopPoll& poll) {
  using Wide = std::conditional_t<
      std::is_floating_point_v<T>, double,
      std::make_unsigned_t<std::conditional_t<std::is_floating_point_v<T>, int, T>>>;
  if (step.summed.empty()) {
    ForEach(step.kept, [&](int64_t offset) { *to++ = from[offset]; });
    return;
  }
  const auto stopped = [&] { return poll.Stopped(4); };
  const auto sum_at = [&](int64_t offset) {
    Wide sum = 0;
    ForEach(
        step.summed, [&](int64_t more) { sum += static_cast<Wide>(from[offset + more]); }, stopped);
    *to++ = static_cast<T>(sum);
  };
  ForEach(step.kept, sum_at, stopped);
}

class EinsumKernel final : public Kernel {
 public:
  EinsumKernel(DType dtype, std::vector<Step> steps, size_t own_bytes, size_t product_bytes)
      : dtype_(dtype),
        steps_(std::move(steps)),
        own_bytes_(own_bytes),
        product_bytes_(product_bytes) {}

  size_t scratch_bytes() const override { return own_bytes_ + product_bytes_; }

  Status Run(const KernelArgs& args) const override {
    auto* scratch = static_cast<char*>(args.scratch);
    const auto data = [&](const View& view) {
      return view.input >= 0 ? args.inputs[view.input] : scratch + view.scratch_at;
    };
    StopPoll poll;
    for (const Step& step : steps_) {
      void* to = step.to_output ? args.outputs[0] : scratch + step.scratch_at;
      if (step.gather.has_value()) {
        CHAIRLIFT_RETURN_IF_ERROR(DispatchNumeric(dtype_, [&]<typename T>() -> Status {
          Gather(*step.gather, static_cast<const T*>(data(step.gather->from)), static_cast<T*>(to),
                 poll);
          return poll.Result();
        }));
        continue;
      }
      const void* const inputs[] = {data(step.product->a), data(step.product->b)};
      void* const outputs[] = {to};
      CHAIRLIFT_RETURN_IF_ERROR(step.product->kernel->Run(
          {inputs, outputs, scratch + own_bytes_, args.team, args.worker}));
    }
    return absl::OkStatus();
  }

 private:
  DType dtype_;
  std::vector<Step> steps_;
  size_t own_bytes_, product_bytes_;
};

// Turns an equation into steps.
class Planner {
 public:
  Planner(const CompileContext& context, LabelSizes sizes)
      : context_(context), dtype_(context.inputs[0].dtype), sizes_(std::move(sizes)) {}

  // `view` with only the labels in `wanted`; the others are summed.
  View Sum(const View& view, const std::set<EinsumLabel>& wanted) {
    LabelList kept, summed;
    for (EinsumLabel label : view.labels) {
      (wanted.count(label) != 0 ? kept : summed).push_back(label);
    }
    return summed.empty() ? view : Dense(view, kept, summed, false);
  }

  // A dense copy in the order of `kept`.
  View Dense(const View& view, const LabelList& kept, const LabelList& summed, bool to_output) {
    Step step;
    step.gather = GatherStep{view, Loops(kept, view, sizes_), Loops(summed, view, sizes_)};
    return Append(std::move(step), kept, to_output);
  }

  // The product of two views, summed over the labels that are not in `wanted`.
  StatusOr<View> Contract(View a, View b, const std::set<EinsumLabel>& wanted,
                          const LabelList& result_if_last) {
    LabelList batch, rows, columns, inner;
    for (EinsumLabel label : a.labels) {
      if (wanted.count(label) == 0) {
        inner.push_back(label);
      } else {
        (b.Has(label) ? batch : rows).push_back(label);
      }
    }
    for (EinsumLabel label : b.labels) {
      if (!a.Has(label)) columns.push_back(label);
    }
    // Uses the result's own order of rows, columns or batches if possible.
    const auto by_result = [&](LabelList& labels) {
      std::stable_sort(labels.begin(), labels.end(), [&](EinsumLabel x, EinsumLabel y) {
        const auto at = [&](EinsumLabel l) {
          return std::find(result_if_last.begin(), result_if_last.end(), l);
        };
        return at(x) < at(y);
      });
    };
    by_result(batch);
    by_result(rows);
    by_result(columns);
    const auto joined = [](LabelList x, const LabelList& y, const LabelList& z) {
      x.insert(x.end(), y.begin(), y.end());
      x.insert(x.end(), z.begin(), z.end());
      return x;
    };
    if (!Collapsed(rows, a, sizes_) || !Collapsed(inner, a, sizes_)) {
      a = Dense(a, joined(batch, rows, inner), {}, false);
    }
    if (!Collapsed(columns, b, sizes_) || !Collapsed(inner, b, sizes_)) {
      b = Dense(b, joined(batch, inner, columns), {}, false);
    }
    Shape result;
    for (EinsumLabel label : joined(batch, rows, columns)) result.Append(sizes_.at(label));
    CHAIRLIFT_RETURN_IF_ERROR(result.Checked(DTypeSize(dtype_)).status());
    Product p;
    p.dtype = dtype_;
    p.m = SizeOf(rows, sizes_);
    p.k = SizeOf(inner, sizes_);
    p.n = SizeOf(columns, sizes_);
    p.a_row_stride = *Collapsed(rows, a, sizes_);
    p.a_k_stride = *Collapsed(inner, a, sizes_);
    p.b_k_stride = *Collapsed(inner, b, sizes_);
    p.b_n_stride = *Collapsed(columns, b, sizes_);
    ForEach(Loops(batch, a, sizes_), [&](int64_t offset) { p.a_offsets.push_back(offset); });
    ForEach(Loops(batch, b, sizes_), [&](int64_t offset) { p.b_offsets.push_back(offset); });
    const Tensor* const constants[] = {nullptr,
                                       b.input >= 0 ? context_.constant(b.input) : nullptr};
    const CompileContext product_context{context_.attributes, context_.inputs,  context_.outputs,
                                         constants,           context_.weights, context_.width};
    Step step;
    const LabelList order = joined(batch, rows, columns);
    CHAIRLIFT_ASSIGN_OR_RETURN(auto kernel, CompileProduct(std::move(p), product_context));
    product_bytes_ = std::max(product_bytes_, kernel->scratch_bytes());
    step.product = ProductStep{std::move(a), std::move(b), std::move(kernel)};
    return Append(std::move(step), order, !result_if_last.empty() && order == result_if_last);
  }

  std::unique_ptr<Kernel> Finish() {
    return std::make_unique<EinsumKernel>(dtype_, std::move(steps_), scratch_bytes_,
                                          product_bytes_);
  }
  bool written() const { return !steps_.empty() && steps_.back().to_output; }

 private:
  View Append(Step step, const LabelList& order, bool to_output) {
    View view;
    view.labels = order;
    int64_t stride = 1;
    for (size_t i = order.size(); i-- > 0;) {
      view.strides[order[i]] = stride;
      stride *= sizes_.at(order[i]);
    }
    step.to_output = to_output;
    if (!to_output) {
      view.scratch_at = step.scratch_at = scratch_bytes_;
      scratch_bytes_ += (static_cast<size_t>(stride) * DTypeSize(dtype_) + 63) / 64 * 64;
    }
    steps_.push_back(std::move(step));
    return view;
  }

  const CompileContext& context_;
  DType dtype_;
  LabelSizes sizes_;
  std::vector<Step> steps_;
  size_t scratch_bytes_ = 0, product_bytes_ = 0;
};

StatusOr<EinsumEquation> EquationOf(const Attributes& attributes, std::span<const int> ranks) {
  const std::string text = attributes.String("equation", "");
  if (text.empty()) return InvalidArgument("Einsum needs an equation");
  CHAIRLIFT_ASSIGN_OR_RETURN(EinsumEquation equation, EinsumEquation::Parse(text, ranks));
  std::set<EinsumLabel> all;
  for (const LabelList& labels : equation.operands) all.insert(labels.begin(), labels.end());
  if (all.size() > kMaxLoops) return InvalidArgument("Einsum: more than {} axes", kMaxLoops);
  return equation;
}

Status InferEinsum(InferContext& context) {
  std::vector<int> ranks;
  for (int i = 0; i < context.num_inputs(); ++i) {
    if (context.dtype(i) != context.dtype(0)) {
      return InvalidArgument("Einsum: operand {} is {} but operand 0 is {}", i,
                             DTypeName(context.dtype(i)), DTypeName(context.dtype(0)));
    }
    if (!context.shape(i).has_rank()) {
      context.set_output(0, context.dtype(0), SymbolicShape());
      return absl::OkStatus();
    }
    ranks.push_back(context.shape(i).rank());
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(const EinsumEquation equation,
                             EquationOf(context.attributes(), ranks));
  std::map<EinsumLabel, Dim> dims;
  for (int i = 0; i < context.num_inputs(); ++i) {
    for (int axis = 0; axis < ranks[i]; ++axis) {
      const Dim& dim = context.shape(i)[axis];
      const auto [it, fresh] = dims.emplace(equation.operands[i][axis], dim);
      Dim& known = it->second;
      if (fresh || (dim.known() && dim.value() == 1)) continue;
      if (known.known() && known.value() != 1 && dim.known() && dim.value() != known.value()) {
        return InvalidArgument("Einsum: axis {} of operand {} has {} elements, elsewhere {}", axis,
                               i, dim.ToString(), known.ToString());
      }
      known = known.known() && known.value() == 1 ? dim : MergeDims(known, dim);
    }
  }
  SymbolicShape out = SymbolicShape::Scalar();
  for (EinsumLabel label : equation.result) out.Append(dims.at(label));
  context.set_output(0, context.dtype(0), std::move(out));
  return absl::OkStatus();
}

StatusOr<std::unique_ptr<Kernel>> CompileEinsum(const CompileContext& context) {
  std::vector<int> ranks;
  for (const TensorDesc& input : context.inputs) ranks.push_back(input.shape.rank());
  CHAIRLIFT_ASSIGN_OR_RETURN(const EinsumEquation equation, EquationOf(context.attributes, ranks));
  LabelSizes sizes;
  std::vector<View> views;
  for (size_t i = 0; i < context.inputs.size(); ++i) {
    const Shape& shape = context.inputs[i].shape;
    View view;
    view.input = static_cast<int>(i);
    int64_t stride = 1;
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      const EinsumLabel label = equation.operands[i][axis];
      int64_t& size = sizes.emplace(label, 1).first->second;
      if (shape[axis] != 1) size = shape[axis];
      if (!view.Has(label)) view.labels.insert(view.labels.begin(), label);
      // A repeated label traverses the diagonal; an axis of one is repeated as needed.
      view.strides[label] += shape[axis] == 1 ? 0 : stride;
      stride *= shape[axis];
    }
    views.push_back(std::move(view));
  }
  if (context.outputs[0].size() == 0) {
    return MakeKernel([](const KernelArgs&) { return absl::OkStatus(); });
  }
  Planner planner(context, sizes);
  const std::set<EinsumLabel> result(equation.result.begin(), equation.result.end());
  // Labels that operands from i on, or the result, still need.
  const auto wanted_from = [&](size_t i) {
    std::set<EinsumLabel> wanted = result;
    for (; i < views.size(); ++i) wanted.insert(views[i].labels.begin(), views[i].labels.end());
    return wanted;
  };
  View left = views[0];
  for (size_t i = 1; i < views.size(); ++i) {
    std::set<EinsumLabel> wanted = wanted_from(i + 1), for_left = wanted, for_right = wanted;
    for_left.insert(views[i].labels.begin(), views[i].labels.end());
    for_right.insert(left.labels.begin(), left.labels.end());
    left = planner.Sum(left, for_left);
    const View right = planner.Sum(views[i], for_right);
    CHAIRLIFT_ASSIGN_OR_RETURN(
        left, planner.Contract(left, right, wanted,
                               i + 1 == views.size() ? equation.result : LabelList()));
  }
  if (!planner.written()) {
    LabelList summed;
    for (EinsumLabel label : left.labels) {
      if (result.count(label) == 0) summed.push_back(label);
    }
    planner.Dense(left, equation.result, summed, true);
  }
  return planner.Finish();
}

StatusOr<AxisMap> EinsumAxes(const InferContext& context) {
  std::vector<int> ranks;
  for (int i = 0; i < context.num_inputs(); ++i) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const int rank, KnownRank(context, i));
    ranks.push_back(rank);
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(EinsumEquation equation, EquationOf(context.attributes(), ranks));
  // Labels that are summed over, or are on a diagonal, are not in the map.
  const auto kept = [&](EinsumLabel label) {
    return std::count(equation.result.begin(), equation.result.end(), label) == 1 &&
           std::all_of(equation.operands.begin(), equation.operands.end(), [&](const auto& labels) {
             return std::count(labels.begin(), labels.end(), label) <= 1;
           });
  };
  AxisMap map = MakeAxisMap(context);
  const auto fill = [&](const std::vector<EinsumLabel>& labels, AxisMap::Operand& operand) {
    for (const EinsumLabel label : labels) {
      operand.labels.push_back(kept(label) ? label : AxisMap::kNone);
    }
  };
  for (size_t i = 0; i < map.inputs.size(); ++i) fill(equation.operands[i], map.inputs[i]);
  fill(equation.result, map.outputs[0]);
  return map;
}

}  // namespace

void RegisterEinsum(OperatorRegistry& registry) {
  OperatorDef def;
  def.name = "Einsum";
  def.max_inputs = OperatorDef::kVariadic;
  def.input_types = {kFloatTypes |
                     TypeSet{DType::kInt32, DType::kInt64, DType::kUInt32, DType::kUInt64}};
  def.infer = InferEinsum;
  def.axes = EinsumAxes;
  def.compile = CompileEinsum;
  registry.Add(std::move(def));
}

}  // namespace chairlift
