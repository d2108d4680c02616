#include "engine/execution/trace.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "base/out_of_memory.h"
#include "base/status.h"
#include "batching/task_cost.h"

namespace chairlift {
namespace {

// A JSON string; names come from files and may have any bytes.
std::string Quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// The approximate size of a profile with that key: itself and its entry in the map.
size_t BytesOf(const std::string& key, const NodeProfile& what) {
  constexpr size_t kMapEntry = 80;
  return sizeof(NodeProfile) + kMapEntry + 2 * key.size() + what.refused.size();
}

double Microseconds(int64_t ns) { return static_cast<double>(ns) * 1e-3; }

}  // namespace

void NodeRuns::Report(const PlannedNode& planned, TimePoint start, TimePoint end) {
  if (!complete_) return;
  const bool choice = planned.kernel != nullptr;
  Add({.node = planned.node.name,
       .op = planned.node.def->name,
       .implementation = choice ? planned.kernel->taken : "",
       .refused = choice ? planned.kernel->refused : "",
       .shapes = planned.Shapes(),
       .flops = planned.Flops(),
       .bytes = planned.Bytes(),
       .iterations = planned.body_runs != nullptr && planned.node.def->name != "If"
                         ? *planned.body_runs
                         : -1},
      start, end);
}

void NodeRuns::Add(NodeProfile what, TimePoint start, TimePoint end) {
  if (!complete_) return;
  const auto [found, fresh] = profile_numbers_.try_emplace(
      fmt::format("{}\n{}\n{}\n{}", what.node, what.op, what.implementation, what.shapes),
      static_cast<int32_t>(profiles_.size()));
  if (fresh) {
    profile_bytes_ += BytesOf(found->first, what);
    profiles_.push_back(std::move(what));
  }
  runs_.push_back({found->second, start, end});
  if (byte_size() <= max_bytes_) return;
  complete_ = false;
  runs_ = {};
  profile_numbers_ = {};
  profiles_ = {};
  profile_bytes_ = 0;
}

void TraceRecorder::Start(const TraceOptions& options, TimePoint now) {
  const std::lock_guard<std::mutex> lock(mutex_);
  start_ = now;
  max_bytes_ = options.max_bytes;
  dropped_ = 0;
  numbers_.clear();
  names_.clear();
  events_.clear();
  requests_.clear();
  profile_numbers_.clear();
  profiles_.clear();
  profile_bytes_ = 0;
  node_events_.clear();
  node_bytes_ = options.nodes ? options.max_bytes : 0;
  on_ = true;
}

void TraceRecorder::Record(const Slice& slice, const NodeRuns* nodes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!on() || slice.start < start_) return;
  const size_t requests = requests_.size(), node_events = node_events_.size();
  const Status recorded = CatchOutOfMemory([&] {
    Append(slice, nodes);
    return absl::OkStatus();
  });
  if (recorded.ok()) return;
  requests_.resize(requests);
  node_events_.resize(node_events);
  ++dropped_;
}

void TraceRecorder::Append(const Slice& slice, const NodeRuns* nodes) {
  distinct_.clear();
  for (const NodeRef& node : slice.task.nodes) distinct_.push_back(node.request);
  std::sort(distinct_.begin(), distinct_.end());
  distinct_.erase(std::unique(distinct_.begin(), distinct_.end()), distinct_.end());
  const size_t node_runs = nodes == nullptr ? 0 : nodes->runs().size();
  const size_t bytes = (events_.size() + 1) * sizeof(Event) +
                       (requests_.size() + distinct_.size()) * sizeof(BatchRequestId) +
                       (node_events_.size() + node_runs) * sizeof(NodeEvent) + profile_bytes_;
  // The first event that does not fit ends the recording: gaps in a timeline would look like idle
  // workers.
  if (dropped_ > 0 || bytes > max_bytes_ || (nodes != nullptr && !nodes->complete())) {
    ++dropped_;
    return;
  }
  names_.reserve(names_.size() + 1);
  const auto [found, fresh] =
      numbers_.try_emplace({slice.model, slice.cell}, static_cast<int32_t>(names_.size()));
  if (fresh) names_.push_back(found->first);
  int32_t cells = 0;
  ForEachStepOf(slice.task, [&cells](int32_t rows, int32_t /*padding*/) { cells += rows; });
  requests_.insert(requests_.end(), distinct_.begin(), distinct_.end());
  if (nodes != nullptr) AppendNodes(slice, *nodes);
  events_.push_back({.name = found->second,
                     .worker = static_cast<int16_t>(slice.task.worker),
                     .helped = slice.helped,
                     .in_lane = slice.in_lane,
                     .rows = slice.task.rows,
                     .steps = slice.task.steps(),
                     .cells = cells,
                     .padding_rows = slice.task.padding_rows,
                     .requests = static_cast<int32_t>(distinct_.size()),
                     .nodes = static_cast<int32_t>(node_runs),
                     .start_ns = (slice.start - start_).count(),
                     .ns = (slice.end - slice.start).count()});
}

void TraceRecorder::AppendNodes(const Slice& slice, const NodeRuns& nodes) {
  std::vector<int32_t> numbers;  // indices into profiles_, by nodes.profiles()
  for (const NodeProfile& what : nodes.profiles()) {
    const auto [found, fresh] = profile_numbers_.try_emplace(
        fmt::format("{}\n{}\n{}\n{}\n{}\n{}", slice.model, slice.cell, what.node, what.op,
                    what.implementation, what.shapes),
        static_cast<int32_t>(profiles_.size()));
    if (fresh) {
      profile_bytes_ += BytesOf(found->first, what);
      profiles_.push_back(what);
      profiles_.back().model = slice.model;
      profiles_.back().cell = slice.cell;
    }
    numbers.push_back(found->second);
  }
  for (const NodeRuns::Run& run : nodes.runs()) {
    node_events_.push_back({numbers[static_cast<size_t>(run.profile)], (run.start - start_).count(),
                            (run.end - run.start).count()});
  }
}

