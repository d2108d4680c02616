// References for operators that move elements: tensors of random bytes, and element-by-element
// copies by an index formula.
#ifndef CHAIRLIFT_TESTS_OPS_MOVEMENT_NAIVE_H_
#define CHAIRLIFT_TESTS_OPS_MOVEMENT_NAIVE_H_

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "ops/operator_harness.h"

namespace chairlift::testing {

using Index = std::vector<int64_t>;

inline constexpr DType kEveryType[] = {
    DType::kFloat,  DType::kDouble, DType::kFloat16, DType::kBFloat16, DType::kInt8,
    DType::kInt16,  DType::kInt32,  DType::kInt64,   DType::kUInt8,    DType::kUInt16,
    DType::kUInt32, DType::kUInt64, DType::kBool};

inline int64_t Pick(std::mt19937& rng, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(rng);
}

inline Shape RandomShape(std::mt19937& rng, int rank, int64_t low, int64_t high) {
  Shape shape;
  for (int i = 0; i < rank; ++i) shape.Append(Pick(rng, low, high));
  return shape;
}

inline Tensor RandomBytes(std::mt19937& rng, DType dtype, const Shape& shape) {
  Tensor t = Tensor::Allocate(dtype, shape);
  auto* bytes = static_cast<uint8_t*>(t.raw());
  for (size_t i = 0; i < t.byte_size(); ++i) {
    bytes[i] = static_cast<uint8_t>(dtype == DType::kBool ? rng() & 1 : rng() & 255);
  }
  return t;
}

// Indices in [−bound, bound) of int64 or int32.
inline Tensor RandomIndices(std::mt19937& rng, const Shape& shape, int64_t bound, bool wide) {
  Tensor t = Tensor::Allocate(wide ? DType::kInt64 : DType::kInt32, shape);
  for (int64_t i = 0; i < t.size(); ++i) {
    const int64_t v = Pick(rng, -bound, bound - 1);
    if (wide) {
      t.data<int64_t>()[i] = v;
    } else {
      t.data<int32_t>()[i] = static_cast<int32_t>(v);
    }
  }
  return t;
}

// Index i of such a tensor, in [0, bound).
inline int64_t At(const Tensor& t, int64_t i, int64_t bound) {
  const int64_t v = t.dtype() == DType::kInt64 ? t.data<int64_t>()[i] : t.data<int32_t>()[i];
  return v < 0 ? v + bound : v;
}

inline Tensor Ints(const std::vector<int64_t>& values) {
  return Tensor::Of<int64_t>(Shape{static_cast<int64_t>(values.size())}, values);
}

inline int64_t Offset(const Shape& shape, const Index& index) {
  int64_t offset = 0;
  for (int d = 0; d < shape.rank(); ++d) offset = offset * shape[d] + index[d];
  return offset;
}

// Every index of `shape` in row-major order.
inline void ForEachIndex(const Shape& shape, const std::function<void(const Index&)>& body) {
  Index index(shape.rank(), 0);
  for (int64_t n = shape.NumElements(); n > 0; --n) {
    body(index);
    for (int d = shape.rank() - 1; d >= 0; --d) {
      if (++index[d] < shape[d]) break;
      index[d] = 0;
    }
  }
}

// out[i] = in[source(i)].
inline Tensor Moved(const Tensor& in, const Shape& out_shape,
                    const std::function<Index(const Index&)>& source) {
  Tensor out = Tensor::Allocate(in.dtype(), out_shape);
  const size_t bytes = DTypeSize(in.dtype());
  int64_t n = 0;
  ForEachIndex(out_shape, [&](const Index& i) {
    std::memcpy(static_cast<char*>(out.raw()) + bytes * static_cast<size_t>(n++),
                static_cast<const char*>(in.raw()) +
                    bytes * static_cast<size_t>(Offset(in.shape(), source(i))),
                bytes);
  });
  return out;
}

inline void ExpectSame(const Tensor& actual, const Tensor& expected) {
  ASSERT_EQ(actual.dtype(), expected.dtype());
  ASSERT_EQ(actual.shape(), expected.shape())
      << actual.shape().ToString() << " is not " << expected.shape().ToString();
  EXPECT_EQ(std::memcmp(actual.raw(), expected.raw(), actual.byte_size()), 0);
}

// The first output; fails the test where the operator does.
inline Tensor RunOne(const OperatorCall& call, Team* team = nullptr) {
  auto out = RunOperator(call, team);
  EXPECT_TRUE(out.ok()) << call.name << ": " << out.status();
  return out.ok() ? (*out)[0] : Tensor();
}

inline Status ErrorOf(const OperatorCall& call) { return RunOperator(call).status(); }

// A team whose parts run in reverse order under changing worker numbers: wide on one thread.
class ReversedTeam : public Team {
 public:
  int width() const override { return 3; }
  void For(int parts, absl::FunctionRef<void(int, int)> body) override {
    for (int p = parts - 1; p >= 0; --p) body(p, p % 3);
  }
};

// What an operator's shape rule makes of these inputs.
inline StatusOr<std::vector<ValueInfo>> Inferred(const std::string& name,
                                                 const Attributes& attributes,
                                                 const std::vector<ValueInfo>& inputs,
                                                 int num_outputs = 1) {
  const OperatorDef* def = OperatorRegistry::Builtin().Find("", name);
  if (def == nullptr) return NotFound("operator {}", name);
  InferContext context(attributes, inputs, num_outputs);
  CHAIRLIFT_RETURN_IF_ERROR(def->infer(context));
  return context.outputs();
}

inline ValueInfo Symbolic(DType dtype, std::vector<Dim> dims) {
  return {dtype, SymbolicShape(std::move(dims)), nullptr, {}};
}
// A rank-1 int64 tensor with these elements tracked.
inline ValueInfo Tracked(std::vector<Dim> elements) {
  return {DType::kInt64, SymbolicShape(Shape{static_cast<int64_t>(elements.size())}), nullptr,
          std::move(elements)};
}
inline ValueInfo Known(const Tensor& t) { return {t.dtype(), SymbolicShape(t.shape()), &t, {}}; }

inline std::string ShapeOf(const StatusOr<std::vector<ValueInfo>>& infos, int i = 0) {
  return infos.ok() ? (*infos)[i].shape.ToString() : infos.status().ToString();
}
inline std::string ElementsOf(const StatusOr<std::vector<ValueInfo>>& infos, int i = 0) {
  if (!infos.ok()) return infos.status().ToString();
  if (!(*infos)[i].elements) return "none";
  return SymbolicShape(*(*infos)[i].elements).ToString();
}

}  // namespace chairlift::testing

#endif  // CHAIRLIFT_TESTS_OPS_MOVEMENT_NAIVE_H_
