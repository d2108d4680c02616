// A pipeline's output as scores of classes, between 0 and 1.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_PIPELINE_CLASSES_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_PIPELINE_CLASSES_H_

#include "engine/programs/pipeline/pipeline_config.h"
#include "engine/requests/validate.h"

namespace chairlift {

// Checks that the output exists and is float32 [rows, classes].
Status CheckClasses(const ClassesConfig& config, const Signature& wired);

// For logits [rows, classes]: a softmax per row or, if several classes may apply, sigmoids.
StatusOr<Tensor> ClassScores(const ClassesConfig& config, const Tensor& logits);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_PIPELINE_CLASSES_H_
