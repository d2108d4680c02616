// One of several implementations of a family of kernels: it accepts a problem, or refuses it with a
// reason (as in oneDNN). Dispatch, tests and bench/kernels.cc all use the table of a family.
#ifndef CHAIRLIFT_OPS_IMPLEMENTATIONS_H_
#define CHAIRLIFT_OPS_IMPLEMENTATIONS_H_

#include <memory>
#include <span>

#include "base/status.h"
#include "ops/operator.h"

namespace chairlift {

template <typename Problem>
struct Implementation {
  const char* name;
  // Unimplemented is a refusal; its message follows the name: "winograd: its kernel is 5x5".
  StatusOr<std::unique_ptr<Kernel>> (*compile)(const Problem&, const CompileContext&);
};

// The first entry of the table that accepts. The last refusal if none does.
template <typename Problem>
StatusOr<std::unique_ptr<Kernel>> CompileFirst(std::span<const Implementation<Problem>> table,
                                               const Problem& problem,
                                               const CompileContext& context) {
  KernelChoice* choice = context.choice;
  Status refusal = NotFound("there is no such implementation");
  for (const Implementation<Problem>& implementation : table) {
    if (choice != nullptr && !choice->only.empty() && choice->only != implementation.name) continue;
    auto kernel = implementation.compile(problem, context);
    if (!kernel.ok() && kernel.status().code() == absl::StatusCode::kUnimplemented) {
      refusal = kernel.status();
      if (choice != nullptr) choice->refused.push_back({implementation.name, Message(refusal)});
      continue;
    }
    if (choice != nullptr) choice->taken = implementation.name;
    return kernel;
  }
  return refusal;
}

}  // namespace chairlift

#endif  // CHAIRLIFT_OPS_IMPLEMENTATIONS_H_
