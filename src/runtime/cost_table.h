// The cost of a model's batches by rows and length: measured once, kept on disk.
#ifndef CHAIRLIFT_RUNTIME_COST_TABLE_H_
#define CHAIRLIFT_RUNTIME_COST_TABLE_H_

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace chairlift {

// Each cost is the time of the whole batch. Not thread-safe while it is filled.
class CostTable {
 public:
  // What the costs are valid for. A table with another key is not used.
  struct Key {
    std::string model;   // digest of the measured model
    std::string device;  // CPU name, instruction set
    std::string build;   // Chairlift's version and build
    int workers = 1;
    friend bool operator==(const Key&, const Key&) = default;
  };

  explicit CostTable(Key key) : key_(std::move(key)) {}

  const Key& key() const { return key_; }
  void Set(int64_t rows, int64_t length, std::chrono::nanoseconds cost) {
    costs_[{rows, length}] = cost;
  }
  // By (rows, length).
  const std::map<std::pair<int64_t, int64_t>, std::chrono::nanoseconds>& costs() const {
    return costs_;
  }

  // Writes a text file: the key, a line per cost, a checksum. Creates the folder if it is missing,
  // closes it to other users, and keeps the latest 4096 tables. kUnavailable if it cannot be
  // written or belongs to another user.
  Status Save(const std::filesystem::path& path) const;
  // kNotFound: no such file. kInvalidArgument: not a table, truncated, modified or too large.
  // kUnavailable: its folder belongs to another user.
  static StatusOr<CostTable> Load(const std::filesystem::path& path);

 private:
  std::string Body() const;

  Key key_;
  std::map<std::pair<int64_t, int64_t>, std::chrono::nanoseconds> costs_;
};

// The key of a model file on this machine and build.
StatusOr<CostTable::Key> CostTableKey(const std::filesystem::path& model, int workers);
// The key of anything else. `description` must differ whenever the time may.
CostTable::Key CostTableKeyOf(std::string_view description, int workers);
// The file of a table: $XDG_CACHE_HOME or ~/.cache, /chairlift/<digest>-<workers>.costs. Without
// either: in chairlift-<user id> in the folder for temporary files.
std::filesystem::path CostTablePath(const CostTable::Key& key);

}  // namespace chairlift

#endif  // CHAIRLIFT_RUNTIME_COST_TABLE_H_
