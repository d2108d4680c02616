// A pipeline's output as scores of classes, which lie between 0 and 1.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_PIPELINE_CLASSES_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_PIPELINE_CLASSES_H_

#include "engine/programs/pipeline/pipeline_config.h"
#include "engine/requests/validate.h"

namespace chairlift {

// That the output is there, and is float32 [rows, classes].
Status CheckClasses(const ClassesConfig& config, const Signature& wired);

// Of logits [rows, classes]: of each row a softmax or, if several classes may hold, sigmoids.
StatusOr<Tensor> ClassScores(const ClassesConfig& config, const Tensor& logits);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_PIPELINE_CLASSES_H_
