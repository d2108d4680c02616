// Policies by name, and what all of them refuse.
#include "batching/policy.h"

#include <gmock/gmock.h>

#include "base/status.h"

namespace chairlift {
namespace {

using std::chrono::microseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Refusal(std::string_view policy, const PolicyOptions& options) {
  const Status status = MakeScheduler(policy, options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << policy;
  return Message(status);
}

TEST(PolicyTest, AnUnknownPolicyIsRefusedWithTheKnownOnes) {
  EXPECT_THAT(Refusal("bus", {}), AllOf(HasSubstr("'bus'"), HasSubstr("'none', 'window'")));
}

TEST(PolicyTest, OptionsOutOfRangeAreRefusedByNameWhateverThePolicy) {
  for (const PolicyInfo& policy : KnownPolicies()) {
    const auto refusal = [&](const PolicyOptions& options) {
      return Refusal(policy.name, options);
    };
    EXPECT_THAT(refusal({.max_batch_size = 0}), HasSubstr("max_batch_size is 0"));
    EXPECT_THAT(refusal({.queue_delay = microseconds(-1)}), HasSubstr("queue_delay_us is -1"));
    EXPECT_THAT(refusal({.latency_objective = microseconds(-2)}),
                HasSubstr("latency_objective_us is -2; it must be at least 0"));
    EXPECT_THAT(refusal({.workers = 0}), HasSubstr("workers is 0"));
    EXPECT_THAT(refusal({.max_tasks_to_submit = 0}), HasSubstr("max_tasks_to_submit is 0"));
    EXPECT_THAT(refusal({.buffer_pairs = 0}), HasSubstr("buffer_pairs is 0"));
    EXPECT_THAT(refusal({.bucket_width = 0}), HasSubstr("bucket_width is 0"));
    EXPECT_THAT(refusal({.max_batch_size = 4, .cell_types = {{}, {.min_batch_size = 5}}}),
                HasSubstr("cell type 1 are 5 to 4"));
  }
}

}  // namespace
}  // namespace chairlift
