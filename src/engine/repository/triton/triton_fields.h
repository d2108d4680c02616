// What each field of Triton's model configuration does here: one table, which the parser obeys and
// docs/reference/repositories.md shows.
#ifndef CHAIRLIFT_ENGINE_REPOSITORY_TRITON_TRITON_FIELDS_H_
#define CHAIRLIFT_ENGINE_REPOSITORY_TRITON_TRITON_FIELDS_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "chairlift/status.h"

namespace google::protobuf {
class Message;
}

namespace chairlift {

enum class FieldUse {
  kHonoured,
  kRefused,  // it would change an answer, the wire, or who is answered: the load is refused
  kIgnored,  // it changes none of these: the log names it once
};

// Of a field that is refused or ignored, all that is in it is too, and has no rule of its own.
struct FieldRule {
  std::string_view field;  // "ModelInput.format"
  FieldUse use;
  std::string_view text;  // how it is honoured; why it is refused or ignored
};

std::span<const FieldRule> FieldRules();

// Obeys the rules for all that is set in a ModelConfig to something other than its default. Returns
// what is ignored, each field once, with the reason; Unimplemented names a field that is refused,
// why, and what would work.
StatusOr<std::vector<std::string>> ApplyFieldRules(const google::protobuf::Message& config);

// The rules as a table in Markdown.
std::string FieldTable();

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_REPOSITORY_TRITON_TRITON_FIELDS_H_
