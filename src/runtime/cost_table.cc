#include "runtime/cost_table.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <span>
#include <sstream>
#include <string_view>
#include <vector>

#include "base/version.h"
#include "device/cpu/cpu_device.h"
#include "device/device.h"

namespace chairlift {
namespace {

constexpr std::string_view kHeader = "chairlift cost table 1";
constexpr std::string_view kPart = ".part";  // of a table's name, while it is written

// FNV-1a: distinguishes files and notices damage; not a defence against forgery.
uint64_t Digest(uint64_t hash, std::string_view bytes) {
  for (const char c : bytes) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return hash;
}
constexpr uint64_t kDigestStart = 0xcbf29ce484222325u;

// The version, and the program's size and time: other kernels may be in it.
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

// What processes left that ended while they wrote.
void RemoveStaleParts(const std::filesystem::path& folder) {
  constexpr auto kStale = std::chrono::hours(1);
  namespace fs = std::filesystem;
  const auto now = fs::file_time_type::clock::now();
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code gone;  // another may remove it first
    if (it->path().extension() != kPart) continue;
    const auto written = it->last_write_time(gone);
    if (!gone && now - written > kStale) fs::remove(it->path(), gone);
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
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  if (error) {
    return Unavailable("cannot make the folder {}: {}", path.parent_path().string(),
                       error.message());
  }
  // Written beside and moved over: a reader sees the old table or the new one.
  static std::atomic<int> saves{0};
  const std::filesystem::path part =
      path.string() + fmt::format(".{}-{}{}", getpid(), ++saves, kPart);
  const auto failed = [&](const std::string& why) {
    std::error_code ignored;
    std::filesystem::remove(part, ignored);
    return Unavailable("cannot write {}: {}", path.string(), why);
  };
  RemoveStaleParts(path.parent_path());
  errno = 0;
  std::ofstream file(part, std::ios::trunc);
  if (!file) return failed(std::strerror(errno));
  const std::string body = Body();
  errno = 0;
  file << body << fmt::format("checksum {:016x}\n", Digest(kDigestStart, body));
  file.close();
  if (!file) return failed(errno != 0 ? std::strerror(errno) : "it is not whole");
  std::filesystem::rename(part, path, error);
  return error ? failed(error.message()) : absl::OkStatus();
}

StatusOr<CostTable> CostTable::Load(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) return NotFound("no cost table at {}", path.string());
  const std::string all{std::istreambuf_iterator<char>(file), {}};
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
    if (word != "cost" || rows < 1 || length < 0 || ns < 0) return broken("a line makes no sense");
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
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != '\0') {
    base = cache;
  } else if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0') {
    base = std::filesystem::path(home) / ".cache";
  } else {
    base = std::filesystem::temp_directory_path();
  }
  return base / "chairlift" / fmt::format("{}-{}.costs", key.model, key.workers);
}

}  // namespace chairlift
