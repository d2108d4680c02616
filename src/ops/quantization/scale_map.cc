#include "ops/quantization/scale_map.h"

#include "ops/axes.h"

namespace chairlift {

StatusOr<ScaleMap> ScaleMap::Make(const Attributes& attributes, const Shape& x,
                                  const Shape& scale) {
  ScaleMap map;
  const int64_t block = attributes.Int("block_size", 0);
  if (block < 0) return InvalidArgument("block_size {} is negative", block);
  if (block == 0 && (scale.rank() == 0 || (scale.rank() == 1 && scale[0] == 1))) {
    map.axis = map.block = x.NumElements();
    map.block = std::max<int64_t>(map.block, 1);
    return map;
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(const int axis, NormalizeAxis(attributes.Int("axis", 1), x.rank()));
  map.outer = x.NumElements(0, axis);
  map.axis = x[axis];
  map.inner = x.NumElements(axis + 1, x.rank());
  if (block == 0) {
    if (scale.rank() != 1 || scale[0] != map.axis) {
      return InvalidArgument("scale {} should have {} entries, one for each index of axis {} of {}",
                             scale.ToString(), map.axis, axis, x.ToString());
    }
    if (map.inner == 1) {
      // Elements along the axis are adjacent: scales advance with them.
      map.inner = map.axis;
      map.axis = 1;
      map.inner_stride = 1;
    } else {
      map.axis_stride = 1;
    }
    return map;
  }
  bool fits = scale.rank() == x.rank();
  for (int i = 0; fits && i < x.rank(); ++i) {
    fits = scale[i] == (i == axis ? (x[i] + block - 1) / block : x[i]);
  }
  if (!fits) {
    return InvalidArgument("scale {} does not fit blocks of {} along axis {} of {}",
                           scale.ToString(), block, axis, x.ToString());
  }
  map.block = block;
  map.outer_stride = scale[axis] * map.inner;
  map.axis_stride = map.inner;
  map.inner_stride = map.inner == 1 ? 0 : 1;
  return map;
}

Status CheckScales(const InferContext& context) {
  const SymbolicShape& x = context.shape(0);
  const SymbolicShape& scale = context.shape(1);
  if (context.has_input(2) && context.shape(2).concrete() && scale.concrete()) {
    const Shape have = context.shape(2).ToShape();
    const Shape want = scale.ToShape();
    // Many exporters treat a scalar and one entry as the same.
    if (!(have == want) && (have.NumElements() != 1 || want.NumElements() != 1)) {
      return InvalidArgument("zero point {} should have the shape of the scale, {}",
                             have.ToString(), want.ToString());
    }
  }
  if (x.concrete() && scale.concrete()) {
    return ScaleMap::Make(context.attributes(), x.ToShape(), scale.ToShape()).status();
  }
  return {};
}

StatusOr<AxisMap> ScaledAxes(const InferContext& context) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const int rank, KnownRank(context, 0));
  AxisMap map = MakeAxisMap(context);
  map.inputs[0].labels = LabelsWithout(rank, {});
  map.outputs[0] = map.inputs[0];
  for (int i = 1; i < context.num_inputs(); ++i) {
    if (!context.has_input(i)) continue;
    CHAIRLIFT_ASSIGN_OR_RETURN(const int own, KnownRank(context, i));
    if (own > 1) return Unimplemented("its scales come in blocks");
    if (own == 0) continue;
    CHAIRLIFT_ASSIGN_OR_RETURN(const int axis,
                               NormalizeAxis(context.attributes().Int("axis", 1), rank));
    map.inputs[static_cast<size_t>(i)] = {.labels = {axis}, .broadcasts = true};
  }
  return map;
}

}  // namespace chairlift
