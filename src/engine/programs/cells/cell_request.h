// One request as cells: its nodes, where they find their inputs, and where their outputs go.
//
// A node's outputs are rows of the tensors that its task computed. They stay there, shared with the
// task's other nodes, until the last node that reads them has run.
//
// Consecutive nodes that differ only in which row of the same tensors they read are stored as one
// run (CellGraph::Run), and so are their deliveries and announcements. A chain takes the memory of
// one node, however many steps it has.
//
// Cells on another device than the CPU only access that device's memory. Tensors from the unfolder
// are copied there before a node reads them (Place), delivered rows are collected there, and
// answers are copied back when they are complete. Nodes read the results of tasks in place.
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
#include "absl/functional/function_ref.h"
#include "base/prefetch.h"
#include "chairlift/unfold.h"
#include "device/device.h"
#include "engine/programs/cells/cell_program.h"
#include "engine/programs/program.h"
#include "engine/requests/answer_parts.h"

namespace chairlift {

// What one task computed: for each output of its cell [rows, row…].
using TaskOutputs = std::shared_ptr<const std::vector<Tensor>>;

// Guarded by mutex(). Callers must hold it, except for functions that say otherwise, and while no
// other thread has the request yet. It may be held for as long as a user's unfolder takes, so it is
// never taken under other locks.
class CellRequest final : public RequestGraph, public CellGraphBuilder {
 public:
  // More nodes than this fail the request (kInvalidArgument): a bound on memory and time for
  // hostile lengths.
  static constexpr int32_t kMaxNodes = 1 << 18;

  explicit CellRequest(std::shared_ptr<const CellProgram> program, ValidatedRequest request = {});

  std::mutex& mutex() { return mutex_; }

  // Reserves memory for this many runs.
  void Reserve(int32_t runs);

  // Collects parts of these outputs of the model. Call it before Begin().
  void CollectParts(std::span<const int> outputs);

  // Unfolds the inputs (in the model's order).
  Status Begin(std::span<const Tensor> inputs);

  // RequestGraph.
  int32_t num_nodes() const override { return num_nodes_; }
  int32_t num_runs() const override { return static_cast<int32_t>(runs_.size()); }
  GraphNode run(int32_t index) const override;
  bool done() const override { return left_ == 0; }
  void TakeParts(SendParts send) override;      // takes the mutex
  std::vector<GrownNode> TakeGrown() override;  // takes no lock that a user's code may hold
  StatusOr<std::vector<NamedTensor>> TakeOutputs() override;

  int rows(NodeId node) const { return runs_[RunOf(node)].rows; }
  // Whether any node other than the follower reads the outputs of this node, or of its `count`
  // followers.
  bool ReadByOthers(NodeId node, int32_t count) const;

  // For cells on another device: allocates device memory for what nodes read and deliver to, for
  // one task at a time, in one copy for all its requests (cell_places.h). Called before each task
  // with its stream; may wait for another task's.
  Status WaitForPlaces(const Stream& stream) const;
  // The tensors without a place.
  std::span<const Tensor> Unplaced() const;
  int num_placed() const { return static_cast<int>(there_.size()); }
  // Sets the places of the tensors after the first `placed`; they are valid once `copied`, an event
  // of the stream, is done. If they got places meanwhile, nothing changes.
  void Place(int placed, std::span<const Tensor> there, const std::shared_ptr<Event>& copied,
             const Stream& stream);
  // The stream of the task that Complete() is called for; Output() copies through it.
  void Use(Stream& stream) { stream_ = &stream; }

  // The shape of one row of an input.
  Shape RowShape(NodeId node, int input) const;
  // The start of an input's rows; every node that it reads must have run. kInternal if some rows do
  // not exist.
  Status Locate(NodeId node, int input, const std::byte** rows) const;
  // The same for the `count` nodes that follow a node, each of one row: at *rows, rows[stride], ….
  Status LocateFollowing(NodeId node, int32_t count, int input, const std::byte** rows,
                         int64_t stride) const;
  // Nodes are alike if each has one row and differs from the previous one by fixed distances. Its
  // inputs other than the previous node's result are `strides` bytes further on, by input, and
  // exist. Only the next node reads its result. Its copies are the previous node's, each advanced
  // by its stride. Returns the end of the alike nodes from `node` on; `node` if there are none.
  NodeId AlikeFrom(NodeId node, std::span<int64_t> strides) const;
  // Prefetches what Complete() reads. Called without the mutex.
  void Prefetch() const { chairlift::Prefetch(&mutex_, kCompleteBytes); }
  // Prefetches what CellBatch::Add() reads.
  void PrefetchSources() const {
    const auto* const begin = reinterpret_cast<const char*>(&mutex_);
    chairlift::Prefetch(begin, reinterpret_cast<const char*>(&answers_) - begin);
  }

