// Axes and dimensions from nodes, checked against the rank or size that they index.
#ifndef CHAIRLIFT_OPS_AXES_H_
#define CHAIRLIFT_OPS_AXES_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "ops/operator.h"
#include "tensor/symbolic_shape.h"

namespace chairlift {

// Converts `axis` from [−rank, rank) to [0, rank).
StatusOr<int> NormalizeAxis(int64_t axis, int rank);
// The same for each of `axes`; an error if one occurs twice.
StatusOr<std::vector<int>> NormalizeAxes(std::span<const int64_t> axes, int rank);

// Attribute `axes`, or all axes if it is missing.
StatusOr<std::vector<int>> AxesOrAll(const Attributes& attributes, int rank);

// Higher ranks are refused where a model can choose a rank freely.
inline constexpr int kMaxRank = 64;

// Sets output i; an error if its known dimensions alone exceed the size of a tensor.
Status SetOutput(InferContext& context, int i, DType dtype, SymbolicShape shape);
// InferContext::elements, or nullopt if there are more than a shape has.
std::optional<std::vector<Dim>> ShapeElements(const InferContext& context, int i);

// The minimum of a symbol and a number, under a name that IsAtMost() recognises.
Dim AtMost(const Dim& symbol, int64_t limit);
// Whether `d` is AtMost(symbol, n) for an n above 1.
bool IsAtMost(const Dim& d, const Dim& symbol);

// `elements` as a tensor of this integer type holds them: those that may not fit it are unknown. A
// size counts as up to 4,096, and each further one that it is multiplied with as up to 256.
std::vector<Dim> ElementsOfType(DType dtype, std::vector<Dim> elements);

// The product of dimensions as one dimension: a number, a symbol, a symbol that combines both
// ("12*batch"), or unknown.
Dim Product(std::span<const Dim> dims);
// The dimension x with product(total) = x × product(parts), if that holds for all values of the
// symbols; otherwise nullopt.
std::optional<Dim> Quotient(std::span<const Dim> total, std::span<const Dim> parts);

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_AXES_H_
