// One request as cells: its nodes, where they find their inputs, and what becomes of their outputs.
//
// A node's outputs are rows of the tensors that its task computed; they stay there, shared with the
// task's other nodes, until the last node that reads them has run.
//
// Nodes that follow each other and differ only in which row of the same tensors they read are kept
// as one run (CellGraph::Run), and so is what is delivered and announced of them: a chain takes the
// memory of one node, however many steps it has.
//
// Cells of another device than the CPU read and write its memory alone: the tensors that the
// unfolder brings are copied there before a node reads them (Place), what is delivered is collected
// there, and answers are copied back when they are complete. What tasks computed, nodes read where
// it lies.
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

  // Expects to be unfolded into so many runs.
  void Reserve(int32_t runs);

  // Collects parts of these outputs of the model. To be called before Begin().
  void CollectParts(std::span<const int> outputs);

  // Unfolds the inputs (in the model's order).
  Status Begin(std::span<const Tensor> inputs);

  // RequestGraph.
  int32_t num_nodes() const override { return num_nodes_; }
  int32_t num_runs() const override { return static_cast<int32_t>(runs_.size()); }
  GraphNode run(int32_t index) const override;
  bool done() const override { return left_ == 0; }
  void TakeParts(SendParts send) override;      // takes the mutex
  std::vector<GrownNode> TakeGrown() override;  // takes no lock that a user's code holds
  StatusOr<std::vector<NamedTensor>> TakeOutputs() override;

  int rows(NodeId node) const { return runs_[RunOf(node)].rows; }
  // Whether any other node than its follower is to read what it leaves, or what those leave that
  // follow it, `count` in all.
  bool ReadByOthers(NodeId node, int32_t count) const;

  // Where the cells are another device's than the CPU: what nodes may read there and deliver to is
  // placed in its memory, for a task at a time, in one copy for all its requests (cell_places.h).
  // To be called before each task, whose stream it is; may wait for another one's.
  Status WaitForPlaces(const Stream& stream) const;
  // The tensors that have no place yet.
  std::span<const Tensor> Unplaced() const;
  int num_placed() const { return static_cast<int>(there_.size()); }
  // Those behind the first `placed` have these, once `copied` is done, which is of the stream.
  // Where they have got places meanwhile, nothing changes.
  void Place(int placed, std::span<const Tensor> there, const std::shared_ptr<Event>& copied,
             const Stream& stream);
  // The stream of the task that Complete() is called for: Output() copies through it.
  void Use(Stream& stream) { stream_ = &stream; }

  // The shape of one row of an input.
  Shape RowShape(NodeId node, int input) const;
  // Where the rows of an input begin; every node that it reads must have run. kInternal where they
  // are not all there.
  Status Locate(NodeId node, int input, const std::byte** rows) const;
  // The same of the `count` nodes that follow a node, each of one row: to *rows, rows[stride], ….
  Status LocateFollowing(NodeId node, int32_t count, int input, const std::byte** rows,
                         int64_t stride) const;
  // Nodes alike: each is of one row; reads, besides what the one before left, rows that lie
  // `strides` bytes further on, by input, and that are there; leaves what none but the next one
  // reads; and has the same copies as the one before, each its stride further on. Returns the end
  // of those from `node` on: `node` where it is none.
  NodeId AlikeFrom(NodeId node, std::span<int64_t> strides) const;
  // Brings what Complete() reads into the caches. Without the mutex.
  void Prefetch() const { chairlift::Prefetch(&mutex_, kCompleteBytes); }
  // Likewise what CellBatch::Add() reads.
  void PrefetchSources() const {
    const auto* const begin = reinterpret_cast<const char*>(&mutex_);
    chairlift::Prefetch(begin, reinterpret_cast<const char*>(&answers_) - begin);
  }

  // A copy to be made when a node has run, from rows of its task's output; or one after each of
  // several steps, each to as many bytes further on.
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
  // Of a node and those that follow it, `steps` in all, none of which has run.
  void AppendCopies(NodeId node, int32_t steps, std::vector<Copy>& copies) const;
  // Where the cells are another device's, enqueues the way back to the host of what a task's copies
  // deliver, if the answer is wanted in parts.
  Status ReturnParts(std::span<const Copy> copies, Stream& stream);
  // What is to be copied back of a request that is done: by the first of its tasks that asks.
  // Nothing where its parts were.
  struct Delivered {
    const Tensor* there = nullptr;
    Tensor* host = nullptr;
  };
  std::vector<Delivered> ToReturn();
  // Makes one of a step that it has: `outputs` are the task's, where the node's rows begin at
  // `first_row`; move(from, to, bytes) is called for each piece. kInternal where the target has no
  // such place.
  using Move = absl::FunctionRef<void(const std::byte* from, std::byte* to, int64_t bytes)>;
  static Status Make(const Copy& copy, int32_t step, const std::vector<Tensor>& outputs,
                     int64_t first_row, Move move);

  // A node has run, and those that follow it, `steps` in all, and their copies are made.
  // `outputs`: of the last steps, one at least; absent of steps that only their followers read.
  // May run a user's code, and add nodes. An error fails the request.
  Status Complete(NodeId node, int32_t steps, std::span<const TaskOutputs> outputs,
                  int64_t first_row);

  // Adds up to `count` nodes that go on as the last two did: the node before is what each follows,
  // and its other sources, deliveries and announcements are as much further on again. As many calls
  // of AddNode(), Deliver() and Announce() would do the same. Returns how many it added: 0 where
  // the last two do not say.
  int32_t Repeat(int32_t count);

  // Of a request that is done, by the model's outputs; absent where none was set.
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
  // Nodes [first, first + count). What is said of outputs is said of the last one's: those of the
  // others are read by their followers only.
  struct Run {
    int32_t cell = 0;
    int32_t rows = 0;  // of each
    NodeId first = 0;
    int32_t count = 1;
    int32_t ran = 0;           // nodes
    int32_t sources = 0;       // first of sources_
    int32_t dependencies = 0;  // first of dependencies_; of the first node
    int32_t num_dependencies = 0;
    int32_t open_dims = 0;   // end in open_dims_
    int32_t last_copy = -1;  // of deliveries_
    int32_t last_part = -1;  // of announced_
    int32_t entries = 0;     // of these two
    int32_t readers = 0;     // inputs of runs that have not read them
    NodeId follows = -1;
    NodeId follower = -1;
    bool watched = false;
    bool kept = false;
    int64_t first_row = 0;
    TaskOutputs outputs;  // of the last node that has run

    NodeId last() const { return first + count - 1; }
    NodeId end() const { return first + count; }
  };
  // Of a run's first node; of the others, for inputs that no step feeds, `stride` rows further on
  // each.
  struct Source : RowSource {
    int64_t stride = 0;
  };
  // Of nodes [node, node + count) of one run.
  struct Delivery {
    int32_t before = -1;  // the run's one before
    NodeId node = 0;
    int32_t count = 1;
    int32_t output = 0;
    int64_t row = 0;
    int64_t rows = 0;
    RowTarget target;    // of the first
    int64_t stride = 0;  // of its offset, from each node to the next
    void Advance(int32_t nodes) { target.offset += nodes * stride; }
  };
  struct Announced {
    int32_t before = -1;  // the run's one before
    NodeId node = 0;
    int32_t count = 1;
    AnswerPart part;     // of the first
    int64_t stride = 0;  // likewise of its first entry
    void Advance(int32_t nodes) { part.first += nodes * stride; }
  };

  // Enqueues a copy of bytes [begin, end) of a tensor, from the device to the host.
  Status CopyBack(int32_t tensor, int64_t begin, int64_t end, Stream& stream);
  // Where nodes find and leave one of tensors_.
  const Tensor& placed(int32_t tensor) const {
    return there_.empty() ? tensors_[tensor] : there_[static_cast<size_t>(tensor)];
  }
  // Where a source's rows are: `begin` bytes into the tensor is its row 0.
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
  // Dimensions that the cell leaves open, of all inputs: nodes of one cell that share them may
  // share a batch.
  std::span<const int64_t> open_dims(int32_t run) const;
  Shape RowShapeOf(int32_t run, int input) const;
  // The node that one of these sources would follow; −1: none.
  NodeId FindFollowed(int cell, std::span<const RowSource> sources, int rows) const;
  // Makes the next node the last run's next one, where it differs from it in nothing else.
  bool Extend(int cell, std::span<const RowSource> sources, std::span<const NodeId> after);
  // Divides the run of a node that has not run so that the node is a run's last.
  void CutAfter(NodeId node);
  // Has one of the first entries that a run's list begins with go on to `added`, whose node comes
  // after its last, where goes_on(entry) holds.
  template <typename Entries, typename GoesOn>
  static bool Prolong(Entries& entries, int32_t last, const typename Entries::value_type& added,
                      GoesOn&& goes_on);
  bool Wanted(const AnswerPart& part);
  bool IsNode(NodeId node) const { return node >= 0 && node < num_nodes(); }
  // Of a run that has begun those that feed its first step, of one that has ended the others.
  void ReleaseSources(const Run& run, bool fed);
  void NoteGrown();
  // Of nodes [first, end).
  Status CompleteParts(const Run& run, NodeId first, NodeId end);
  Status CompleteRun(int32_t run, int32_t steps, TaskOutputs outputs, int64_t first_row);
  // status_, sharing nothing with it: ThreadSanitizer does not see how Abseil's library counts.
  Status Failure() const { return {status_.code(), status_.message()}; }

  static constexpr size_t kRunsInside = 3;  // what most chains are kept as
  // From mutex_ on: up to what each step does not need.
  static constexpr size_t kCompleteBytes = 128 + kRunsInside * sizeof(Run);

  std::mutex mutex_;
  const std::shared_ptr<const CellProgram> program_;
  int32_t num_nodes_ = 0;
  int32_t left_ = 0;                    // nodes that have not run
  std::unique_ptr<AnswerParts> parts_;  // null: nobody asks for any
  std::atomic<bool> has_grown_{false};  // grown_ is not empty; written under grown_mutex_
  absl::InlinedVector<Run, kRunsInside> runs_;
  // What most chains have of each lies in the object: it is out of the caches when it is needed.
  absl::InlinedVector<Source, 2 * kRunsInside> sources_;
  absl::InlinedVector<Delivery, 1> deliveries_;
  absl::InlinedVector<Tensor, 4> tensors_;
  std::vector<Tensor> there_;      // copies of them on the device, where it is another than the CPU
  Stream* stream_ = nullptr;       // of Use(), likewise
  bool returned_ = false;          // a task has the answers copied back, likewise
  std::shared_ptr<Event> placed_;  // the latest copies are there
  const Stream* placed_on_ = nullptr;  // others wait for it
  absl::InlinedVector<Tensor, 1> answers_;
  absl::InlinedVector<AnswerAxes, 1> axes_;  // by answer
  absl::InlinedVector<NodeId, kRunsInside> dependencies_;
  absl::InlinedVector<Announced, 1> announced_;
  std::vector<int64_t> open_dims_;
  std::unique_ptr<Unfolder> unfolder_;  // null once no node is watched
  Status status_;
  int32_t known_ = 0;    // runs of Begin(), and those noted in grown_
  int32_t watched_ = 0;  // runs that are and have not ended: what they change is not known yet
  std::mutex grown_mutex_;
  std::vector<GrownNode> grown_;  // guarded by grown_mutex_
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_CELLS_CELL_REQUEST_H_
