#include "cli/profile_operators.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>
#include <vector>

#include "base/status.h"
#include "cli/csv.h"
#include "cli/flags.h"
#include "cli/picture.h"
#include "cli/terminal.h"
#include "device/cpu/cores.h"
#include "device/cpu/peak_rates.h"

namespace chairlift {
namespace {

constexpr size_t kMinRuns = 5;
// Operands up to this size are assumed to be read from the last-level cache.
constexpr double kCachedBytes = 24e6;

// Nodes of one operator and implementation, or one node.
struct OperatorTime {
  std::string op, implementation;
  size_t nodes = 0;
  double us = 0;  // per request
  double flops = 0;
  double bound_us = 0;

  std::string Share(double all_us) const { return fmt::format("{:.1f}%", 100 * us / all_us); }
  std::string Rate() const { return flops == 0 ? "" : fmt::format("{:.1f}", flops / us * 1e-3); }
  std::string OfBound() const { return fmt::format("{:.0f}%", Percent()); }
  double Percent() const { return us == 0 ? 0 : 100 * bound_us / us; }
};

struct Measured {
  std::vector<NodeProfile> nodes;  // slowest first
  uint64_t requests = 0;           // number of requests measured
  double run_us = 0;               // median compute time of a whole request
  PeakRates peak;

