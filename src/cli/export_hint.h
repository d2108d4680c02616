// How to export a model again so that its requests share batches.
#ifndef CHAIRLIFT_CLI_EXPORT_HINT_H_
#define CHAIRLIFT_CLI_EXPORT_HINT_H_

#include <cstdint>
#include <string>

#include "chairlift/engine.h"

namespace chairlift {

// Whether the model is an ONNX graph whose requests run one by one.
bool RunsOneByOne(const ModelMetadata& metadata);

// The size of the batch that the file fixes for all inputs and outputs; 0: it fixes none.
int64_t FixedBatch(const ModelMetadata& metadata);

// For a model that RunsOneByOne(): what would have its requests share batches.
std::string ExportHint(const ModelMetadata& metadata);

}  // namespace chairlift

#endif  // CHAIRLIFT_CLI_EXPORT_HINT_H_
