// A request whose nodes are ranges of its rows: one node, or several if it has many independent
// rows.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_ROWS_GRAPH_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_ROWS_GRAPH_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "engine/programs/program.h"
#include "engine/requests/row_parts.h"

namespace chairlift {

class RowsGraph : public RequestGraph {
 public:
  RowsGraph(ValidatedRequest request, int cell, bool padded)
      : RequestGraph(std::move(request)), cell_(cell), padded_(padded) {}

  GraphNode run(int32_t node) const final {
    return {.cell = cell_, .rows = load(node), .key = request().key, .dependencies = {}};
  }
  int32_t length() const final { return padded_ ? static_cast<int32_t>(request().length) : 0; }

  // Called by Leave(), on any thread. Set it before the request is scheduled.
  void set_on_leave(std::function<void()> on_leave) { on_leave_ = std::move(on_leave); }
  // Whether the answer is no longer needed. Thread-safe.
  bool left() const { return left_; }
  void Leave() final {
    left_ = true;
    if (on_leave_ != nullptr) on_leave_();
  }

  // The rows of a node that has not completed; valid until it has.
  virtual const ValidatedRequest& rows(int32_t node) = 0;
  virtual Status Complete(int32_t node, std::vector<NamedTensor> outputs,
                          const RowParts::Limits& limits) = 0;

 protected:
  int cell() const { return cell_; }

 private:
  virtual int32_t load(int32_t node) const = 0;

  const int cell_;
  const bool padded_;
  std::atomic<bool> left_ = false;
  std::function<void()> on_leave_;
};

struct RowsGraphOptions {
  int cell = 0;
  bool padded = false;  // rows are padded to ValidatedRequest::length
  // The most load of a node (ValidatedRequest::load()), but at least one row; 0: the request is one
  // node.
  int32_t max_load = 0;
  int at_once = 1;  // nodes that wait or run concurrently; each adds the next
};
std::unique_ptr<RowsGraph> MakeRowsGraph(ValidatedRequest request, const RowsGraphOptions& options);

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_ROWS_GRAPH_H_
