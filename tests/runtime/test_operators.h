// Small operators for testing the runtime by itself.
#ifndef CHAIRLIFT_TESTS_RUNTIME_TEST_OPERATORS_H_
#define CHAIRLIFT_TESTS_RUNTIME_TEST_OPERATORS_H_

#include <cstring>

#include "ops/operator.h"

namespace chairlift::testing {

// y = a + b, float, where b has a's shape or one element.
inline const OperatorDef& TestAdd() {
  static const OperatorDef kDef{
      .domain = "test",
      .name = "Add",
      .min_inputs = 2,
      .max_inputs = 2,
      .input_types = {TypeSet{DType::kFloat}},
      .infer = [](InferContext& c) -> Status {
        c.set_output(0, c.dtype(0), c.shape(0));
        return absl::OkStatus();
      },
      .compile = [](const CompileContext& c) -> StatusOr<std::unique_ptr<Kernel>> {
        const int64_t n = c.inputs[0].size();
        const int64_t step = c.inputs[1].size() == n ? 1 : 0;
        if (step == 0 && c.inputs[1].size() != 1) {
          return InvalidArgument("cannot add {} to {}", c.inputs[1].shape.ToString(),
                                 c.inputs[0].shape.ToString());
        }
        return MakeKernel([n, step](const KernelArgs& args) -> Status {
          const auto* a = static_cast<const float*>(args.inputs[0]);
          const auto* b = static_cast<const float*>(args.inputs[1]);
          auto* y = static_cast<float*>(args.outputs[0]);
          for (int64_t i = 0; i < n; ++i) y[i] = a[i] + b[i * step];
          return absl::OkStatus();
        });
      },
      .in_place = true};
  return kDef;
}

// y = [sum of x], float.
inline const OperatorDef& TestSum() {
  static const OperatorDef kDef{
      .domain = "test",
      .name = "Sum",
      .input_types = {TypeSet{DType::kFloat}},
      .infer = [](InferContext& c) -> Status {
        c.set_output(0, c.dtype(0), SymbolicShape(Shape{1}));
        return absl::OkStatus();
      },
      .compile = [](const CompileContext& c) -> StatusOr<std::unique_ptr<Kernel>> {
        const int64_t n = c.inputs[0].size();
        return MakeKernel([n](const KernelArgs& args) -> Status {
          float sum = 0;
          for (int64_t i = 0; i < n; ++i) sum += static_cast<const float*>(args.inputs[0])[i];
          *static_cast<float*>(args.outputs[0]) = sum;
          return absl::OkStatus();
        });
      }};
  return kDef;
}

// y = x with the elements that are not positive left out: a shape only data can tell.
inline const OperatorDef& TestPositive() {
  static const OperatorDef kDef{
      .domain = "test",
      .name = "Positive",
      .input_types = {TypeSet{DType::kFloat}},
      .infer = [](InferContext& c) -> Status {
        c.set_output(0, c.dtype(0), SymbolicShape::OfRank(1));
        return absl::OkStatus();
      },
      .evaluate = [](const EvaluateContext& c) -> StatusOr<std::vector<Tensor>> {
        std::vector<float> kept;
        for (float v : c.inputs[0].values<float>()) {
          if (v > 0) kept.push_back(v);
        }
        return std::vector<Tensor>{
            Tensor::Of<float>(Shape{static_cast<int64_t>(kept.size())}, kept)};
      }};
  return kDef;
}

// y = [x's only element < limit], bool.
inline const OperatorDef& TestBelow() {
  static const OperatorDef kDef{
      .domain = "test",
      .name = "Below",
      .input_types = {TypeSet{DType::kFloat}},
      .infer = [](InferContext& c) -> Status {
        c.set_output(0, DType::kBool, c.shape(0));
        return absl::OkStatus();
      },
      .compile = [](const CompileContext& c) -> StatusOr<std::unique_ptr<Kernel>> {
        const float limit = c.attributes.Float("limit", 0);
        return MakeKernel([limit](const KernelArgs& args) -> Status {
          *static_cast<bool*>(args.outputs[0]) = *static_cast<const float*>(args.inputs[0]) < limit;
          return absl::OkStatus();
        });
      }};
  return kDef;
}

// y = x flattened: a view.
inline const OperatorDef& TestFlatten() {
  static const OperatorDef kDef{.domain = "test",
                                .name = "Flatten",
                                .input_types = {TypeSet{DType::kFloat}},
                                .infer = [](InferContext& c) -> Status {
                                  const SymbolicShape& x = c.shape(0);
                                  c.set_output(0, c.dtype(0),
                                               x.concrete()
                                                   ? SymbolicShape(Shape{x.ToShape().NumElements()})
                                                   : SymbolicShape::OfRank(1));
                                  return absl::OkStatus();
                                },
                                .is_view = true};
  return kDef;
}

inline const OperatorDef& ControlOp(const char* name) {
  constexpr auto infer = [](InferContext&) { return absl::OkStatus(); };
  static const auto* const kDefs =
      new std::vector<OperatorDef>{{.name = "If", .infer = infer, .runs_bodies = true},
                                   {.name = "Loop", .infer = infer, .runs_bodies = true},
                                   {.name = "Scan", .infer = infer, .runs_bodies = true}};
  for (const OperatorDef& def : *kDefs) {
    if (def.name == name) return def;
  }
  std::abort();
}

}  // namespace chairlift::testing

#endif  // CHAIRLIFT_TESTS_RUNTIME_TEST_OPERATORS_H_
