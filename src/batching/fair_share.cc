#include "batching/fair_share.h"

#include <algorithm>
#include <chrono>

namespace chairlift {
namespace {

// A client may always join up to the bound divided by this, however much it has received.
constexpr double kMostTimesLess = 2;

double TimesTheAverage(double own, double all, size_t clients) {
  return all > 0 ? own * static_cast<double>(clients) / all : 0;
}

}  // namespace

void FairShare::Roll(TimePoint now) {
  const bool idle = now - start_ >= 2 * kPeriod;
  if (now - start_ >= kPeriod) {
    const auto next = [&](Given& given) {
      given.before = idle ? 0 : given.now;
      given.seen_before = !idle && given.seen;
      given.now = 0;
      given.seen = false;
      return given.seen_before;
    };
    absl::erase_if(groups_, [&](auto& entry) {
      Group& group = entry.second;
      members_ -= group.members.size();
      absl::erase_if(group.members, [&](auto& member) { return !next(member.second); });
      members_ += group.members.size();
      next(group.all);
      return group.members.empty();
    });
    next(all_);
    start_ = idle ? now : start_ + kPeriod;
  }
  const std::chrono::duration<double> over = now - start_;
  fading_ = std::clamp(1 - over / std::chrono::duration<double>(kPeriod), 0.0, 1.0);
}

FairShare::Given* FairShare::Find(const Client& client) {
  const auto group = groups_.find(client.group);
  if (group != groups_.end()) {
    const auto member = group->second.members.find(client.member);
    if (member != group->second.members.end()) return &member->second;
  }
  if (members_ >= kMostClients) return nullptr;
  ++members_;
  return &groups_[client.group].members[client.member];
}

Duration FairShare::Allowed(const Client& client, Duration wait, Duration limit, TimePoint now) {
  if (wait <= Free(limit)) return limit;
  Roll(now);
  counts_until_ = now + kPeriod;
  Given* const own = Find(client);
  if (own == nullptr) return limit;
  own->seen = true;
  Group& group = groups_[client.group];
  group.all.seen = true;
  const double times =
      std::max(TimesTheAverage(Recent(group.all), Recent(all_), groups_.size()),
               TimesTheAverage(Recent(*own), Recent(group.all), group.members.size()));
  const double nanoseconds =
      static_cast<double>(limit.count()) / std::clamp(times, 1.0, kMostTimesLess);
  return Duration(static_cast<int64_t>(nanoseconds));
}

void FairShare::Charge(const Client& client, Duration work, TimePoint now) {
  if (now >= counts_until_) return;
  Roll(now);
  Given* const own = Find(client);
  if (own == nullptr) return;
  const auto ns = static_cast<double>(work.count());
  Group& group = groups_[client.group];
  for (Given* given : {own, &group.all, &all_}) {
    given->now += ns;
    given->seen = true;
  }
}

}  // namespace chairlift
