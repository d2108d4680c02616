#include "cli/simulate/request_mix.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>

#include "cli/load/schedule.h"

namespace chairlift {
namespace {

constexpr int kMaxLength = 1 << 20;
constexpr int kMaxTreeDepth = 1000;

StatusOr<std::string> ReadText(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) return NotFound("cannot open {}", path.string());
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::optional<int> ParseCount(std::string_view text, int least) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least) return {};
  return value;
}

// The object under `key` of a JSON file.
StatusOr<nlohmann::json> ReadObject(const std::filesystem::path& path, const char* key) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::string text, ReadText(path));
  auto parsed = nlohmann::json::parse(text, nullptr, false);
  if (!parsed.is_object() || !parsed.contains(key) || !parsed[key].is_object()) {
    return InvalidArgument("{}: not a histogram of lengths; write it as {{\"{}\": {{\"{}\": 41}}}}",
                           path.string(), key, std::string_view(key) == "joint" ? "17:19" : "17");
  }
  return nlohmann::json(parsed[key]);
}

StatusOr<RequestMix> Checked(RequestMix mix, const std::filesystem::path& path) {
  if (mix.graphs.empty()) return InvalidArgument("{}: no request is left to draw", path.string());
  return mix;
}

// Reads one tree at text[at]; returns its root node, or nothing if it is malformed.
std::optional<int32_t> ParseTree(std::string_view text, size_t& at, int depth, CellGraph& graph) {
  if (at >= text.size() || depth > kMaxTreeDepth) return {};
  const char c = text[at++];
  if (c == '.') return graph.Add(0);
  if (c != '(') return {};
  const auto left = ParseTree(text, at, depth + 1, graph);
  const auto right = left ? ParseTree(text, at, depth + 1, graph) : std::nullopt;
  if (!right || at >= text.size() || text[at++] != ')') return {};
  return graph.Add(1, 1, {*left, *right});
}

using Samples = std::map<std::string, std::vector<LengthCosts::Sample>>;

Status AddSample(Samples& samples, const std::string& cell, std::string_view rows,
                 std::string_view length, double us) {
  const std::optional<int> count = ParseCount(rows, 0);
  const std::optional<int> long_as = ParseCount(length, 0);
  if (!count || !long_as || !std::isfinite(us) || us <= 0 || us > 1e9) {
    return InvalidArgument("cell '{}': {} rows of length {} for {} µs is not a cost", cell, rows,
                           length, us);
  }
  samples[cell].push_back({*count, *long_as, Duration(static_cast<int64_t>(us * 1000))});
  return absl::OkStatus();
}

StatusOr<Samples> ParseCostsJson(const std::string& text) {
  const auto parsed = nlohmann::json::parse(text, nullptr, false);
  if (!parsed.is_object()) return InvalidArgument("not {{\"cell\": {{\"rows\": microseconds}}}}");
  Samples samples;
  for (const auto& [cell, costs] : parsed.items()) {
    if (!costs.is_object()) continue;
    for (const auto& [rows, us] : costs.items()) {
      if (!us.is_number()) return InvalidArgument("cell '{}': costs are numbers", cell);
      CHAIRLIFT_RETURN_IF_ERROR(AddSample(samples, cell, rows, "0", us.get<double>()));
    }
  }
  return samples;
}

StatusOr<Samples> ParseCostsCsv(const std::string& text) {
  Samples samples;
  size_t begin = 0;
  for (int number = 1; begin < text.size(); ++number) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty() || line[0] == '#' || line.rfind("cell,", 0) == 0) continue;
    std::vector<std::string> fields;
    for (size_t at = 0; at <= line.size();) {
      const size_t comma = std::min(line.find(',', at), line.size());
      fields.push_back(line.substr(at, comma - at));
      at = comma + 1;
    }
    if (fields.size() != 3 && fields.size() != 4) {
      return InvalidArgument(
          "line {}: '{}' is not cell,rows,microseconds or cell,rows,length,"
          "microseconds",
          number, line);
    }
    char* stop = nullptr;
    const double us = std::strtod(fields.back().c_str(), &stop);
    if (stop == fields.back().c_str() || *stop != '\0') {
      return InvalidArgument("line {}: '{}' does not end in a number", number, line);
    }
    const std::string length = fields.size() == 4 ? fields[2] : "0";
    CHAIRLIFT_RETURN_IF_ERROR(AddSample(samples, fields[0], fields[1], length, us));
  }
  return samples;
}

}  // namespace

