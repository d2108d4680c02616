// The workers of one function: started, fed with batches, watched, and replaced when they end.
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
#include "engine/programs/process/model_caller.h"
#include "engine/programs/process/restart_policy.h"
#include "engine/programs/process/shared_region.h"
#include "engine/programs/process/worker_process.h"
#include "engine/programs/process/worker_protocol.h"
#include "ops/operator.h"

namespace chairlift {

// A batch for a function. Called by one thread at a time.
class FunctionBatch {
 public:
  virtual ~FunctionBatch() = default;

  virtual int64_t rows() const = 0;
  virtual int64_t tokens() const = 0;  // of all rows, where inputs are ragged
  // As RunMessage::inputs.
  virtual const std::vector<TensorDesc>& inputs() const = 0;
  virtual size_t max_output_bytes() const = 0;
  // Of what it asks other models; nothing: none.
  virtual std::optional<TimePoint> deadline() const = 0;
  // Whether somebody still waits for it; once false, it stays so.
  virtual bool wanted() const = 0;
  // It was begun before with others, and its worker ended: that it ends again says nothing of the
  // function.
  virtual bool retried() const = 0;
  // For a stream: whether it may make more, or must wait until what it made has been read.
  virtual bool MayGoOn(TimePoint now) = 0;
  // Writes an input, of the size that inputs() says. May come again, where a worker has ended that
  // had not begun the batch.
  virtual void Write(size_t input, std::byte* place) = 0;
  // The outputs, as WorkerResult::outputs, of types and shapes that were checked. They lie in
  // memory that is another batch's once this has returned, and that the worker may write to even
  // now. What is returned fails the batch.
  virtual Status Take(std::span<const Tensor> outputs) = 0;
  // Steps of the outputs, before Take(); likewise.
  virtual void TakePart(std::span<const Tensor> outputs) = 0;

  enum class Failure {
    kNone,
    kRaised,  // the function did, or returned what it must not
    kEnded,   // the worker did, while it had the batch
    kNever,   // neither: it was not begun, or it was cancelled
  };
  struct Times {
    Duration write{0};
    Duration compute{0};  // with the way there and back, without what was in front of it
    Duration take{0};
  };
  // The last call, on the group's thread. The batch is destroyed when it has returned.
  virtual void Done(Failure failure, Status status, const Times& times) = 0;
};

// Thread-safe. A thread of its own hears the workers and runs FunctionBatch::Take() and Done().
//
// Each worker has `batches_in_flight` slots of shared memory. A batch goes to the worker with the
// fewest, or waits for a slot; a worker that ends takes with it the batch that it was computing,
// those behind go to another.
class WorkerGroup {
 public:
  struct Options {
    std::string name;  // for the log
    FunctionConfig config;
    std::filesystem::path file;  // of the function
    // What of it runs here, of a class "preprocess,predict,postprocess" or some of these.
    std::string parts;
    ModelCalls* calls = nullptr;             // null: it can call none
    std::function<bool()> interrupted = {};  // asked while the workers load; may be null
  };
  // Returns when all workers are ready. InvalidArgument with the traceback where the function
  // cannot be loaded; Cancelled where it was interrupted.
  static StatusOr<std::unique_ptr<WorkerGroup>> Start(Options options);
  // Not on the group's own thread. No batch is in flight.
  ~WorkerGroup();
  WorkerGroup(const WorkerGroup&) = delete;
  WorkerGroup& operator=(const WorkerGroup&) = delete;

  // Constant.
  const WorkerReady& signature() const { return signature_; }
  bool OnOwnThread() const { return std::this_thread::get_id() == thread_.get_id(); }

