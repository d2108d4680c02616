// The workers of one Python model: starts them, gives them batches, watches them, and replaces them
// when they end.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_PROCESS_WORKER_GROUP_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_PROCESS_WORKER_GROUP_H_

#include <sys/epoll.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "engine/programs/model_calls.h"
#include "engine/programs/process/function_config.h"
#include "engine/programs/process/messages.h"
#include "engine/programs/process/model_caller.h"
#include "engine/programs/process/restart_policy.h"
#include "engine/programs/process/shared_region.h"
#include "engine/programs/process/worker_process.h"
#include "engine/programs/process/worker_protocol.h"
#include "ops/operator.h"

namespace chairlift {

// A batch for a Python model. Called by one thread at a time.
class FunctionBatch {
 public:
  virtual ~FunctionBatch() = default;

  virtual int64_t rows() const = 0;
  virtual int64_t tokens() const = 0;  // of all rows, if inputs are ragged
  // As in RunMessage::inputs.
  virtual const std::vector<TensorDesc>& inputs() const = 0;
  virtual size_t max_output_bytes() const = 0;
  // For its calls to other models; nothing: no deadline.
  virtual std::optional<TimePoint> deadline() const = 0;
  // Whether its result is still needed; once false, it stays false.
  virtual bool wanted() const = 0;
  // Rows whose results are no longer needed. Each row is returned once.
  virtual std::vector<CancelledRows> TakeLeft() = 0;
  // Whether this is a second attempt, of one request of a batch whose worker had ended. If a worker
  // ends again, that request is the cause, not the function.
  virtual bool retried() const = 0;
  // For a stream: whether it may produce more, or must wait until its output has been read.
  virtual bool MayGoOn(TimePoint now) = 0;
  // Writes an input of the size in inputs(). Called again if a worker ends before it has started
  // the batch.
  virtual void Write(size_t input, std::byte* place) = 0;
  // The outputs, as in WorkerResult::outputs, with checked types and shapes. Their memory is reused
  // after this returns, and the worker may write to it at any time. A returned error fails the
  // batch.
  virtual Status Take(std::span<const Tensor> outputs) = 0;
  // Steps of the outputs, before Take(), under the same conditions.
  virtual void TakePart(std::span<const Tensor> outputs) = 0;

  enum class Failure {
    kNone,
    kRaised,  // the code did, or it returned something invalid
    kEnded,   // the worker ended while it had the batch
    kNever,   // it was not started, or it was cancelled
  };
  struct Times {
    Duration write{0};
    Duration compute{0};  // including communication, excluding batches before it
    Duration take{0};
  };
  // The last call, on the group's thread. The batch is destroyed after it.
  virtual void Done(Failure failure, Status status, const Times& times) = 0;
};

// Thread-safe. A separate thread reads the workers' messages and runs FunctionBatch::Take() and
// Done().
//
// Each worker has `batches_in_flight` slots of shared memory. A batch goes to the worker with the
// fewest batches, or waits for a slot. If a worker ends, the batch that it was computing is lost;
// those behind it go to another worker.
class WorkerGroup {
 public:
  struct Options {
    std::string name;  // for the log
    FunctionConfig config;
    std::filesystem::path file;  // of the Python code
    // The methods that run here: for a class "preprocess,predict,postprocess" or some of them.
    std::string parts;
    ModelCalls* calls = nullptr;             // null: calls to other models are not possible
    std::function<bool()> interrupted = {};  // checked while the workers load; may be null
  };
  // Returns when all workers are ready. InvalidArgument with the traceback if the code cannot be
  // loaded; Cancelled if it was interrupted.
  static StatusOr<std::unique_ptr<WorkerGroup>> Start(Options options);
  // Must not run on the group's own thread, nor with batches in flight.
  ~WorkerGroup();
  WorkerGroup(const WorkerGroup&) = delete;
  WorkerGroup& operator=(const WorkerGroup&) = delete;

  // Constant.
  const WorkerReady& signature() const { return signature_; }
  bool OnOwnThread() const { return std::this_thread::get_id() == thread_.get_id(); }

  // Does not wait. At most workers · batches_in_flight batches may be submitted at the same time.
  void Submit(std::unique_ptr<FunctionBatch> batch);
  // kUnavailable, with the reason, if workers keep ending.
  Status Ready() const;
  // Some batch, or rows of it, may not be wanted any more. Does not wait.
  void NoteLeft() const { Wake(); }
  // Ends the workers. Their batches, and later ones, fail.
  void End();
  // Workers that have ended by themselves or were killed since the start.
  int64_t deaths() const { return deaths_; }
  std::vector<pid_t> ProcessIds() const;  // of the ready ones

