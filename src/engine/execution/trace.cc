#include "engine/execution/trace.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/out_of_memory.h"
#include "base/status.h"

namespace chairlift {
namespace {

// A JSON string; names come from files and may hold any bytes.
std::string Quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

double Microseconds(int64_t ns) { return static_cast<double>(ns) * 1e-3; }

}  // namespace

void TraceRecorder::Start(size_t max_bytes, TimePoint now) {
  const std::lock_guard<std::mutex> lock(mutex_);
  start_ = now;
  max_bytes_ = max_bytes;
  dropped_ = 0;
  numbers_.clear();
  names_.clear();
  events_.clear();
  requests_.clear();
  on_ = true;
}

void TraceRecorder::Record(const Slice& slice) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!on() || slice.start < start_) return;
  const size_t requests = requests_.size();
  const Status recorded = CatchOutOfMemory([&] {
    Append(slice);
    return absl::OkStatus();
  });
  if (recorded.ok()) return;
  requests_.resize(requests);
  ++dropped_;
}

void TraceRecorder::Append(const Slice& slice) {
  distinct_.clear();
  for (const NodeRef& node : slice.task.nodes) distinct_.push_back(node.request);
  std::sort(distinct_.begin(), distinct_.end());
  distinct_.erase(std::unique(distinct_.begin(), distinct_.end()), distinct_.end());
  const size_t bytes = (events_.size() + 1) * sizeof(Event) +
                       (requests_.size() + distinct_.size()) * sizeof(BatchRequestId);
  // The first one too many ends it: a timeline with holes would look like idle workers.
  if (dropped_ > 0 || bytes > max_bytes_) {
    ++dropped_;
    return;
  }
  names_.reserve(names_.size() + 1);
  const auto [found, fresh] =
      numbers_.try_emplace({slice.model, slice.cell}, static_cast<int32_t>(names_.size()));
  if (fresh) names_.push_back(found->first);
  requests_.insert(requests_.end(), distinct_.begin(), distinct_.end());
  events_.push_back({.name = found->second,
                     .worker = slice.task.worker,
                     .helped = slice.helped,
                     .rows = slice.task.rows,
                     .padding_rows = slice.task.padding_rows,
                     .requests = static_cast<int32_t>(distinct_.size()),
                     .start_ns = (slice.start - start_).count(),
                     .ns = (slice.end - slice.start).count()});
}

Trace TraceRecorder::Stop(int workers) {
  const std::lock_guard<std::mutex> lock(mutex_);
  on_ = false;
  Trace trace{.json = {}, .tasks = events_.size(), .dropped = dropped_};
  auto out = std::back_inserter(trace.json);
  fmt::format_to(out,
                 "{{\"displayTimeUnit\":\"ms\",\"otherData\":{{\"dropped_tasks\":{}}},"
                 "\"traceEvents\":[\n"
                 R"({{"ph":"M","pid":1,"name":"process_name","args":{{"name":"chairlift"}}}})",
                 dropped_);
  for (int worker = 0; worker < workers; ++worker) {
    fmt::format_to(out,
                   ",\n"
                   R"({{"ph":"M","pid":1,"tid":{0},"name":"thread_name",)"
                   R"("args":{{"name":"worker {0}"}}}})"
                   ",\n"
                   R"({{"ph":"M","pid":1,"tid":{0},"name":"thread_sort_index",)"
                   R"("args":{{"sort_index":{0}}}}})",
                   worker);
  }
  std::vector<std::string> labels;  // what all events of a name share
  for (const auto& [model, cell] : names_) {
    labels.push_back(fmt::format(R"("name":{},"cat":"{}","args":{{"model":{})",
                                 Quoted(cell.empty() ? model : cell),
                                 cell.empty() ? "model" : "cell", Quoted(model)));
  }
  auto request = requests_.begin();
  for (const Event& event : events_) {
    fmt::format_to(out,
                   ",\n"
                   R"({{"ph":"X","pid":1,"tid":{},"ts":{:.3f},"dur":{:.3f},{},"rows":{},)"
                   R"("padding_rows":{},"helped":{},"requests":[)",
                   event.worker, Microseconds(event.start_ns), Microseconds(event.ns),
                   labels[static_cast<size_t>(event.name)], event.rows, event.padding_rows,
                   event.helped);
    for (int32_t i = 0; i < event.requests; ++i) {
      fmt::format_to(out, "{}{}", i == 0 ? "" : ",", *request++);
    }
    trace.json += "]}}";
  }
  trace.json += "\n]}\n";
  events_.clear();
  requests_.clear();
  return trace;
}

}  // namespace chairlift
