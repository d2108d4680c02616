#include <gtest/gtest.h>

#include <set>

#include "ops/operator_harness.h"

namespace chairlift {
namespace {

TEST(OperatorRegistryTest, EveryOperatorIsListedOnceAndCanInferAndCompute) {
  std::set<std::pair<std::string, std::string>> seen;
  for (const OperatorDef* def : OperatorRegistry::Builtin().All()) {
    EXPECT_TRUE(seen.emplace(def->domain, def->name).second) << def->name;
    EXPECT_NE(def->infer, nullptr) << def->name;
  }
}

}  // namespace
}  // namespace chairlift
