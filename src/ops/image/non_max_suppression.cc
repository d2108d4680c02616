// NonMaxSuppression: per batch and class, boxes in order of descending score, without those that
// overlap a selected one. Rows of the result are (batch, class, box).
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/stop_poll.h"
#include "ops/axes.h"
#include "ops/image/image.h"

namespace chairlift {
namespace {

Status InferNonMaxSuppression(InferContext& context) {
  const SymbolicShape& boxes = context.shape(0);
  const SymbolicShape& scores = context.shape(1);
  if (boxes.has_rank() && (boxes.rank() != 3 || (boxes[2].known() && boxes[2].value() != 4))) {
    return InvalidArgument("boxes must be [batch,count,4], not {}", boxes.ToString());
  }
  if (scores.has_rank() && scores.rank() != 3) {
    return InvalidArgument("scores must be [batch,classes,count], not {}", scores.ToString());
  }
  const int64_t format = context.attributes().Int("center_point_box", 0);
  if (format != 0 && format != 1) {
    return InvalidArgument("center_point_box {} is not 0 or 1", format);
  }
  return SetOutput(context, 0, DType::kInt64, SymbolicShape(std::vector<Dim>{Dim::Unknown(), 3}));
}

struct Box {
  float y0, x0, y1, x1;
  float area() const { return (y1 - y0) * (x1 - x0); }
};

Box MakeBox(const float* b, bool center) {
  if (center) {
    return {b[1] - b[3] / 2, b[0] - b[2] / 2, b[1] + b[3] / 2, b[0] + b[2] / 2};
  }
  return {std::min(b[0], b[2]), std::min(b[1], b[3]), std::max(b[0], b[2]), std::max(b[1], b[3])};
}

bool Overlap(const Box& a, const Box& b, float threshold) {
  const float height = std::min(a.y1, b.y1) - std::max(a.y0, b.y0);
  const float width = std::min(a.x1, b.x1) - std::max(a.x0, b.x0);
  if (height <= 0 || width <= 0) return false;
  const float both = height * width;
  const float either = a.area() + b.area() - both;
  if (a.area() <= 0 || b.area() <= 0 || either <= 0) return false;
  return both / either > threshold;
}

StatusOr<float> FloatInput(const EvaluateContext& context, size_t i, float fallback) {
  if (i >= context.inputs.size() || !context.inputs[i].present()) return fallback;
  if (context.inputs[i].size() != 1) return InvalidArgument("input {} must be one number", i);
  return context.inputs[i].data<float>()[0];
}

StatusOr<int64_t> MostBoxes(const EvaluateContext& context) {
  if (context.inputs.size() <= 2 || !context.inputs[2].present()) return 0;
  if (context.inputs[2].size() != 1) return InvalidArgument("input 2 must be one number");
  return context.inputs[2].data<int64_t>()[0];
}

StatusOr<std::vector<Tensor>> EvaluateNonMaxSuppression(const EvaluateContext& context) {
  const Tensor& boxes = context.inputs[0];
  const Tensor& scores = context.inputs[1];
  if (boxes.shape().rank() != 3 || scores.shape().rank() != 3 || boxes.shape()[2] != 4 ||
      boxes.shape()[0] != scores.shape()[0] || boxes.shape()[1] != scores.shape()[2]) {
    return InvalidArgument("boxes {} and scores {} do not fit", boxes.shape().ToString(),
                           scores.shape().ToString());
  }
  CHAIRLIFT_ASSIGN_OR_RETURN(const int64_t most, MostBoxes(context));
  CHAIRLIFT_ASSIGN_OR_RETURN(const float threshold, FloatInput(context, 3, 0));
  if (!(threshold >= 0 && threshold <= 1)) {
    return InvalidArgument("iou_threshold {} is outside [0, 1]", threshold);
  }
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  CHAIRLIFT_ASSIGN_OR_RETURN(const float lowest_score, FloatInput(context, 4, kLowest));
  const bool has_lowest = context.inputs.size() > 4 && context.inputs[4].present();
  const bool center = context.attributes.Int("center_point_box", 0) != 0;
  const int64_t count = boxes.shape()[1];
  std::vector<int64_t> rows;
  std::vector<int64_t> order;
  std::vector<Box> chosen;
  StopPoll poll;
  for (int64_t b = 0; b < scores.shape()[0]; ++b) {
    const float* box = boxes.data<float>() + b * count * 4;
    for (int64_t c = 0; c < scores.shape()[1]; ++c) {
      const float* score = scores.data<float>() + (b * scores.shape()[1] + c) * count;
      order.clear();
      for (int64_t i = 0; i < count; ++i) {
        if (std::isnan(score[i]) || (has_lowest && !(score[i] > lowest_score))) continue;
        order.push_back(i);
      }
      std::stable_sort(order.begin(), order.end(),
                       [&](int64_t x, int64_t y) { return score[x] > score[y]; });
      chosen.clear();
      for (int64_t i : order) {
        if (static_cast<int64_t>(chosen.size()) >= most) break;
        if (poll.Stopped(16 * std::ssize(chosen) + 1)) return StoppedStatus();
        const Box candidate = MakeBox(box + i * 4, center);
        if (std::any_of(chosen.begin(), chosen.end(),
                        [&](const Box& other) { return Overlap(candidate, other, threshold); })) {
          continue;
        }
        chosen.push_back(candidate);
        rows.insert(rows.end(), {b, c, i});
      }
    }
  }
  const auto found = static_cast<int64_t>(rows.size()) / 3;
  return std::vector<Tensor>{Tensor::Of<int64_t>(Shape{found, 3}, rows)};
}

}  // namespace

OperatorDef NonMaxSuppressionOperator() {
  return {.name = "NonMaxSuppression",
          .min_inputs = 2,
          .max_inputs = 5,
          .input_types =
              {{DType::kFloat}, {DType::kFloat}, {DType::kInt64}, {DType::kFloat}, {DType::kFloat}},
          .infer = InferNonMaxSuppression,
          .evaluate = EvaluateNonMaxSuppression};
}

}  // namespace chairlift