void RequestMix::Add(CellGraph graph, uint64_t count) {
  if (count == 0) return;
  graphs.push_back(std::move(graph));
  cumulative.push_back(count + (cumulative.empty() ? 0 : cumulative.back()));
}

int32_t RequestMix::Sample(std::mt19937_64& random) const {
  const uint64_t draw = std::uniform_int_distribution<uint64_t>(1, cumulative.back())(random);
  const auto at = std::lower_bound(cumulative.begin(), cumulative.end(), draw);
  return static_cast<int32_t>(at - cumulative.begin());
}

double RequestMix::mean_nodes() const {
  double sum = 0;
  for (size_t i = 0; i < graphs.size(); ++i) {
    const uint64_t count = cumulative[i] - (i > 0 ? cumulative[i - 1] : 0);
    sum += static_cast<double>(graphs[i].size()) * static_cast<double>(count);
  }
  return sum / static_cast<double>(cumulative.back());
}

StatusOr<LengthCounts> ReadLengths(const std::filesystem::path& path, int max_length) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const nlohmann::json histogram, ReadObject(path, "histogram"));
  LengthCounts lengths;
  for (const auto& [key, count] : histogram.items()) {
    const std::optional<int> length = ParseCount(key, 1);
    if (!length || *length > kMaxLength || !count.is_number_unsigned()) {
      return InvalidArgument(
          "{}: not a histogram of lengths: '{}' is not a length with a count; write it "
          "as {{\"histogram\": {{\"17\": 41, \"18\": 7}}}}",
          path.string(), key);
    }
    if (max_length > 0 && *length > max_length) continue;
    if (count.get<uint64_t>() > 0) lengths[*length] += count.get<uint64_t>();
  }
  if (lengths.empty()) return InvalidArgument("{}: no request is left to draw", path.string());
  return lengths;
}

StatusOr<LengthCounts> UniformLengths(const std::string& range) {
  const size_t dash = std::min(range.find('-'), range.size());
  const std::string_view text(range);
  const std::optional<int> low = ParseCount(text.substr(0, dash), 1);
  const std::optional<int> high = ParseCount(text.substr(std::min(dash + 1, range.size())), 1);
  if (!low || !high || *low > *high || *high > kMaxLength) {
    return InvalidArgument("'{}' is not a range of lengths like 2-100", range);
  }
  LengthCounts lengths;
  for (int length = *low; length <= *high; ++length) lengths[length] = 1;
  return lengths;
}

RequestMix ChainMix(const LengthCounts& lengths) {
  RequestMix mix{.cells = {"step"}, .graphs = {}, .cumulative = {}};
  for (const auto& [length, count] : lengths) {
    CellGraph graph;
    graph.AddChain(0, length);
    mix.Add(std::move(graph), count);
  }
  return mix;
}

RequestMix EncoderMix(const LengthCounts& lengths, bool packed) {
  RequestMix mix{.cells = {packed ? "token" : "sequence"}, .graphs = {}, .cumulative = {}};
  for (const auto& [length, count] : lengths) {
    CellGraph graph;
    graph.Add(0, packed ? length : 1);
    if (!packed) graph.set_length(length);
    mix.Add(std::move(graph), count);
  }
  return mix;
}

RequestMix StagesMix(int stages, bool whole, int exit, int leaving) {
  RequestMix mix;
  CellGraph graph;
  for (int stage = 0; stage < (whole ? 1 : stages); ++stage) {
    mix.cells.push_back(whole ? "whole" : fmt::format("stage{}", stage + 1));
    const std::vector<int32_t> before(stage > 0 ? 1 : 0, stage - 1);
    graph.Add(static_cast<CellType>(stage), 1, before);
    if (stage + 1 == exit && leaving > 0 && !whole) mix.Add(graph, static_cast<uint64_t>(leaving));
  }
  const int staying = whole ? 1 : 100 - leaving;
  if (staying > 0) mix.Add(std::move(graph), static_cast<uint64_t>(staying));
  return mix;
}

