#include "cli/load/schedule.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>

namespace chairlift {

StatusOr<LengthHistogram> LengthHistogram::Read(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) return NotFound("cannot open {}", path.string());
  auto histogram = Parse({std::istreambuf_iterator<char>(file), {}});
  if (!histogram.ok()) return Annotate(histogram.status(), path.string());
  return histogram;
}

StatusOr<LengthHistogram> LengthHistogram::Parse(const std::string& json) {
  auto parsed = nlohmann::json::parse(json, nullptr, false);
  if (parsed.is_object() && parsed.contains("histogram")) {
    const auto inner = parsed["histogram"];
    parsed = inner;
  }
  if (!parsed.is_object() || parsed.empty()) {
    return InvalidArgument(
        "not a histogram of lengths; write it as {{\"histogram\": {{\"17\": 41, \"18\": 7}}}}");
  }
  std::map<int64_t, uint64_t> counts;
  for (const auto& [key, count] : parsed.items()) {
    int64_t length = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), length);
    if (error != std::errc() || end != key.data() + key.size() || length < 1 ||
        !count.is_number_unsigned()) {
      return InvalidArgument(
          "not a histogram of lengths: '{}' is not a length with a count; write it as "
          "{{\"histogram\": {{\"17\": 41, \"18\": 7}}}}",
          key);
    }
    counts[length] += count.get<uint64_t>();
  }
  LengthHistogram out;
  uint64_t total = 0;
  for (const auto& [length, count] : counts) {
    total += count;
    out.lengths_.push_back(length);
    out.cumulative_.push_back(total);
  }
  if (total == 0)
    return InvalidArgument("every count is zero; at least one length needs a count above 0");
  return out;
}

StatusOr<LengthHistogram> LengthHistogram::From(const std::string& text) {
  constexpr int64_t kLongest = 1 << 20;
  const size_t dash = text.find('-');
  int64_t first = 0, last = 0;
  const auto number = [](std::string_view digits, int64_t& value) {
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return error == std::errc() && end == digits.data() + digits.size();
  };
  const std::string_view all = text;
  const bool numbers = dash == std::string::npos ? number(all, first) && number(all, last)
                                                 : number(all.substr(0, dash), first) &&
                                                       number(all.substr(dash + 1), last);
  if (!numbers) return Read(text);
  if (first < 1 || last < first || last > kLongest) {
    return InvalidArgument(
        "'{}' is neither a length from 1 to {} nor a range of two, as 32-512, the smaller first",
        text, kLongest);
  }
  LengthHistogram out;
  for (int64_t length = first; length <= last; ++length) {
    out.lengths_.push_back(length);
    out.cumulative_.push_back(static_cast<uint64_t>(length - first + 1));
  }
  return out;
}

int64_t LengthHistogram::Sample(std::mt19937_64& random) const {
  const uint64_t draw = std::uniform_int_distribution<uint64_t>(1, cumulative_.back())(random);
  const auto at = std::lower_bound(cumulative_.begin(), cumulative_.end(), draw);
  return lengths_[static_cast<size_t>(at - cumulative_.begin())];
}

double LengthHistogram::mean() const {
  double sum = 0;
  for (size_t i = 0; i < lengths_.size(); ++i) {
    const uint64_t count = cumulative_[i] - (i > 0 ? cumulative_[i - 1] : 0);
    sum += static_cast<double>(lengths_[i]) * static_cast<double>(count);
  }
  return sum / static_cast<double>(cumulative_.back());
}

StatusOr<std::vector<Arrival>> MakeSchedule(const ScheduleOptions& options) {
  if (options.gaps_ms.empty() && !(options.rate > 0)) {
    return InvalidArgument("the rate must be above 0 requests a second, not {}", options.rate);
  }
  double scale = 1e-3;
  if (!options.gaps_ms.empty() && options.rate > 0) {
    const double sum = std::accumulate(options.gaps_ms.begin(), options.gaps_ms.end(), 0.0);
    scale = static_cast<double>(options.gaps_ms.size()) / (options.rate * sum);
  }
  std::mt19937_64 random(options.seed);
  std::exponential_distribution<double> poisson(options.gaps_ms.empty() ? options.rate : 1.0);
  std::vector<Arrival> schedule;
  double at = 0;
  for (size_t i = 0;; ++i) {
    at += options.gaps_ms.empty() ? poisson(random)
                                  : options.gaps_ms[i % options.gaps_ms.size()] * scale;
    if (at >= options.seconds) break;
    if (static_cast<int64_t>(schedule.size()) == options.max_requests) {
      return InvalidArgument("over {} requests: lower the rate or the duration",
                             options.max_requests);
    }
    const int64_t length = options.lengths != nullptr ? options.lengths->Sample(random) : 0;
    const int64_t output = options.outputs != nullptr ? options.outputs->Sample(random) : 0;
    schedule.push_back({std::chrono::nanoseconds(static_cast<int64_t>(at * 1e9)), length, output});
  }
  if (schedule.empty()) {
    return InvalidArgument("no request falls into {} s; raise the rate or the duration",
                           options.seconds);
  }
  return schedule;
}

StatusOr<std::vector<double>> ReadGaps(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) return NotFound("cannot open {}", path.string());
  std::vector<double> gaps;
  std::string line;
  double sum = 0;
  for (int number = 1; std::getline(file, line); ++number) {
    const size_t text = line.find_first_not_of(" \t\r");
    if (text == std::string::npos || line[text] == '#') continue;
    char* end = nullptr;
    const double gap = std::strtod(line.c_str() + text, &end);
    if (end == line.c_str() + text || !std::isfinite(gap) || gap < 0) {
      return InvalidArgument("{} line {}: '{}' is not a number of milliseconds", path.string(),
                             number, line);
    }
    gaps.push_back(gap);
    sum += gap;
  }
  if (!(sum > 0)) return InvalidArgument("{} has no gaps above zero", path.string());
  return gaps;
}

}  // namespace chairlift
