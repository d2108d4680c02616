// Whether requests of different lengths may share a padded batch: the requirements on a mask input.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_PADDED_SEQUENCES_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_PADDED_SEQUENCES_H_

#include <string>

#include "engine/requests/validate.h"
#include "graph/ragged/ragged.h"
#include "runtime/executable.h"

namespace chairlift {

// The form of requests to a model that can run packed, if it is proved that a batch may be padded
// at the end with zeros. Unimplemented if it is not proved; the message says why.
StatusOr<SequenceSignature> ProvedPadding(const RaggedModel& ragged, const Executable& executable);

// The same without proof, if the named input is trusted to hide padding. It is tried on a few
// requests, alone and with another one. That may show that the trust is wrong (InvalidArgument),
// but cannot show that it is right.
StatusOr<SequenceSignature> TrustedPadding(const std::string& mask, Executable& executable);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_PADDED_SEQUENCES_H_
