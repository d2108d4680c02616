// Whether requests of different lengths may share a padded batch: what a mask input must be good
// for.
#ifndef CHAIRLIFT_ENGINE_PADDED_SEQUENCES_H_
#define CHAIRLIFT_ENGINE_PADDED_SEQUENCES_H_

#include "engine/signature.h"
#include "graph/ragged/ragged.h"
#include "runtime/executable.h"

namespace chairlift {

// What requests to the model look like, where a batch of them may be padded at the end with zeros.
// Where the model can run ragged, that is proved; where it cannot, a model with an input whose name
// holds "mask" is tried: requests alone against the same padded, beside another. Unimplemented says
// why not. `batches`: requests of equal shapes are known to be able to share a batch.
StatusOr<SequenceSignature> FindPadding(const StatusOr<RaggedModel>& ragged, bool batches,
                                        Executable& executable);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PADDED_SEQUENCES_H_