  // Does not wait. At most workers · batches_in_flight at a time are begun at once.
  void Submit(std::unique_ptr<FunctionBatch> batch);
  // kUnavailable with the reason, where workers end again and again.
  Status Ready() const;
  // Some batch may not be wanted any more. Does not wait.
  void NoteLeft() const { Wake(); }
  // Ends the workers; what they have, and what comes later, fails.
  void End();
  // Workers that have ended by themselves or were killed, since the start.
  int64_t deaths() const { return deaths_; }
  std::vector<pid_t> ProcessIds() const;  // of those that are ready

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
    Status cancelled = {};  // why, where it was
    TimePoint cancelled_at = {};
  };
  struct Worker {
    uint64_t id = 0;
    std::unique_ptr<WorkerProcess> process;
    std::shared_ptr<ModelCaller> caller;
    WorkerProtocol protocol;
    std::vector<Slot> slots;
    std::deque<InFlight> in_flight;  // as the protocol's
    int writing = 0;                 // slots into which inputs are being written
    TimePoint front_begun;           // when the first in flight could begin
    TimePoint front_since;           // likewise, or when it made its last step
    std::optional<uint64_t> held;    // bytes that the first asked for, until what it made is read
    TimePoint deadline;              // for loading, or for ending
    int64_t batches = 0;             // computed
    bool spare = false;
    bool worn = false;     // it is to be replaced
    bool closing = false;  // it gets no more batches, and is to end
    bool closed = false;   // it has been told to
    bool deaf = false;     // it did not take what it was sent
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

  // What an event of epoll_ is of: kWakeEvent, or a worker's descriptor.
  enum class Source : uint64_t { kSocket = 0, kOutput = 1, kProcess = 2 };
  static constexpr uint64_t kWakeEvent = 0;
  static uint64_t EventOf(uint64_t worker, Source source) {
    return worker << 2 | static_cast<uint64_t>(source);
  }
  static constexpr auto kTimeToEnd = std::chrono::seconds(2);

  explicit WorkerGroup(Options options);

  void Wake() const;
  // Of the thread (worker_group_hearing.cc, worker_group_lives.cc):
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
  // Cancels what nobody waits for any more, and streams that take too long.
  void CancelDue();
  void BecomeReady(Worker& worker);
  void Lose(const std::shared_ptr<Worker>& worker, std::string why);
  void Log(Worker& worker);
  void CheckWear(Worker& worker);
  void CloseIfIdle(Worker& worker);
  void StartDue();
  // Starts a further worker, or ends one, as they are busy.
  void Resize();
  void KillOverdue();
  void FinishEnded();
  int WaitMs() const;
  int Await(std::span<epoll_event> events);
  // Under the lock:
  std::shared_ptr<Worker> FreeWorker(int& slot);
  bool Unusable() const;
  void Cancel(Worker& worker, InFlight& batch, Status why);
  // When the stream that it computes is to have ended.
  TimePoint StreamDeadlineOf(const Worker& worker) const;
  TimePoint CancelDeadlineOf(const Worker& worker) const;
  // When it is to have answered, or loaded, or ended.
  TimePoint DeadlineOf(const Worker& worker) const;
  std::string WhyOverdue(const Worker& worker) const;
  // Writes the batch into a slot that is taken for it, and sends it.
  void Deliver(const std::shared_ptr<Worker>& worker, int slot,
               std::unique_ptr<FunctionBatch> batch);
  void DeliverWaiting();

  const Options options_;
  const Clock& clock_ = Clock::Steady();
  bool watches_ = false;  // of the thread alone
  int epoll_ = -1;
  int wake_ = -1;
  WorkerReady signature_;
  std::atomic<int64_t> deaths_{0};
  // Of the thread: workers that are to serve; since when all have been busy; when they last were.
  int wanted_;
  std::optional<TimePoint> busy_since_;
  TimePoint last_busy_;

  mutable std::mutex mutex_;
  std::condition_variable loaded_changed_;
  // All below is guarded by mutex_; a worker's process is the thread's, but for Send().
  std::map<uint64_t, std::shared_ptr<Worker>> workers_;
  std::deque<std::unique_ptr<FunctionBatch>> waiting_;
  std::vector<Ended> ended_;       // to be told on the thread
  std::vector<TimePoint> starts_;  // when further workers are to be started
  RestartPolicy restarts_;
  std::string last_death_;
  std::optional<Status> loaded_;  // of the first workers
  uint64_t next_worker_ = 1;
  uint64_t next_sequence_ = 1;
  bool ending_ = false;    // End()
  bool stopping_ = false;  // the destructor
  std::thread thread_;     // started last
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_PROCESS_WORKER_GROUP_H_
