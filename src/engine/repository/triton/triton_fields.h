// The support of each field of Triton's model configuration: one table, used by the parser and
// shown in docs/reference/repositories.md.
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
  // It would change an answer, the protocol, or which requests are answered: the load is refused.
  kRefused,
  kIgnored,  // it has no such effect: logged once
};

// The contents of a refused or ignored field are treated the same, and have no rules.
struct FieldRule {
  std::string_view field;  // "ModelInput.format"
  FieldUse use;
  std::string_view text;  // how it is supported, or why it is refused or ignored
};

std::span<const FieldRule> FieldRules();

// Applies the rules to everything in a ModelConfig that differs from its default. Returns the
// ignored fields, each once, with the reason. Unimplemented has a refused field, the reason, and
// what would work.
StatusOr<std::vector<std::string>> ApplyFieldRules(const google::protobuf::Message& config);

// The rules as a table in Markdown.
std::string FieldTable();

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_REPOSITORY_TRITON_TRITON_FIELDS_H_