std::vector<NodeProfile> TraceRecorder::Profiles() const {
  std::vector<std::vector<int64_t>> times(profiles_.size());
  std::vector<NodeEvent> open;  // of this task, not yet enclosed by another event
  auto next = node_events_.begin();
  for (const Event& event : events_) {
    open.clear();
    for (int32_t i = 0; i < event.nodes; ++i, ++next) {
      int64_t own = next->ns;
      while (!open.empty() && open.back().start_ns >= next->start_ns) {
        own -= open.back().ns;
        open.pop_back();
      }
      open.push_back(*next);
      times[static_cast<size_t>(next->profile)].push_back(own);
    }
  }
  std::vector<NodeProfile> profiles = profiles_;
  for (size_t i = 0; i < profiles.size(); ++i) {
    NodeProfile& profile = profiles[i];
    std::vector<int64_t>& of_node = times[i];
    profile.runs = of_node.size();
    if (of_node.empty()) continue;
    profile.total = Duration(std::accumulate(of_node.begin(), of_node.end(), int64_t{0}));
    const auto middle = of_node.begin() + static_cast<ptrdiff_t>(of_node.size() / 2);
    std::nth_element(of_node.begin(), middle, of_node.end());
    profile.median = Duration(*middle);
  }
  std::stable_sort(profiles.begin(), profiles.end(),
                   [](const auto& a, const auto& b) { return a.total > b.total; });
  return profiles;
}

int TraceRecorder::TrackOf(const Event& event) {
  constexpr int kLanesOfAModel = 1000;  // more than a model has
  return event.in_lane ? kLanesOfAModel * (event.name + 1) + event.worker : event.worker;
}

Trace TraceRecorder::Stop(int workers) {
  const std::lock_guard<std::mutex> lock(mutex_);
  on_ = false;
  node_bytes_ = 0;
  Trace trace{.json = {}, .tasks = events_.size(), .dropped = dropped_, .nodes = Profiles()};
  auto out = std::back_inserter(trace.json);
  fmt::format_to(out,
                 "{{\"displayTimeUnit\":\"ms\",\"otherData\":{{\"dropped_tasks\":{}}},"
                 "\"traceEvents\":[\n"
                 R"({{"ph":"M","pid":1,"name":"process_name","args":{{"name":"chairlift"}}}})",
                 dropped_);
  std::map<int, std::string> tracks;
  for (int worker = 0; worker < workers; ++worker) {
    tracks[worker] = fmt::format("worker {}", worker);
  }
  for (const Event& event : events_) {
    if (!event.in_lane) continue;
    tracks[TrackOf(event)] =
        fmt::format("{}: lane {}", names_[static_cast<size_t>(event.name)].first, event.worker);
  }
  for (const auto& [track, name] : tracks) {
    fmt::format_to(out,
                   ",\n"
                   R"({{"ph":"M","pid":1,"tid":{0},"name":"thread_name",)"
                   R"("args":{{"name":{1}}}}})"
                   ",\n"
                   R"({{"ph":"M","pid":1,"tid":{0},"name":"thread_sort_index",)"
                   R"("args":{{"sort_index":{0}}}}})",
                   track, Quoted(name));
  }
  std::vector<std::string> labels;  // shared by all events of a name
  for (const auto& [model, cell] : names_) {
    labels.push_back(fmt::format(R"("name":{},"cat":"{}","args":{{"model":{})",
                                 Quoted(cell.empty() ? model : cell),
                                 cell.empty() ? "model" : "cell", Quoted(model)));
  }
  auto request = requests_.begin();
  auto node = node_events_.begin();
  for (const Event& event : events_) {
    fmt::format_to(
        out,
        ",\n"
        R"({{"ph":"X","pid":1,"tid":{},"ts":{:.3f},"dur":{:.3f},{},"rows":{},"steps":{},"cells":{},)"
        R"("padding_rows":{},"helped":{},"requests":[)",
        TrackOf(event), Microseconds(event.start_ns), Microseconds(event.ns),
        labels[static_cast<size_t>(event.name)], event.rows, event.steps, event.cells,
        event.padding_rows, event.helped);
    for (int32_t i = 0; i < event.requests; ++i) {
      fmt::format_to(out, "{}{}", i == 0 ? "" : ",", *request++);
    }
    trace.json += "]}}";
    for (int32_t i = 0; i < event.nodes; ++i, ++node) {
      const NodeProfile& profile = profiles_[static_cast<size_t>(node->profile)];
      fmt::format_to(out,
                     ",\n"
                     R"({{"ph":"X","pid":1,"tid":{},"ts":{:.3f},"dur":{:.3f},"name":{},)"
                     R"("cat":"node","args":{{"node":{},"implementation":{},"shapes":{}}}}})",
                     TrackOf(event), Microseconds(node->start_ns), Microseconds(node->ns),
                     Quoted(profile.op), Quoted(profile.node), Quoted(profile.implementation),
                     Quoted(profile.shapes));
    }
  }
  trace.json += "\n]}\n";
  events_.clear();
  requests_.clear();
  node_events_.clear();
  return trace;
}

}  // namespace chairlift