  OperatorTime TimeOf(const NodeProfile& node) const {
    const double runs = static_cast<double>(node.runs) / static_cast<double>(requests);
    const double us = static_cast<double>(node.median.count()) * 1e-3 * runs;
    const double gbs = node.bytes < kCachedBytes ? peak.l3_gbs : peak.memory_gbs;
    const double bound = std::max(node.flops / peak.gflops, node.bytes / gbs) * 1e-3;
    return {node.op, node.implementation, 1, us, node.flops * runs, bound * runs};
  }
  double NodesUs() const {
    double us = 0;
    for (const NodeProfile& node : nodes) us += TimeOf(node).us;
    return us;
  }
};

StatusOr<InferRequest> MakeRequest(Engine& engine, const ModelMetadata& metadata,
                                   InputShapes shapes) {
  const auto made = [&](const InputShapes& tried) -> StatusOr<InferRequest> {
    std::mt19937_64 random(1);
    InferRequest request;
    request.model = metadata.name;
    CHAIRLIFT_ASSIGN_OR_RETURN(request.inputs, MakeInputs(metadata.inputs, tried, random));
    return request;
  };
  CHAIRLIFT_ASSIGN_OR_RETURN(
      shapes,
      FindShapes(metadata.inputs, shapes, kLengthsToTry, [&](const InputShapes& tried) -> Status {
        CHAIRLIFT_ASSIGN_OR_RETURN(InferRequest request, made(tried));
        return engine.Infer(std::move(request)).status();
      }));
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::string text, DescribeInputs(metadata.inputs, shapes));
  PrintText("{}: {}, {}\n", metadata.name, text, Counted(engine.workers(), "worker"));
  return made(shapes);
}

StatusOr<Measured> TimeNodes(Engine& engine, const InferRequest& request, double seconds) {
  Measured measured;
  // More workers than cores do not add resources.
  const int cores = std::max(1, static_cast<int>(AllowedCores().size()));
  measured.peak = MeasurePeakRates(std::min(engine.workers(), cores));
  std::vector<double> times;
  engine.StartTrace({.nodes = true});
  const auto begin = std::chrono::steady_clock::now();
  ProgressBar bar("timing", static_cast<int64_t>(seconds * 1e3));
  double passed = 0;
  while (times.size() < kMinRuns || passed < seconds) {
    CHAIRLIFT_ASSIGN_OR_RETURN(const InferResponse response, engine.Infer(request));
    times.push_back(static_cast<double>(response.compute_time.count()) * 1e-3);
    passed = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    bar.Set(static_cast<int64_t>(passed * 1e3));
  }
  Trace trace = engine.StopTrace();
  std::nth_element(times.begin(), times.begin() + static_cast<ptrdiff_t>(times.size() / 2),
                   times.end());
  measured.run_us = times[times.size() / 2];
  // The trace may end before the last request; requests are alike.
  measured.requests = times.size() * trace.tasks / (trace.tasks + trace.dropped);
  if (measured.requests == 0) {
    return ResourceExhausted("one request runs more nodes than a trace takes; use a smaller one");
  }
  measured.nodes = std::move(trace.nodes);
  std::stable_sort(measured.nodes.begin(), measured.nodes.end(),
                   [&](const NodeProfile& a, const NodeProfile& b) {
                     return measured.TimeOf(a).us > measured.TimeOf(b).us;
                   });
  return measured;
}

std::vector<OperatorTime> ByOperator(const Measured& measured) {
  std::map<std::pair<std::string, std::string>, OperatorTime> groups;
  for (const NodeProfile& node : measured.nodes) {
    const OperatorTime line = measured.TimeOf(node);
    OperatorTime& group = groups[{node.op, node.implementation}];
    group.op = node.op;
    group.implementation = node.implementation;
    ++group.nodes;
    group.us += line.us;
    group.flops += line.flops;
    group.bound_us += line.bound_us;
  }
  std::vector<OperatorTime> lines;
  lines.reserve(groups.size());
  for (auto& [key, group] : groups) lines.push_back(std::move(group));
  std::stable_sort(lines.begin(), lines.end(),
                   [](const OperatorTime& a, const OperatorTime& b) { return a.us > b.us; });
  return lines;
}

std::string NameOf(const NodeProfile& node) {
  return node.cell.empty() ? node.node : fmt::format("{}: {}", node.cell, node.node);
}

// Loops whose bodies do not appear in the times.
void PrintIdleLoops(const std::vector<NodeProfile>& nodes) {
  for (const NodeProfile& node : nodes) {
    if (node.iterations != 0) continue;
    PrintText(
        "\n{} {} ran its body 0 times: how often it does follows from inputs, which are made up "
        "here (random, 0 or 1);\nits nodes are not timed. `chairlift bench --input NAME=FILE.npy "
        "--trace FILE --trace-nodes` times a request of yours\n",
        node.op, NameOf(node));
  }
}

void Print(const Measured& measured, int top) {
  const double all = measured.NodesUs();
  PrintText(
      "{} per request (median of {}), {} of it in nodes; peak of this machine: {:.0f} GFLOP/s, "
      "{:.0f} GB/s from memory, {:.0f} GB/s from cache\n\n",
      HumanSeconds(measured.run_us * 1e-6), measured.requests, HumanSeconds(all * 1e-6),
      measured.peak.gflops, measured.peak.memory_gbs, measured.peak.l3_gbs);
  Table operators({"operator", "implementation", "nodes", "µs", "share", "GFLOP/s", "of bound"});
  for (const OperatorTime& line : ByOperator(measured)) {
    operators.Add({line.op, line.implementation, std::to_string(line.nodes),
                   fmt::format("{:.1f}", line.us), line.Share(all), line.Rate(), line.OfBound()});
  }
  PrintText("{}\n", operators.ToString());
  Table nodes(
      {"node", "operator", "implementation", "µs", "share", "GFLOP/s", "of bound", "shapes"});
  const size_t shown = std::min(measured.nodes.size(), static_cast<size_t>(top));
  std::vector<std::string> refusals;
  for (size_t i = 0; i < shown; ++i) {
    const NodeProfile& node = measured.nodes[i];
    const OperatorTime line = measured.TimeOf(node);
    nodes.Add({NameOf(node), node.op, node.implementation, fmt::format("{:.1f}", line.us),
               line.Share(all), line.Rate(), line.OfBound(), node.shapes});
    if (node.refused.empty()) continue;
    std::string text = fmt::format("{} by {}, not {}", node.op, node.implementation, node.refused);
    if (std::find(refusals.begin(), refusals.end(), text) == refusals.end()) {
      refusals.push_back(std::move(text));
    }
  }
  PrintText("the slowest {} of {}:\n{}", shown,
            Counted(static_cast<int64_t>(measured.nodes.size()), "node"), nodes.ToString());
  if (!refusals.empty()) PrintText("\nfaster implementations that do not apply:\n");
  for (const std::string& text : refusals) PrintText("  {}\n", text);
  PrintIdleLoops(measured.nodes);
  PrintText(
      "\nbound: the least time for the arithmetic and the memory traffic at the machine's peak. "
      "More "
      "than 100%:\nthe operands were in a nearer cache, or the kernel needs less arithmetic "
      "(Winograd)\n");
}

Status WriteJson(const Measured& measured, const std::string& model, const std::string& path) {
  nlohmann::json nodes = nlohmann::json::array();
  for (const NodeProfile& node : measured.nodes) {
    const OperatorTime line = measured.TimeOf(node);
    nodes.push_back({{"node", node.node},
                     {"cell", node.cell},
                     {"operator", node.op},
                     {"implementation", node.implementation},
                     {"refused", node.refused},
                     {"shapes", node.shapes},
                     {"us", line.us},
                     {"flops", line.flops},
                     {"bound_percent", line.Percent()}});
    if (node.iterations >= 0) nodes.back()["iterations"] = node.iterations;
  }
  const nlohmann::json all = {{"model", model},
                              {"total_us", measured.run_us},
                              {"requests", measured.requests},
                              {"gflops", measured.peak.gflops},
                              {"memory_gbs", measured.peak.memory_gbs},
                              {"cache_gbs", measured.peak.l3_gbs},
                              {"nodes", std::move(nodes)}};
  std::ofstream file(path);
  file << all.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
  return file.flush() ? absl::OkStatus() : CannotWrite(path);
}

Status WriteNodesCsv(const Measured& measured, const std::string& path) {
  std::string text =
      CsvLine(std::array<std::string, 9>{"node", "cell", "operator", "implementation", "refused",
                                         "shapes", "us", "flops", "bound_percent"});
  for (const NodeProfile& node : measured.nodes) {
    const OperatorTime line = measured.TimeOf(node);
    text += CsvLine(std::array{node.node, node.cell, node.op, node.implementation, node.refused,
                               node.shapes, fmt::format("{:.3f}", line.us),
                               fmt::format("{:.0f}", line.flops),
                               fmt::format("{:.1f}", line.Percent())});
  }
  return WriteCsv(path, text);
}

// Bars, the slowest operator on top.
Status WriteSvg(const Measured& measured, const std::string& model, const std::string& path) {
  constexpr double kLabel = 240, kBars = 420, kRow = 24;
  const std::vector<OperatorTime> lines = ByOperator(measured);
  const double all = measured.NodesUs();
  const double scale = lines.empty() || lines[0].us == 0 ? 0 : kBars / lines[0].us;
  std::string svg = PictureHead(
      kPictureWidth, kPictureTop + kRow * static_cast<double>(lines.size()) + kPictureMargin,
      fmt::format("{}: {} per request", model, HumanSeconds(measured.run_us * 1e-6)),
      "bar: time of all nodes of an operator; blue: the least time that this machine needs for it");
  double y = kPictureTop + 4;
  for (const OperatorTime& line : lines) {
    const std::string label =
        line.implementation.empty() ? line.op : fmt::format("{}, {}", line.op, line.implementation);
    fmt::format_to(std::back_inserter(svg),
                   "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>"
                   "<rect class=\"off\" x=\"{}\" y=\"{}\" width=\"{:.1f}\" height=\"16\"/>"
                   "<rect class=\"time\" x=\"{}\" y=\"{}\" width=\"{:.1f}\" height=\"16\"/>"
                   "<text class=\"note\" x=\"{:.1f}\" y=\"{}\">{:.1f} µs, {}</text>\n",
                   kLabel - 8, y + 13, SvgText(label), kLabel, y, line.us * scale, kLabel, y,
                   std::min(line.us, line.bound_us) * scale, kLabel + line.us * scale + 6, y + 13,
                   line.us, line.Share(all));
    y += kRow;
  }
  std::ofstream file(path);
  file << svg << "</svg>\n";
  return file.flush() ? absl::OkStatus() : CannotWrite(path);
}

}  // namespace

Status ProfileOperators(Engine& engine, const std::string& model,
                        const ProfileOperatorsOptions& options) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const ModelMetadata metadata, engine.Metadata(model));
  CHAIRLIFT_RETURN_IF_ERROR(CheckShapeNames(metadata.inputs, options.shapes));
  CHAIRLIFT_ASSIGN_OR_RETURN(const InferRequest request,
                             MakeRequest(engine, metadata, options.shapes));
  CHAIRLIFT_ASSIGN_OR_RETURN(const Measured measured, TimeNodes(engine, request, options.seconds));
  Print(measured, options.top);
  if (!options.json.empty()) {
    CHAIRLIFT_RETURN_IF_ERROR(WriteJson(measured, model, options.json));
  }
  if (!options.csv.empty()) CHAIRLIFT_RETURN_IF_ERROR(WriteNodesCsv(measured, options.csv));
  if (!options.svg.empty()) return WriteSvg(measured, model, options.svg);
  return absl::OkStatus();
}

}  // namespace chairlift