  // A copy to be made when a node has run, from rows of its task's output. For several steps: one
  // copy after each, each at the same distance from the previous one.
  struct Copy {
    int32_t begin = 0;  // the first step
    int32_t end = 1;    // after the last
    int output = 0;
    int64_t row = 0;  // of the node
    int64_t rows = 0;
    int64_t row_bytes = 0;    // of the output
    std::byte* to = nullptr;  // the target's tensor
    int64_t to_bytes = 0;
    RowTarget target;  // of the first step
    int64_t stride = 0;
  };
  // For a node and its followers, `steps` in total, none of which has run.
  void AppendCopies(NodeId node, int32_t steps, std::vector<Copy>& copies) const;
  // For cells on another device: enqueues the copy to the host of what a task delivers, if the
  // answer is requested in parts.
  Status ReturnParts(std::span<const Copy> copies, Stream& stream);
  // What must be copied back for a completed request; given to the first of its tasks that asks.
  // Empty if its parts were copied already.
  struct Delivered {
    const Tensor* there = nullptr;
    Tensor* host = nullptr;
  };
  std::vector<Delivered> ToReturn();
  // Makes one copy for a step: `outputs` are the task's, and the node's rows begin at `first_row`;
  // move(from, to, bytes) is called for each piece. kInternal if the target has no such place.
  using Move = absl::FunctionRef<void(const std::byte* from, std::byte* to, int64_t bytes)>;
  static Status Make(const Copy& copy, int32_t step, const std::vector<Tensor>& outputs,
                     int64_t first_row, Move move);

  // A node and its followers, `steps` in total, have run, and their copies have been made.
  // `outputs`: of the last steps, at least one; absent for steps that only their followers read.
  // May run a user's code, and add nodes. An error fails the request.
  Status Complete(NodeId node, int32_t steps, std::span<const TaskOutputs> outputs,
                  int64_t first_row);

  // Adds up to `count` nodes that continue the pattern of the last two: each follows the previous
  // one, and its other sources, deliveries and announcements advance by the same distances.
  // Equivalent to that many calls of AddNode(), Deliver() and Announce(). Returns the number added:
  // 0 if the last two have no pattern.
  int32_t Repeat(int32_t count);

  // For a completed request, by the model's outputs; absent if none was set.
  std::span<const Tensor> answers() const { return answers_; }

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
  // Nodes [first, first + count). Information about outputs is for the last one: those of the
  // others are only read by their followers.
  struct Run {
    int32_t cell = 0;
    int32_t rows = 0;  // of each node
    NodeId first = 0;
    int32_t count = 1;
    int32_t ran = 0;           // nodes
    int32_t sources = 0;       // start in sources_
    int32_t dependencies = 0;  // start in dependencies_; for the first node
    int32_t num_dependencies = 0;
    int32_t open_dims = 0;   // end in open_dims_
    int32_t last_copy = -1;  // index into deliveries_
    int32_t last_part = -1;  // index into announced_
    int32_t entries = 0;     // of these two
    int32_t readers = 0;     // inputs of runs that have not read it yet
    NodeId follows = -1;
    NodeId follower = -1;
    bool watched = false;
    bool kept = false;
    int64_t first_row = 0;
    TaskOutputs outputs;  // of the last node that has run

    NodeId last() const { return first + count - 1; }
    NodeId end() const { return first + count; }
  };
  // For a run's first node; for the others, inputs that no step feeds advance by `stride` rows
  // each.
  struct Source : RowSource {
    int64_t stride = 0;
  };
  // For nodes [node, node + count) of one run.
  struct Delivery {
    int32_t before = -1;  // the run's previous one
    NodeId node = 0;
    int32_t count = 1;
    int32_t output = 0;
    int64_t row = 0;
    int64_t rows = 0;
    RowTarget target;    // for the first node
    int64_t stride = 0;  // of its offset, between nodes
    void Advance(int32_t nodes) { target.offset += nodes * stride; }
  };
  struct Announced {
    int32_t before = -1;  // the run's previous one
    NodeId node = 0;
    int32_t count = 1;
    AnswerPart part;     // for the first node
    int64_t stride = 0;  // of its first entry, between nodes
    void Advance(int32_t nodes) { part.first += nodes * stride; }
  };

