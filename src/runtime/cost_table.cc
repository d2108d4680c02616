#include "runtime/cost_table.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string_view>
#include <vector>

#include "base/private_folder.h"
#include "base/version.h"
#include "device/cpu/cpu_device.h"
#include "device/device.h"

namespace chairlift {
namespace {

constexpr std::string_view kHeader = "chairlift cost table 1";
constexpr std::string_view kEnding = ".costs";  // of a table's file name
constexpr size_t kMostTables = 4096;            // kept
constexpr size_t kMostFileBytes = size_t{4} << 20;
// For one batch: an hour, longer than any measurement.
constexpr int64_t kMostNs = std::chrono::nanoseconds(std::chrono::hours(1)).count();

// FNV-1a: distinguishes files and detects damage. Not a defence against forgery.
uint64_t Digest(uint64_t hash, std::string_view bytes) {
  for (const char c : bytes) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return hash;
}
constexpr uint64_t kDigestStart = 0xcbf29ce484222325u;

// The version, and the program's size and time, because another build may have other kernels.
std::string BuildName() {
  std::error_code error;
  const std::filesystem::path program = "/proc/self/exe";
  const uintmax_t size = std::filesystem::file_size(program, error);
  if (error) return std::string(Version());
  const auto time = std::filesystem::last_write_time(program, error);
  if (error) return std::string(Version());
  return fmt::format("{} {:x}-{:x}", Version(), size,
                     static_cast<uint64_t>(time.time_since_epoch().count()));
}

std::filesystem::path TableIn(const std::filesystem::path& folder, const CostTable::Key& key) {
  return folder / fmt::format("{}-{}{}", key.model, key.workers, kEnding);
}

CostTable::Key KeyHere(uint64_t digest, int workers) {
  CostTable::Key key;
  key.model = fmt::format("{:016x}", digest);
  key.device = CpuDevice().Description();
  key.build = BuildName();
  key.workers = workers;
  return key;
}

// The value of a "name value" line, or an error naming it.
StatusOr<std::string> Line(std::istringstream& text, std::string_view name) {
  std::string line;
  if (!std::getline(text, line) || line.rfind(fmt::format("{} ", name), 0) != 0) {
    return InvalidArgument("no line '{} ...' where one should be", name);
  }
  return line.substr(name.size() + 1);
}

// Removes files that interrupted processes left, and the oldest tables over the limit: each model
// that was ever served leaves some.
void Sweep(const PrivateFolder& folder) {
  constexpr auto kStale = std::chrono::hours(1);
  constexpr size_t kMostListed = size_t{1} << 16;
  const auto now = std::chrono::system_clock::now();
  for (const PrivateFolder::Entry& part : folder.List(PrivateFolder::kPart, kMostListed)) {
    if (now - part.written > kStale) folder.Remove(part.name);
  }
  std::vector<PrivateFolder::Entry> tables = folder.List(kEnding, kMostListed);
  if (tables.size() < kMostTables) return;
  const auto surplus = static_cast<std::ptrdiff_t>(tables.size() - kMostTables + 1);
  const auto older = [](const auto& a, const auto& b) { return a.written < b.written; };
  std::nth_element(tables.begin(), tables.begin() + surplus - 1, tables.end(), older);
  for (auto table = tables.begin(); table != tables.begin() + surplus; ++table) {
    folder.Remove(table->name);
  }
}

}  // namespace

std::string CostTable::Body() const {
  std::string out = fmt::format("{}\nmodel {}\ndevice {}\nbuild {}\nworkers {}\n", kHeader,
                                key_.model, key_.device, key_.build, key_.workers);
  for (const auto& [shape, cost] : costs_) {
    out += fmt::format("cost {} {} {}\n", shape.first, shape.second, cost.count());
  }
  return out;
}

Status CostTable::Save(const std::filesystem::path& path) const {
  CHAIRLIFT_ASSIGN_OR_RETURN(const PrivateFolder folder,
                             PrivateFolder::OpenOrMake(path.parent_path()));
  Sweep(folder);
  const std::string body = Body();
  return folder.Write(path.filename().string(),
                      fmt::format("{}checksum {:016x}\n", body, Digest(kDigestStart, body)));
}

StatusOr<CostTable> CostTable::Load(const std::filesystem::path& path) {
  CHAIRLIFT_ASSIGN_OR_RETURN(const PrivateFolder folder, PrivateFolder::Open(path.parent_path()));
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::string all,
                             folder.Read(path.filename().string(), kMostFileBytes));
  const auto broken = [&](const std::string& why) {
    return InvalidArgument(
        "{} is not a whole cost table ({}); run `chairlift profile` to replace it", path.string(),
        why);
  };
  const size_t checksum = all.rfind("checksum ");
  if (checksum == std::string::npos) return broken("no checksum");
  const std::string body = all.substr(0, checksum);
  if (all.substr(checksum) != fmt::format("checksum {:016x}\n", Digest(kDigestStart, body))) {
    return broken("the checksum differs");
  }
  std::istringstream text(body);
  std::string line;
  if (!std::getline(text, line) || line != kHeader) return broken("another format");
  Key key;
  CHAIRLIFT_ASSIGN_OR_RETURN(key.model, Line(text, "model"));
  CHAIRLIFT_ASSIGN_OR_RETURN(key.device, Line(text, "device"));
  CHAIRLIFT_ASSIGN_OR_RETURN(key.build, Line(text, "build"));
  CHAIRLIFT_ASSIGN_OR_RETURN(const std::string workers, Line(text, "workers"));
  key.workers = std::atoi(workers.c_str());
  CostTable table(key);
  std::string word;
  int64_t rows = 0, length = 0, ns = 0;
  while (text >> word >> rows >> length >> ns) {
    if (word != "cost" || rows < 1 || length < 0 || ns < 0 || ns > kMostNs) {
      return broken("a line makes no sense");
    }
    table.Set(rows, length, std::chrono::nanoseconds(ns));
  }
  if (!text.eof()) return broken("a line makes no sense");
  return table;
}

StatusOr<CostTable::Key> CostTableKey(const std::filesystem::path& model, int workers) {
  std::ifstream file(model, std::ios::binary);
  if (!file) return NotFound("cannot open {}", model.string());
  uint64_t hash = kDigestStart;
  std::vector<char> block(1 << 20);
  while (file) {
    file.read(block.data(), static_cast<std::streamsize>(block.size()));
    hash = Digest(hash, {block.data(), static_cast<size_t>(file.gcount())});
  }
  return KeyHere(hash, workers);
}

CostTable::Key CostTableKeyOf(std::string_view description, int workers) {
  return KeyHere(Digest(kDigestStart, description), workers);
}

std::filesystem::path CostTablePath(const CostTable::Key& key) {
  std::filesystem::path base;
  // Relative paths are ignored, as the XDG specification requires.
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache == '/') {
    base = cache;
  } else if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/') {
    base = std::filesystem::path(home) / ".cache";
  } else {
    // The folder is shared with other users; any of them can create a folder of that name first.
    return TableIn(
        std::filesystem::temp_directory_path() / fmt::format("chairlift-{}", ::geteuid()), key);
  }
  return TableIn(base / "chairlift", key);
}

}  // namespace chairlift
