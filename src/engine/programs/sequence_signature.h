// Models of sequences: what requests look like that share batches, and one to time them with.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_SEQUENCE_SIGNATURE_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_SEQUENCE_SIGNATURE_H_

#include <cstddef>
#include <cstdint>

#include "engine/requests/validate.h"
#include "graph/ragged/ragged.h"

namespace chairlift {

// Of a model that can run ragged. `num_inputs`: of the original.
SequenceSignature SequencesOf(const RaggedModel& ragged, size_t num_inputs);
// The same of all of its requests. `original`: as imported. `max_rows`: as Signature has it.
Signature PackedSignature(const RaggedModel& ragged, const Graph& original, int max_rows);

// `rows` sequences of `length` tokens, all ones: every token counts, and 1 is a token of any
// vocabulary. Dimensions that vary otherwise are 1. It fits `signature`, whose `sequences` are set.
ValidatedRequest OnesRequest(const Signature& signature, int32_t rows, int32_t length);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_SEQUENCE_SIGNATURE_H_
