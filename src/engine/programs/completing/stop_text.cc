#include "engine/programs/completing/stop_text.h"

#include <algorithm>

namespace chairlift {

std::string StopText::Append(std::string_view text) {
  if (stopped_) return {};
  held_.append(text);
  size_t begin = std::string::npos, end = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t found = held_.find(stop);
    if (found == std::string::npos) continue;
    const size_t behind = found + stop.size();
    if (end != std::string::npos && (behind > end || (behind == end && found > begin))) continue;
    begin = found;
    end = behind;
  }
  if (begin != std::string::npos) {
    stopped_ = true;
    std::string before = held_.substr(0, begin);
    held_.clear();
    return before;
  }
  size_t kept = 0;
  for (const std::string& stop : stops_) {
    for (size_t size = std::min(stop.size() - 1, held_.size()); size > kept; --size) {
      if (std::string_view(held_).ends_with(std::string_view(stop).substr(0, size))) kept = size;
    }
  }
  std::string certain = held_.substr(0, held_.size() - kept);
  held_.erase(0, certain.size());
  return certain;
}

}  // namespace chairlift
