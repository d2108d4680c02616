// Sequence models: the form of requests that share batches, and a request for timing.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_SEQUENCE_SIGNATURE_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_SEQUENCE_SIGNATURE_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/requests/validate.h"
#include "graph/ragged/ragged.h"

namespace chairlift {

// For a model that can run ragged. `num_inputs`: of the original.
SequenceSignature SequencesOf(const RaggedModel& ragged, size_t num_inputs);
// The same for all of its requests. `original`: as imported. `max_rows`: as in Signature.
Signature PackedSignature(const RaggedModel& ragged, const Graph& original, int max_rows);

// Whether the sequences of a request may run in different batches: no value of the packed model
// spans a whole request, as dynamic scales do.
bool SequencesAreApart(std::span<const RaggedInput> inputs);

// `rows` sequences of `length` tokens, all ones: every token is valid, and 1 is in every
// vocabulary. Other varying dimensions are 1. It fits `signature`, which has `sequences` set.
ValidatedRequest OnesRequest(const Signature& signature, int32_t rows, int32_t length);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_SEQUENCE_SIGNATURE_H_
