// Parts that the learners of ai.onnx.ml share: labels, score transformations, numbers that an
// attribute or a tensor gives.
#ifndef CHAIRLIFT_GRAPH_ONNX_CONTRIB_SCORES_H_
#define CHAIRLIFT_GRAPH_ONNX_CONTRIB_SCORES_H_

#include <string>
#include <vector>

#include "graph/onnx/contrib/maker.h"

namespace chairlift::contrib {

// Applies a post_transform, by its name in ONNX, to scores [rows, results].
ValueId Transformed(Maker& make, ValueId scores, const std::string& name);
// Applies the attribute 'post_transform'.
ValueId Transformed(Maker& make, ValueId scores);

// The labels of a classifier, in either of its two attributes, as a constant [classes].
struct Labels {
  ValueId values = kNoValue;
  int64_t count = 0;
};
// `ints` and `strings` name the attributes. Fails if neither or both are given.
Labels ReadLabels(Maker& make, const char* ints, const char* strings);

// Becomes the label at each index: indices are int64 or bool [rows].
Status BecomeLabels(Maker& make, const Labels& labels, ValueId index);

// The numbers of the attribute `name`, or of the tensor attribute `name`_as_tensor.
std::vector<double> Numbers(Maker& make, const std::string& name);

// A tensor attribute as numbers; empty if it is absent.
std::vector<double> TensorNumbers(Maker& make, const std::string& name);

}  // namespace chairlift::contrib

#endif  // CHAIRLIFT_GRAPH_ONNX_CONTRIB_SCORES_H_
