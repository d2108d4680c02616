// One request as cells: its nodes, where they find their inputs, and what becomes of their outputs.
//
// A node's outputs are rows of the tensors that its task computed; they stay there, shared with the
// task's other nodes, until the last node that reads them has run.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_CELLS_CELL_REQUEST_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_CELLS_CELL_REQUEST_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "chairlift/unfold.h"
#include "engine/programs/cells/cell_program.h"
#include "engine/programs/program.h"
#include "engine/requests/answer_parts.h"

namespace chairlift {

// What one task computed: for each output of its cell [rows, row…].
using TaskOutputs = std::shared_ptr<const std::vector<Tensor>>;

// Guarded by mutex(), which whoever calls a function holds, but for those that say otherwise and
// while nobody else has the request yet. It may be held for as long as a user's unfolder takes:
// never taken under other locks.
class CellRequest final : public RequestGraph, public CellGraphBuilder {
 public:
  // More nodes than this fail the request (kInvalidArgument): what a hostile length would cost in
  // memory and time.
  static constexpr int32_t kMaxNodes = 1 << 18;

  explicit CellRequest(std::shared_ptr<const CellProgram> program, ValidatedRequest request = {});

  std::mutex& mutex() { return mutex_; }

  // Expects to be unfolded into so many nodes.
  void Reserve(int32_t nodes);

  // Collects parts of these outputs of the model. To be called before Begin().
  void CollectParts(std::span<const int> outputs);

  // Unfolds the inputs (in the model's order).
  Status Begin(std::span<const Tensor> inputs);

  // RequestGraph.
  int32_t num_nodes() const override { return static_cast<int32_t>(nodes_.size()); }
  GraphNode run(int32_t node) const override;
  bool done() const override { return left_ == 0; }
  void TakeParts(SendParts send) override;      // takes the mutex
  std::vector<GrownNode> TakeGrown() override;  // takes no lock that a user's code holds
  StatusOr<std::vector<NamedTensor>> TakeOutputs() override;

  int cell(NodeId node) const { return nodes_[node].cell; }
  int rows(NodeId node) const { return nodes_[node].rows; }
  // The nodes that it reads or follows; repeats are possible.
  std::span<const NodeId> dependencies(NodeId node) const;
  // Dimensions that the cell leaves open, of all inputs: nodes of one cell that share them may
  // share a batch.
  std::span<const int64_t> open_dims(NodeId node) const;
  // The node that a task may run before it as an earlier step, or −1; and the one that comes after.
  NodeId follows(NodeId node) const { return nodes_[node].follows; }
  NodeId follower(NodeId node) const { return nodes_[node].follower; }
  // Whether any other node than its follower is to read what it leaves, or what those leave that
  // follow it, `count` in all.
  bool ReadByOthers(NodeId node, int32_t count) const;

  // The shape of one row of an input.
  Shape RowShape(NodeId node, int input) const;
  // Where the rows of an input begin; every node that it reads must have run. kInternal where they
  // are not all there.
  Status Locate(NodeId node, int input, const std::byte** rows) const;
  // The same of the `count` nodes that follow a node, each of one row: to *rows, rows[stride], ….
  Status LocateFollowing(NodeId node, int32_t count, int input, const std::byte** rows,
                         int64_t stride) const;

  // A copy to be made when a node has run: from rows of its task's output.
  struct Copy {
    int output = 0;
    int64_t row = 0;  // of the node
    int64_t rows = 0;
    std::byte* to = nullptr;  // the target's tensor
    int64_t to_bytes = 0;
    RowTarget target;
  };
  // Of a node that has not run.
  void AppendCopies(NodeId node, std::vector<Copy>& copies) const;
  // Makes one: `outputs` are the task's, where the node's rows begin at `first_row`. kInternal
  // where the target has no such place.
  static Status Make(const Copy& copy, const std::vector<Tensor>& outputs, int64_t first_row);

