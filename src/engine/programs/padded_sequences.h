// Whether requests of different lengths may share a padded batch: what a mask input must be good
// for.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_PADDED_SEQUENCES_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_PADDED_SEQUENCES_H_

#include <string>

#include "engine/requests/validate.h"
#include "graph/ragged/ragged.h"
#include "runtime/executable.h"

namespace chairlift {

// What requests to a model that can run ragged look like, where it is proved that a batch of them
// may be padded at the end with zeros. Unimplemented says why it is not.
StatusOr<SequenceSignature> ProvedPadding(const RaggedModel& ragged, const Executable& executable);

// The same where it is not proved, and the input of that name is trusted to hide
// what is padded. It is tried on a few requests, alone and beside another, which may show that the
// trust is misplaced (InvalidArgument), and not that it is not.
StatusOr<SequenceSignature> TrustedPadding(const std::string& mask, Executable& executable);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_PADDED_SEQUENCES_H_
