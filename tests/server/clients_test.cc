// Shares of clients, and the least rate of a transfer.
#include "server/protocol/clients.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "server/http/transfer_pace.h"

namespace chairlift::http {
namespace {

using boost::asio::ip::make_address;
using protocol::Client;
using protocol::ClientTable;
using protocol::ErrorKind;
using std::chrono::milliseconds;

TEST(ByteBudgetTest, AShareEndsBeforeTheWholeDoes) {
  const auto whole = std::make_shared<ByteBudget>(100);
  ByteBudget first(60, whole);
  ByteBudget second(60, whole);
  EXPECT_EQ(first.Take(60), nullptr);
  EXPECT_EQ(first.Take(1), &first);
  EXPECT_EQ(second.Take(50), whole.get());
  EXPECT_EQ(second.held(), 0);
  EXPECT_EQ(second.Take(40), nullptr);
  first.Give(60);
  EXPECT_EQ(whole->held(), 40);
  EXPECT_EQ(second.Take(20), nullptr);
  second.Give(60);
  EXPECT_EQ(whole->held(), 0);
}

TEST(ClientTableTest, AnAddressIsOneClientAndSoIsAnIpv6Network) {
  ClientTable table(10, std::make_shared<ByteBudget>(100));
  const auto client = table.Find(make_address("192.0.2.7"));
  EXPECT_EQ(client->name, "192.0.2.7");
  EXPECT_EQ(table.Find(make_address("::ffff:192.0.2.7")), client);
  EXPECT_NE(table.Find(make_address("192.0.2.8")), client);
  const auto network = table.Find(make_address("2001:db8::1"));
  EXPECT_EQ(network->name, "2001:db8::/64");
  EXPECT_EQ(table.Find(make_address("2001:db8::ffff:1")), network);
  EXPECT_NE(table.Find(make_address("2001:db8:0:1::1")), network);
}

TEST(ClientTableTest, ClientsThatAreGoneAreForgotten) {
  ClientTable table(10, std::make_shared<ByteBudget>(100));
  const auto stays = table.Find(make_address("10.0.0.0"));
  for (int i = 1; i < 100'000; ++i) {
    table.Find(boost::asio::ip::address_v4(0x0a000000U + static_cast<unsigned>(i)));
    ASSERT_LE(table.size(), 65U);
  }
  EXPECT_EQ(table.Find(make_address("10.0.0.0")), stays);
}

TEST(ClientTest, RequestsAboveTheLimitAreNotCounted) {
  Client client;
  client.name = "192.0.2.7";
  ASSERT_TRUE(client.BeginRequest(1));
  EXPECT_FALSE(client.BeginRequest(1));
  client.EndRequest();
  EXPECT_TRUE(client.BeginRequest(1));
  const protocol::Error error = TooManyRequests(client, 1);
  EXPECT_EQ(error.kind, ErrorKind::kClientLimit);
  EXPECT_EQ(error.message, "the client 192.0.2.7 has its limit of 1 requests in flight");
}

TEST(ClientTest, BytesLackInItsShareOrInTheWhole) {
  const auto whole = std::make_shared<ByteBudget>(100);
  const ByteBudget share(60, whole);
  EXPECT_EQ(TooManyBytes(Client(), share).kind, ErrorKind::kClientLimit);
  EXPECT_EQ(TooManyBytes(Client(), *whole).kind, ErrorKind::kBusy);
}

TEST(TransferPaceTest, SilenceEndsATransfer) {
  const TransferPace pace{milliseconds(1000), 100};
  const TimePoint start{};
  EXPECT_EQ(pace.Start(start), start + milliseconds(1000));
  // A burst gains no more than the silence that is allowed.
  EXPECT_EQ(pace.Moved(pace.Start(start), 1'000'000, start + milliseconds(10)),
            start + milliseconds(1010));
}

TEST(TransferPaceTest, ATrickleEndsATransferAndTheLeastRateKeepsItUp) {
  const TransferPace pace{milliseconds(1000), 100};
  for (const int bytes : {9, 10}) {  // every 100 ms
    TimePoint now{};
    TimePoint deadline = pace.Start(now);
    int steps = 0;
    for (; steps < 1000 && now < deadline; ++steps) {
      now += milliseconds(100);
      deadline = pace.Moved(deadline, static_cast<size_t>(bytes), now);
    }
    EXPECT_EQ(steps == 1000, bytes == 10) << steps;
  }
}

}  // namespace
}  // namespace chairlift::http