  // A node has run and its copies are made. `outputs` may be absent where only its follower reads
  // them, which has run, too. May run a user's code, and add nodes. An error fails the request.
  Status Complete(NodeId node, TaskOutputs outputs, int64_t first_row);

  // Of a request that is done, by the model's outputs; absent where none was set.
  const std::vector<Tensor>& answers() const { return answers_; }

  // CellGraphBuilder.
  int AddTensor(Tensor tensor) override;
  int AddBuffer(DType dtype, const Shape& shape) override;
  NodeId AddNode(int cell, std::span<const RowSource> sources, int rows,
                 std::span<const NodeId> after, std::span<const Shape> row_shapes) override;
  void Deliver(NodeId node, int output, int64_t row, int64_t rows,
               const RowTarget& target) override;
  void Watch(NodeId node) override;
  void Keep(NodeId node) override;
  Tensor Output(NodeId node, int output) override;
  void SetAnswer(int output, int tensor, const AnswerAxes& axes) override;
  void Announce(NodeId node, const AnswerPart& part) override;
  void Emit(const AnswerPart& part, Tensor entries) override;
  bool Wants(int output) const override { return parts_ != nullptr && parts_->wants(output); }

 private:
  struct Node {
    int32_t cell = 0;
    int32_t rows = 0;
    int32_t sources = 0;       // first of sources_
    int32_t dependencies = 0;  // end in dependencies_
    int32_t open_dims = 0;     // end in open_dims_
    int32_t last_copy = -1;    // of deliveries_
    int32_t last_part = -1;    // of announced_
    int32_t readers = 0;       // nodes that have not run
    NodeId follows = -1;
    NodeId follower = -1;
    bool watched = false;
    bool kept = false;
    bool ran = false;
    int64_t first_row = 0;
    TaskOutputs outputs;
  };
  struct Delivery {
    int32_t before = -1;  // the node's one before
    int32_t output = 0;
    int64_t row = 0;
    int64_t rows = 0;
    RowTarget target;
  };

  struct Announced {
    int32_t before = -1;  // the node's one before
    AnswerPart part;
  };

  // Where a source's rows are: `begin` bytes into the tensor is its row 0.
  struct Origin {
    const Tensor* tensor = nullptr;
    int64_t begin = 0;
  };
  StatusOr<Origin> OriginOf(const RowSource& source) const;
  bool Expect(bool right, const char* what);
  // The node that the last one follows.
  NodeId FindFollowed() const;
  bool Wanted(const AnswerPart& part);
  bool IsNode(NodeId node) const { return node >= 0 && node < num_nodes(); }
  void ReleaseSources(const Node& node);
  void NoteGrown();
  Status CompleteParts(const Node& node);
  // status_, sharing nothing with it: ThreadSanitizer does not see how Abseil's library counts.
  Status Failure() const { return {status_.code(), status_.message()}; }

  std::mutex mutex_;
  const std::shared_ptr<const CellProgram> program_;
  const std::unique_ptr<Unfolder> unfolder_;
  Status status_;
  std::vector<Node> nodes_;
  std::vector<RowSource> sources_;
  std::vector<NodeId> dependencies_;
  std::vector<int64_t> open_dims_;
  std::vector<Delivery> deliveries_;
  std::vector<Tensor> tensors_;
  std::vector<Tensor> answers_;
  std::vector<AnswerAxes> axes_;        // by answer
  std::unique_ptr<AnswerParts> parts_;  // null: nobody asks for any
  std::vector<Announced> announced_;
  int32_t left_ = 0;                    // nodes that have not run
  int32_t known_ = 0;                   // nodes of Begin(), and those noted in grown_
  std::atomic<bool> has_grown_{false};  // grown_ is not empty; written under grown_mutex_
  std::mutex grown_mutex_;
  std::vector<GrownNode> grown_;  // guarded by grown_mutex_
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_CELLS_CELL_REQUEST_H_
