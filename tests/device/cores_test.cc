// Where workers go, for machines this test does not run on.
#include "device/cpu/cores.h"

#include <gmock/gmock.h>

#include <string>

namespace chairlift {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string RefusalOf(int workers, const std::vector<int>& cores) {
  const Status status = PlaceWorkers(workers, cores, {0, 1, 4, 5}, std::nullopt).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(CoresTest, OneWorkerPinnedToEachAllowedCore) {
  const auto placement = PlaceWorkers(0, {}, {2, 3, 5}, std::nullopt);
  EXPECT_EQ(placement->workers, 3);
  EXPECT_THAT(placement->pinned, ElementsAre(2, 3, 5));
}

TEST(CoresTest, AQuotaLimitsWorkersAndLetsThemFloat) {
  const auto placement = PlaceWorkers(0, {}, {0, 1, 2, 3}, 1.5);
  EXPECT_EQ(placement->workers, 2);
  EXPECT_THAT(placement->pinned, IsEmpty());
  EXPECT_EQ(PlaceWorkers(0, {}, {0, 1}, 0.2)->workers, 1);
  EXPECT_EQ(PlaceWorkers(0, {}, {0, 1}, 64.0)->workers, 2);
}

TEST(CoresTest, FewerWorkersThanCoresFloat) {
  const auto placement = PlaceWorkers(2, {}, {0, 1, 2, 3}, std::nullopt);
  EXPECT_EQ(placement->workers, 2);
  EXPECT_THAT(placement->pinned, IsEmpty());
}

TEST(CoresTest, CoresAskedForAreTaken) {
  const auto placement = PlaceWorkers(0, {5, 1}, {0, 1, 4, 5}, 1.0);
  EXPECT_EQ(placement->workers, 2);
  EXPECT_THAT(placement->pinned, ElementsAre(5, 1));
}

TEST(CoresTest, ImpossiblePlacesAreRefused) {
  EXPECT_THAT(RefusalOf(0, {2}), HasSubstr("core 2 is not among"));
  EXPECT_THAT(RefusalOf(0, {1, 1}), HasSubstr("core 1 is listed twice"));
  EXPECT_THAT(RefusalOf(3, {0, 1}), HasSubstr("3 workers for 2 cores"));
  EXPECT_THAT(RefusalOf(-1, {}), HasSubstr("workers is -1"));
  EXPECT_THAT(RefusalOf(257, {}), HasSubstr("workers is 257"));
}

TEST(CoresTest, ReadsCpuMax) {
  EXPECT_EQ(ParseCpuMax("150000 100000\n"), 1.5);
  EXPECT_EQ(ParseCpuMax("max 100000\n"), std::nullopt);
  EXPECT_EQ(ParseCpuMax(""), std::nullopt);
  EXPECT_EQ(ParseCpuMax("-1 0"), std::nullopt);
}

}  // namespace
}  // namespace chairlift
