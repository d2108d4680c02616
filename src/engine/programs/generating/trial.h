// Compares a decoder's steps with the model that they were made from: a check, not a proof.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_TRIAL_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_TRIAL_H_

#include "engine/programs/generating/paged_step.h"
#include "engine/programs/generating/source_encoder.h"
#include "graph/decoders/decoder.h"

namespace chairlift {

// A model as imported.
struct OriginalDecoder {
  const Graph& graph;
  const DecoderPorts& ports;
  const Graph* encoder = nullptr;  // of one with a source
};

// Runs a few tokens in parts, together with another sequence, and then a step, and compares with
// the original's prompt and step. Unimplemented if the logits differ by more than rounding.
// `encoder`: for a model that has one.
Status TrySteps(const OriginalDecoder& original, PagedStep& step, SourceEncoder* encoder);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_TRIAL_H_
