// Random changes to a protobuf message, field by field.
#ifndef CHAIRLIFT_TESTS_FUZZ_PROTO_MUTATOR_H_
#define CHAIRLIFT_TESTS_FUZZ_PROTO_MUTATOR_H_

#include <google/protobuf/message.h>

#include <cstdint>

namespace chairlift::fuzz {

// One to four changes somewhere in the message: a number becomes an interesting one, a string
// another string of the message, an element of a list is removed, repeated or swapped.
void MutateMessage(google::protobuf::Message& message, uint32_t seed);

}  // namespace chairlift::fuzz

#endif  // CHAIRLIFT_TESTS_FUZZ_PROTO_MUTATOR_H_
