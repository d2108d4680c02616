// A request to time a model of sequences with.
#ifndef CHAIRLIFT_ENGINE_ONES_REQUEST_H_
#define CHAIRLIFT_ENGINE_ONES_REQUEST_H_

#include <cstdint>
#include <memory>

#include "engine/request.h"

namespace chairlift {

// `rows` sequences of `length` tokens, all ones: every token counts, and 1 is a token of any
// vocabulary. Dimensions that vary otherwise are 1. It fits `signature`, whose `sequences` are
// told.
std::unique_ptr<Request> OnesRequest(const Signature& signature, int32_t rows, int32_t length);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_ONES_REQUEST_H_