 private:
  struct Slot {
    std::unique_ptr<SharedRegion> input, output;
    bool taken = false;
  };
  struct InFlight {
    std::unique_ptr<FunctionBatch> batch;
    int slot = 0;
    TimePoint sent;
    FunctionBatch::Times times;
    Status cancelled = {};  // the reason, if it was cancelled
    TimePoint cancelled_at = {};
  };
  struct Worker {
    uint64_t id = 0;
    std::unique_ptr<WorkerProcess> process;
    std::shared_ptr<ModelCaller> caller;
    WorkerProtocol protocol;
    std::vector<Slot> slots;
    std::deque<InFlight> in_flight;  // in the order of the protocol
    int writing = 0;                 // slots being filled with inputs
    TimePoint front_begun;           // when the first in flight could start
    // When the first could start, or when it produced its last step.
    TimePoint front_since;
    // Bytes that the first has asked for, withheld until its output is read.
    std::optional<uint64_t> held;
    TimePoint deadline;   // for loading, or for ending
    int64_t batches = 0;  // computed
    bool spare = false;
    bool worn = false;     // must be replaced
    bool closing = false;  // gets no more batches and must end
    bool closed = false;   // was asked to end
    bool deaf = false;     // did not accept a message
    bool hung_up = false;  // its end of the socket is closed
    bool dead = false;
    int load() const { return static_cast<int>(in_flight.size()) + writing; }
    bool serves() const {
      return protocol.ready() && !spare && !closing && !deaf && !hung_up && !dead;
    }
  };
  using Lock = std::unique_lock<std::mutex>;
  struct Ended {
    std::unique_ptr<FunctionBatch> batch;
    FunctionBatch::Failure failure = FunctionBatch::Failure::kNone;
    Status status;
    FunctionBatch::Times times;
  };

  // The source of an event of epoll_: kWakeEvent, or a worker's descriptor.
  enum class Source : uint64_t { kSocket = 0, kOutput = 1, kProcess = 2 };
  static constexpr uint64_t kWakeEvent = 0;
  static uint64_t EventOf(uint64_t worker, Source source) {
    return worker << 2 | static_cast<uint64_t>(source);
  }
  static constexpr auto kTimeToEnd = std::chrono::seconds(2);

  explicit WorkerGroup(Options options);

  void Wake() const;
  // Run by the thread (worker_group_hearing.cc, worker_group_lives.cc):
  void Main();
  Status StartWorker();
  void Hear(const std::shared_ptr<Worker>& worker);
  void HearOne(const std::shared_ptr<Worker>& worker, WorkerMessage message);
  void Answer(const std::shared_ptr<Worker>& worker, FunctionBatch::Failure failure, Status status,
              const WorkerResult* result);
  void TakePart(const std::shared_ptr<Worker>& worker, const WorkerPart& part);
  void Call(const std::shared_ptr<Worker>& worker, const WorkerCall& call);
  void GiveRoom(Worker& worker, uint64_t bytes);
  void GiveHeld();
  // Cancels batches that are no longer needed, and streams that take too long.
  void CancelDue();
  void BecomeReady(Worker& worker);
  void Lose(const std::shared_ptr<Worker>& worker, std::string why);
  void Log(Worker& worker);
  void CheckWear(Worker& worker);
  void CloseIfIdle(Worker& worker);
  void StartDue();
  // Starts another worker, or ends one, depending on the load.
  void Resize();
  void KillOverdue();
  void FinishEnded();
  int WaitMs() const;
  int Await(std::span<epoll_event> events);
  // Under the lock:
  std::shared_ptr<Worker> FreeWorker(int& slot);
  bool Unusable() const;
  void Cancel(Worker& worker, InFlight& batch, Status why);
  // When the stream that it computes must have ended.
  TimePoint StreamDeadlineOf(const Worker& worker) const;
  TimePoint CancelDeadlineOf(const Worker& worker) const;
  // When it must have answered, loaded or ended.
  TimePoint DeadlineOf(const Worker& worker) const;
  std::string WhyOverdue(const Worker& worker) const;
  // Writes the batch to its reserved slot and sends it.
  void Deliver(const std::shared_ptr<Worker>& worker, int slot,
               std::unique_ptr<FunctionBatch> batch);
  void DeliverWaiting();

  const Options options_;
  const Clock& clock_ = Clock::Steady();
  bool watches_ = false;  // used by the thread only
  int epoll_ = -1;
  int wake_ = -1;
  WorkerReady signature_;
  std::atomic<int64_t> deaths_{0};
  // Used by the thread: how many workers should run; since when all have been busy; when they last
  // were.
  int wanted_;
  std::optional<TimePoint> busy_since_;
  TimePoint last_busy_;

  mutable std::mutex mutex_;
  std::condition_variable loaded_changed_;
  // Everything below is guarded by mutex_; a worker's process is used by the thread only, except
  // Send().
  std::map<uint64_t, std::shared_ptr<Worker>> workers_;
  std::deque<std::unique_ptr<FunctionBatch>> waiting_;
  std::vector<Ended> ended_;       // to be reported on the thread
  std::vector<TimePoint> starts_;  // when more workers must be started
  RestartPolicy restarts_;
  std::string last_death_;
  std::optional<Status> loaded_;  // result of the first workers
  uint64_t next_worker_ = 1;
  uint64_t next_sequence_ = 1;
  bool ending_ = false;    // End() was called
  bool stopping_ = false;  // the destructor runs
  std::thread thread_;     // started last
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_PROCESS_WORKER_GROUP_H_
