#include "server/http/site_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace chairlift::http {
namespace site_policy_test {

using ::testing::HasSubstr;

TEST(SitePolicyTest, ClientsThatAreNoBrowsersNameTheAddressOrLocalhost) {
  const SitePolicy policy(true, {"Models.Example"}, {});
  for (const char* host :
       {"localhost", "localhost:8000", "LOCALHOST", "a.localhost", "127.0.0.1", "127.0.0.1:8000",
        "[::1]", "[::1]:8000", "10.1.2.3:80", "models.example:8000", ""}) {
    EXPECT_EQ(policy.Refusal(host, ""), "") << host;
  }
  for (const char* host : {"evil.example", "evil.example:8000", "localhost.evil.example", "127.1",
                           "1.2.3.4.evil.example", "notlocalhost", "[evil]", ":8000"}) {
    EXPECT_THAT(policy.Refusal(host, ""), HasSubstr("--allowed-host")) << host;
  }
}

TEST(SitePolicyTest, OnOtherAddressesAnyNameMayBeTheServersOwn) {
  const SitePolicy policy(false, {}, {});
  EXPECT_EQ(policy.Refusal("chairlift.internal:8000", ""), "");
  // A browser's request may come from a page that gave itself that name.
  EXPECT_THAT(policy.Refusal("evil.example:8000", "http://evil.example:8000"),
              HasSubstr("evil.example"));
  EXPECT_EQ(policy.Refusal("10.1.2.3:8000", "http://10.1.2.3:8000"), "");
}

TEST(SitePolicyTest, PagesOfOtherSitesAreRefused) {
  const SitePolicy policy(true, {}, {"https://panel.example", "*"});
  for (const char* origin : {"http://evil.example", "null", "*", "http://localhost:3000",
                             "https://panel.example.evil", "file://", "http://127.0.0.1"}) {
    EXPECT_THAT(policy.Refusal("127.0.0.1:8000", origin), HasSubstr("--cors-allow-origin"))
        << origin;
  }
  EXPECT_EQ(policy.Refusal("127.0.0.1:8000", "https://panel.example"), "");
  EXPECT_EQ(policy.Refusal("127.0.0.1:8000", "http://127.0.0.1:8000"), "");
  EXPECT_EQ(policy.Refusal("localhost:80", "http://localhost"), "");
  EXPECT_EQ(policy.Refusal("localhost", "https://localhost:443"), "");
  EXPECT_THAT(policy.Refusal("evil.example", "http://evil.example"), HasSubstr("--allowed-host"));
}

}  // namespace site_policy_test
}  // namespace chairlift::http