StatusOr<RequestMix> Seq2SeqMix(const std::filesystem::path& lengths, int max_length) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const nlohmann::json joint, ReadObject(lengths, "joint"));
  RequestMix mix{.cells = {"encoder", "decoder"}, .graphs = {}, .cumulative = {}};
  for (const auto& [key, count] : joint.items()) {
    const size_t colon = std::min(key.find(':'), key.size());
    const std::string_view text(key);
    const std::optional<int> source = ParseCount(text.substr(0, colon), 0);
    const std::optional<int> target = ParseCount(text.substr(std::min(colon + 1, key.size())), 0);
    if (!source || !target || std::max(*source, *target) > kMaxLength ||
        !count.is_number_unsigned()) {
      return InvalidArgument("{}: '{}' is not source:target with a count", lengths.string(), key);
    }
    if (*source == 0 || *target == 0) continue;
    if (max_length > 0 && std::max(*source, *target) > max_length) continue;
    CellGraph graph;
    graph.AddChain(0, *source);
    // The decoder's output decides whether it continues, so no step may follow another in one task.
    for (int32_t step = 0; step < *target; ++step) graph.Add(1, 1, {graph.size() - 1});
    mix.Add(std::move(graph), count.get<uint64_t>());
  }
  return Checked(std::move(mix), lengths);
}

StatusOr<RequestMix> TreeMix(const std::filesystem::path& trees) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::string text, ReadText(trees));
  RequestMix mix{.cells = {"leaf", "internal"}, .graphs = {}, .cumulative = {}};
  size_t begin = 0;
  for (int number = 1; begin < text.size(); ++number) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    if (line.empty() || line[0] == '#') continue;
    CellGraph graph;
    size_t at = 0;
    if (!ParseTree(line, at, 0, graph) || at != line.size()) {
      return InvalidArgument("{} line {}: not a binary tree like ((..).), or over {} levels deep",
                             trees.string(), number, kMaxTreeDepth);
    }
    mix.Add(std::move(graph), 1);
  }
  return Checked(std::move(mix), trees);
}

StatusOr<RequestMix> GenerationMix(const std::string& prompts, const std::string& answers,
                                   int64_t count, uint64_t seed) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const LengthHistogram of_prompts, LengthHistogram::From(prompts));
  CHAIRLIFT_ASSIGN_OR_RETURN(const LengthHistogram of_answers, LengthHistogram::From(answers));
  std::mt19937_64 random(seed);
  RequestMix mix;
  mix.cells = {"step"};
  for (int64_t i = 0; i < count; ++i) {
    const int64_t prompt = of_prompts.Sample(random), answer = of_answers.Sample(random);
    if (std::max(prompt, answer) > kMaxLength) {
      return InvalidArgument("a length is {}; it must be at most {}", std::max(prompt, answer),
                             kMaxLength);
    }
    CellGraph graph;
    graph.AddDivisible(0, static_cast<int32_t>(prompt));
    graph.set_state(prompt + answer - 1);
    graph.set_state_rows(1);
    mix.Add(std::move(graph), 1);
    mix.answers.push_back(static_cast<int32_t>(answer));
  }
  return mix;
}

RequestMix CompleteTreeMix(int depth) {
  RequestMix mix{.cells = {"leaf", "internal"}, .graphs = {}, .cumulative = {}};
  CellGraph graph;
  std::string tree = ".";
  for (int level = 0; level < depth; ++level) tree = fmt::format("({0}{0})", tree);
  size_t at = 0;
  ParseTree(tree, at, 0, graph);
  mix.Add(std::move(graph), 1);
  return mix;
}

StatusOr<LengthCosts> ReadCosts(const std::filesystem::path& path,
                                const std::vector<std::string>& cells) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::string text, ReadText(path));
  auto samples = path.extension() == ".json" ? ParseCostsJson(text) : ParseCostsCsv(text);
  if (!samples.ok()) return Annotate(samples.status(), path.string());
  LengthCosts costs;
  for (const std::string& cell : cells) {
    if (!samples->contains(cell)) {
      std::vector<std::string_view> known;
      for (const auto& sample : *samples) known.push_back(sample.first);
      return InvalidArgument("{} has no costs of the cell '{}', only of: {}", path.string(), cell,
                             fmt::join(known, ", "));
    }
    const Status added = costs.AddType((*samples)[cell]);
    if (!added.ok()) return Annotate(added, fmt::format("{}: cell '{}'", path.string(), cell));
  }
  return costs;
}

}  // namespace chairlift
