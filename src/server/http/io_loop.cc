// The loop's thread and the periodic check of its connections' deadlines.
#include "server/http/io_loop.h"

#include <pthread.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <exception>

#include "base/clock.h"
#include "server/http/session.h"

namespace chairlift::http {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kNoMemoryPause{1};

// Deadlines are accurate to a quarter of the shortest.
milliseconds SweepInterval(const ServerLimits& limits) {
  const milliseconds shortest = std::min({limits.header_timeout, limits.body_timeout,
                                          limits.idle_timeout, limits.closed_client_probe});
  return std::clamp(shortest / 4, milliseconds(5), milliseconds(500));
}

}  // namespace

IoLoop::IoLoop(const ServerLimits& limits)
    : sweep_every_(SweepInterval(limits)),
      decoders_(limits),
      work_(boost::asio::make_work_guard(io_)),
      sweep_timer_(io_) {}

IoLoop::~IoLoop() { Stop(); }

void IoLoop::Start() {
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "chairlift-io");
    Run();
  });
}

void IoLoop::Run() {
  while (true) {
    try {
      if (!sweep_scheduled_ && work_.owns_work()) ScheduleSweep();
      io_.run();
      return;
    } catch (const std::exception&) {
      std::this_thread::sleep_for(kNoMemoryPause);
    }
  }
}

void IoLoop::Stop() {
  if (!thread_.joinable()) return;
  boost::asio::post(io_, [this] {
    sweep_timer_.cancel();
    work_.reset();
  });
  thread_.join();
}

void IoLoop::Add(const std::shared_ptr<Session>& session) {
  sessions_.emplace(session.get(), session);
}

void IoLoop::Remove(const Session* session) { sessions_.erase(session); }

std::vector<std::shared_ptr<Session>> IoLoop::sessions() const {
  std::vector<std::shared_ptr<Session>> list;
  list.reserve(sessions_.size());
  for (const auto& [key, session] : sessions_) list.push_back(session);
  return list;
}

void IoLoop::ScheduleSweep() {
  sweep_timer_.expires_after(sweep_every_);
  sweep_timer_.async_wait([this](const boost::system::error_code& ec) {
    sweep_scheduled_ = false;
    if (ec || !work_.owns_work()) return;
    Sweep();
    ScheduleSweep();
  });
  sweep_scheduled_ = true;
}

void IoLoop::Sweep() {
  const TimePoint now = Clock::Steady().Now();
  for (const std::shared_ptr<Session>& session : sessions()) session->Sweep(now);
  for (const auto& task : on_sweep_) task();
}

}  // namespace chairlift::http