  // Enqueues a copy of bytes [begin, end) of a tensor from the device to the host.
  Status CopyBack(int32_t tensor, int64_t begin, int64_t end, Stream& stream);
  // Where nodes read and write one of tensors_.
  const Tensor& placed(int32_t tensor) const {
    return there_.empty() ? tensors_[tensor] : there_[static_cast<size_t>(tensor)];
  }
  // Where a source's rows are: its row 0 is `begin` bytes into the tensor.
  struct Origin {
    const Tensor* tensor = nullptr;
    int64_t begin = 0;
  };
  StatusOr<Origin> OriginOf(const RowSource& source) const;
  bool Expect(bool right, const char* what);
  int32_t RunOf(NodeId node) const;
  // Whether a node has run.
  static bool Ran(const Run& run, NodeId node) { return node < run.first + run.ran; }
  std::span<const NodeId> dependencies(int32_t run) const;
  // Dimensions that the cell leaves open, for all inputs: nodes of one cell with equal ones may
  // share a batch.
  std::span<const int64_t> open_dims(int32_t run) const;
  Shape RowShapeOf(int32_t run, int input) const;
  // The node that a node with these sources would follow; −1: none.
  NodeId FindFollowed(int cell, std::span<const RowSource> sources, int rows) const;
  // Appends the next node to the last run, if it differs only in ways that a run allows.
  bool Extend(int cell, std::span<const RowSource> sources, std::span<const NodeId> after);
  // Divides the run of a node that has not run so that the node is the last of its run.
  void CutAfter(NodeId node);
  // Extends one of the first entries of a run's list by `added`, whose node comes after its last,
  // if goes_on(entry) is true.
  template <typename Entries, typename GoesOn>
  static bool Prolong(Entries& entries, int32_t last, const typename Entries::value_type& added,
                      GoesOn&& goes_on);
  bool Wanted(const AnswerPart& part);
  bool IsNode(NodeId node) const { return node >= 0 && node < num_nodes(); }
  // Releases the outputs that a run reads: with `fed`, what only its first step reads in place of
  // the previous step's result (when it has started); without, all other sources (when it has
  // ended).
  void ReleaseSources(const Run& run, bool fed);
  void NoteGrown();
  // For nodes [first, end).
  Status CompleteParts(const Run& run, NodeId first, NodeId end);
  Status CompleteRun(int32_t run, int32_t steps, TaskOutputs outputs, int64_t first_row);
  // A copy of status_ that shares nothing: ThreadSanitizer does not see the reference counting
  // inside Abseil's library.
  Status Failure() const { return {status_.code(), status_.message()}; }

  static constexpr size_t kRunsInside = 3;  // enough for most chains
  // From mutex_ on, up to members that not every step needs.
  static constexpr size_t kCompleteBytes = 128 + kRunsInside * sizeof(Run);

  std::mutex mutex_;
  const std::shared_ptr<const CellProgram> program_;
  int32_t num_nodes_ = 0;
  int32_t left_ = 0;                    // nodes that have not run
  std::unique_ptr<AnswerParts> parts_;  // null: no parts are requested
  std::atomic<bool> has_grown_{false};  // grown_ is not empty; written under grown_mutex_
  absl::InlinedVector<Run, kRunsInside> runs_;
  // Inline capacity for most chains, so that fewer cache lines are missed when it is needed.
  absl::InlinedVector<Source, 2 * kRunsInside> sources_;
  absl::InlinedVector<Delivery, 1> deliveries_;
  absl::InlinedVector<Tensor, 4> tensors_;
  std::vector<Tensor> there_;          // copies of them on the device, if it is not the CPU
  Stream* stream_ = nullptr;           // set by Use(); for another device
  bool returned_ = false;              // a task has enqueued copying the answers back
  std::shared_ptr<Event> placed_;      // event: the latest copies are done
  const Stream* placed_on_ = nullptr;  // other streams wait for it
  absl::InlinedVector<Tensor, 1> answers_;
  absl::InlinedVector<AnswerAxes, 1> axes_;  // by answer
  absl::InlinedVector<NodeId, kRunsInside> dependencies_;
  absl::InlinedVector<Announced, 1> announced_;
  std::vector<int64_t> open_dims_;
  std::unique_ptr<Unfolder> unfolder_;  // null when no node is watched any more
  Status status_;
  int32_t known_ = 0;    // runs of Begin(), and those recorded in grown_
  int32_t watched_ = 0;  // watched runs that have not ended: their effect is not known yet
  std::mutex grown_mutex_;
  std::vector<GrownNode> grown_;  // guarded by grown_mutex_
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_CELLS_CELL_REQUEST_H_
