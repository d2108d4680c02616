#include "batching/policies/baselines/graph_batch.h"

#include <algorithm>

namespace chairlift {

GraphBatchScheduler::Outline GraphBatchScheduler::OutlineOf(const CellGraph& graph) {
  Outline outline;
  outline.group = GroupOf(graph);
  std::vector<int32_t> place;  // by type, in outline.types
  // By run: the longest chain of nodes of its type that ends with its last node.
  std::vector<int> chain(static_cast<size_t>(graph.num_runs()));
  for (int32_t i = 0; i < graph.num_runs(); ++i) {
    const CellGraph::Run run = graph.run(i);
    const CellType type = run.type;
    if (type >= place.size()) place.resize(type + 1, -1);
    if (place[type] < 0) {
      place[type] = static_cast<int32_t>(outline.types.size());
      outline.types.push_back({.type = type});
      phases_.Learn(graph, run);
    }
    Outline::OfType& use = outline.types[place[type]];
    use.nodes += run.count;
    use.node_rows = std::max(use.node_rows, run.rows);
    int before = 0;
    for (const int32_t dependency : run.dependencies) {
      const int32_t read = graph.RunOf(dependency);
      const CellGraph::Run from = graph.run(read);
      if (from.type == type) before = std::max(before, chain[read] - (from.last() - dependency));
    }
    chain[i] = before + run.count;
    use.longest_chain = std::max(use.longest_chain, chain[i]);
  }
  return outline;
}

void GraphBatchScheduler::Arrived(Slot slot, const CellGraph& graph) {
  if (static_cast<size_t>(slot) >= outlines_.size()) outlines_.resize(slot + 1);
  outlines_[slot] = OutlineOf(graph);
  if (!request(slot).held()) Released(slot);
}

void GraphBatchScheduler::Released(Slot slot) {
  groups_[outlines_[slot].group].emplace(request(slot).arrival, slot);
}

void GraphBatchScheduler::Gone(Slot slot) {
  const Request& gone = request(slot);
  if (gone.started || gone.held()) return;
  const auto group = groups_.find(outlines_[slot].group);
  group->second.erase(gone.arrival);
  if (group->second.empty()) groups_.erase(group);
}

void GraphBatchScheduler::Ready(std::span<const Member> nodes) {
  // All belong to one request or one batch.
  const Slot any = nodes.front().slot;
  if (!request(any).started) return;
  Batch& batch = batches_.at(outlines_[any].worker);
  for (const Member member : nodes) {
    LiveNode& ready = node(member);
    if (ready.state != LiveNode::State::kWaiting) continue;  // it is reported for the second time
    ready.state = LiveNode::State::kReady;
    ++batch.types[ready.type].ready;
    batch.ready.push_back(member);
  }
}

void GraphBatchScheduler::Grew(Slot slot, int32_t index,
                               std::span<const int32_t> /*dependencies*/) {
  const LiveNode& added = node({slot, index});
  TypeUse& use = batches_.at(outlines_[slot].worker).types[added.type];
  use.to_give += added.count;
  use.node_rows = std::max(use.node_rows, added.rows);
  use.requests.insert(slot);
}

void GraphBatchScheduler::StartBatch(WorkerId worker) {
  auto group = groups_.lower_bound(turn_);
  if (group == groups_.end()) group = groups_.begin();
  if (group == groups_.end()) return;
  const Group key = group->first;
  if (key != turn_ || turn_left_ == 0) turn_left_ = group->second.size();
  turn_ = key;
  Batch& batch = batches_[worker];
  int64_t size = 0;
  // Requests that become free when others start are added at the end of the group.
  while (group != groups_.end()) {
    const Slot slot = group->second.begin()->second;
    const int32_t rows = request(slot).nodes.back().size();
    if (size > 0 && size + rows > options_.max_batch_size) break;
    size += rows;
    Gone(slot);
    Start(slot);
    outlines_[slot].worker = worker;
    batch.requests.push_back(slot);
    for (const Outline::OfType& added : outlines_[slot].types) {
      TypeUse& use = batch.types[added.type];
      use.to_give += added.nodes;
      use.node_rows = std::max(use.node_rows, added.node_rows);
      use.longest_chain = std::max(use.longest_chain, added.longest_chain);
      use.requests.insert(slot);
    }
    for (const int32_t root : request(slot).roots) {
      const Member member{slot, root};
      Ready({&member, 1});
    }
    group = groups_.find(key);
  }
  turn_left_ -= std::min(turn_left_, batch.requests.size());
  if (turn_left_ < static_cast<size_t>(options_.max_batch_size)) {
    turn_ = key + 1;
    turn_left_ = 0;
  }
}

std::optional<Task> GraphBatchScheduler::NextTask(WorkerId worker) {
  if (!batches_.contains(worker)) StartBatch(worker);
  const auto found = batches_.find(worker);
  if (found == batches_.end()) return std::nullopt;
  Batch& batch = found->second;
  if (batch.in_flight >= options_.max_tasks_to_submit) return std::nullopt;
  if (batch.steps.empty()) FormSteps(batch);
  if (batch.steps.empty()) return std::nullopt;
  Step step = std::move(batch.steps.front());
  batch.steps.pop_front();
  int& to_give = batch.types[step.type].to_give;
  for (const Member member : step.nodes) to_give -= member.steps;
  ++batch.in_flight;
  Task task = Give(step.type, worker, std::move(step.nodes));
  task.padding_rows += step.padding_rows;
  task.padded_steps = step.padded_steps;
  return task;
}

void GraphBatchScheduler::CollectLeft(const Running& task, std::vector<BatchRequestId>& left) {
  const auto found = batches_.find(task.worker);
  Batch& batch = found->second;
  if (batch.in_flight > 0 || !batch.steps.empty()) return;
  FormSteps(batch);
  if (!batch.steps.empty()) return;
  for (const Slot slot : batch.requests) LetGo(slot, left);
  batches_.erase(found);
}

}  // namespace chairlift
