// Programs that run a model as a whole: a request is a graph of one node, or of several if it has
// many independent rows; each is a range of its rows.
#ifndef CHAIRLIFT_ENGINE_PROGRAMS_SINGLE_NODE_H_
#define CHAIRLIFT_ENGINE_PROGRAMS_SINGLE_NODE_H_

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "engine/programs/device_lanes.h"
#include "engine/programs/joined_requests.h"
#include "engine/programs/program.h"

namespace chairlift {

// Common behaviour. Requests that must run alone do so, the others run together. If several fail
// together, each is run again alone, so that none fails because of another's data. A request that
// needs more memory than the worker has (Arena::limit) runs in halves if its rows are independent,
// and is refused otherwise (kOutOfRange).
class SingleNodeProgram : public Program {
 public:
  StatusOr<ProgramView> View() override;
  StatusOr<std::unique_ptr<RequestGraph>> Unfold(ValidatedRequest request, bool parts) override;
  TaskLanes lanes() const override { return lanes_ == nullptr ? TaskLanes() : lanes_->lanes(); }
  void Run(TaskRun& run, TaskDone done) override;

 protected:
  // A node has at most `largest_load` (ValidatedRequest::load()), but at least one row. `cell`: the
  // number of its only cell. `lanes`: for the device of its executables; null: they run on the CPU,
  // or callers of Run() are already on a lane.
  SingleNodeProgram(std::string_view kind, Signature signature, ServingPlan plan,
                    int32_t largest_load, int cell = 0,
                    std::unique_ptr<DeviceLanes> lanes = nullptr);

  // One run: its executable, and how its requests are joined and split.
  struct Batch {
    Executable* executable = nullptr;
    std::unique_ptr<JoinedRequests> requests;
  };
  // For requests that share a batch, or for one; all live as long as the batch. If there are
  // several, they have equal keys and none of them must run alone.
  virtual StatusOr<Batch> Join(RequestSpan requests) = 0;
  // The imported model, for requests that run alone.
  virtual StatusOr<Executable*> Original() = 0;
  // Whether rows are padded to RequestGraph::length().
  virtual bool pads() const { return false; }
  // Whether rows of one request may run separately. `request` has several rows and does not have to
  // run alone.
  virtual bool RowsAreApart(const ValidatedRequest& request) const;

 private:
  struct Computed {
    std::vector<StatusOr<std::vector<NamedTensor>>> outputs;  // by request
    TaskResult times;
  };
  void RunHere(TaskRun& run, TaskDone done);
  Computed Compute(RequestSpan requests, TaskRun& run);
  Computed ComputeApart(RequestSpan requests, TaskRun& run);
  StatusOr<std::vector<NamedTensor>> ComputeInHalves(const ValidatedRequest& request, TaskRun& run,
                                                     TaskResult& times);
  StatusOr<Batch> BatchOf(RequestSpan requests);
  bool MayRunInParts(const ValidatedRequest& request) const;
  Status TooLarge(const ValidatedRequest& request, const Status& why) const;

  const int32_t largest_load_;
  const int cell_;
  const std::unique_ptr<DeviceLanes> lanes_;
};

}  // namespace chairlift

#endif  // CHAIRLIFT_ENGINE_PROGRAMS_SINGLE_NODE_H_
