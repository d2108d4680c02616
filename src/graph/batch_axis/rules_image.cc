// Operators on images that take sizes, which may depend on the batch.
#include <algorithm>

#include "graph/batch_axis/rule.h"

namespace chairlift::batch_axis {
namespace {

Status Resize(Context& c) {
  const State& x = c.in(0);
  if (!x.rows()) return MixesRows();
  if (c.attributes().String("coordinate_transformation_mode", "half_pixel") ==
      "tf_crop_and_resize") {
    return Unimplemented("it crops");
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(const Dims dims, c.DimsOf(0));
  const std::vector<int64_t> axes = c.attributes().Ints("axes");
  const auto rank = static_cast<int64_t>(dims.size());
  for (size_t i = 0; i < (axes.empty() ? dims.size() : axes.size()); ++i) {
    // The entry for the rows' dimension, if any.
    const int64_t axis = axes.empty() ? static_cast<int64_t>(i) : axes[i];
    if ((axis < 0 ? axis + rank : axis) != x.axis) continue;
    if (c.has(3)) {
      const Dims* sizes = c.Elements(3);
      if (sizes == nullptr || sizes->size() <= i ||
          !((*sizes)[i] == dims[static_cast<size_t>(x.axis)])) {
        return MixesRows();
      }
      if (c.attributes().String("keep_aspect_ratio_policy", "stretch") != "stretch") {
        return Unimplemented("it scales the batch as other dimensions");
      }
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
    const Dims* sizes = c.Elements(3);
    if (sizes == nullptr) return Unimplemented("the sizes it is given cannot be followed");
    for (size_t i = 0; i < sizes->size(); ++i) {
      const int64_t axis = axes.empty() ? static_cast<int64_t>(i) : axes.size() > i ? axes[i] : -1;
      if ((axis < 0 ? axis + rank : axis) != x.axis && (*sizes)[i].batch() > 0) return MixesRows();
    }
  }
  c.Set(0, x);
  return absl::OkStatus();
}

// One grid per row, for as many rows as the size argument says.
Status AffineGrid(Context& c) {
  const Dims* size = c.Elements(1);
  if (!c.in(0).rows() || c.in(0).axis != 0 || size == nullptr) return MixesRows();
  CHAIRLIFT_ASSIGN_OR_RETURN(const Dims dims, c.DimsOf(0));
  for (size_t i = 0; i < size->size(); ++i) {
    if (i == 0 ? !((*size)[0] == dims[0]) : (*size)[i].batch() > 0) return MixesRows();
  }
  c.Set(0, c.in(0));
  return absl::OkStatus();
}

}  // namespace

void AddImageRules(RuleTable& rules) {
  rules["AffineGrid"] = AffineGrid;
  rules["Resize"] = Resize;
}

}  // namespace chairlift::batch_axis
