// A decoder's steps tried beside the model that they were made from: a guard, no proof.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_TRIAL_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_TRIAL_H_

#include "engine/programs/generating/paged_step.h"
#include "graph/decoders/decoder.h"

namespace chairlift {

// A few tokens, in pieces, beside another sequence, and a step, against the original's prompt and
// step. Unimplemented where the logits differ by more than rounding does.
Status TrySteps(const Graph& original, const DecoderPorts& ports, PagedStep& step);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_GENERATING_TRIAL_H_
