#include "batching/live_graph.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace chairlift {
namespace {

// While subgraphs are computed, they form a union-find forest: a node's `subgraph` is its parent,
// which never has a higher number.
int32_t Root(std::vector<LiveNode>& nodes, int32_t node) {
  while (nodes[node].subgraph != node) {
    nodes[node].subgraph = nodes[nodes[node].subgraph].subgraph;
    node = nodes[node].subgraph;
  }
  return node;
}

}  // namespace

int32_t LiveGraph::EntryOf(int32_t node) const {
  if (static_cast<size_t>(size) == nodes.size()) return node;
  const auto after = std::upper_bound(nodes.begin(), nodes.end(), node,
                                      [](int32_t n, const LiveNode& run) { return n < run.first; });
  return static_cast<int32_t>(after - nodes.begin()) - 1;
}

void LiveGraph::AddPiece(const CellGraph::Run& run, int32_t first, int32_t last,
                         std::span<const int32_t> dependencies, int32_t follows) {
  const auto index = static_cast<int32_t>(nodes.size());
  LiveNode node;
  node.type = run.type;
  node.rows = run.rows;
  node.first = first;
  node.count = last + 1 - first;
  node.divisible = run.divisible;
  for (const int32_t dependency : dependencies) {
    assert(dependency >= 0 && dependency < first);
    const int32_t entry = EntryOf(dependency);
    LiveNode& earlier = nodes[entry];
    if (dependency < earlier.first + earlier.complete) continue;
    const bool again = earlier.first_edge >= 0 && edges[earlier.first_edge].to == index;
    if (again) continue;
    edges.push_back({.to = index, .next = earlier.first_edge});
    earlier.first_edge = static_cast<int32_t>(edges.size()) - 1;
    if (earlier.state == LiveNode::State::kInFlight) {
      const bool first_worker = node.not_complete == node.not_given;
      node.worker =
          first_worker || node.worker == earlier.worker ? earlier.worker : kSeveralWorkers;
    } else {
      ++node.not_given;
    }
    ++node.not_complete;
  }
  if (follows >= 0) nodes[EntryOf(follows)].follower = index;
  nodes.push_back(node);
  size += node.count;
  ++unfinished;
}

void LiveGraph::FindCuts(const CellGraph& graph) {
  cuts_.clear();
  if (graph.num_runs() == graph.size()) return;
  for (int32_t i = 0; i < graph.num_runs(); ++i) {
    for (const int32_t dependency : graph.run(i).dependencies) {
      if (graph.run(graph.RunOf(dependency)).last() != dependency) cuts_.push_back(dependency);
    }
  }
  std::sort(cuts_.begin(), cuts_.end());
}

void LiveGraph::Assign(const CellGraph& graph) {
  nodes.clear();
  edges.clear();
  subgraphs.clear();
  roots.clear();
  unfinished = 0;
  size = 0;
  FindCuts(graph);
  auto cut = cuts_.begin();
  for (int32_t i = 0; i < graph.num_runs(); ++i) {
    const CellGraph::Run run = graph.run(i);
    const auto begin = static_cast<int32_t>(nodes.size());
    if (run.dependencies.empty()) roots.push_back(begin);
    int32_t first = run.first;
    for (; cut != cuts_.end() && *cut < run.last(); ++cut) {
      if (*cut < first) continue;
      const int32_t before = first - 1;
      AddPiece(run, first, *cut, first == run.first ? run.dependencies : std::span(&before, 1),
               first == run.first ? run.follows : before);
      first = *cut + 1;
    }
    const int32_t before = first - 1;
    AddPiece(run, first, run.last(), first == run.first ? run.dependencies : std::span(&before, 1),
             first == run.first ? run.follows : before);
    for (auto piece = begin; piece < static_cast<int32_t>(nodes.size()); ++piece) {
      nodes[piece].subgraph = begin;
    }
    for (const int32_t dependency : run.dependencies) {
      const int32_t entry = EntryOf(dependency);
      if (nodes[entry].type != run.type) continue;
      const int32_t a = Root(nodes, entry);
      const int32_t b = Root(nodes, begin);
      nodes[std::max(a, b)].subgraph = std::min(a, b);
    }
  }
  for (int32_t i = 0; i < static_cast<int32_t>(nodes.size()); ++i) {
    if (nodes[i].subgraph != i) {
      nodes[i].subgraph = nodes[nodes[i].subgraph].subgraph;
      continue;
    }
    nodes[i].subgraph = static_cast<int32_t>(subgraphs.size());
    subgraphs.push_back({.type = nodes[i].type, .first_node = i});
  }
}

void LiveGraph::Swap(LiveGraph& other) {
  std::swap(unfinished, other.unfinished);
  std::swap(size, other.size);
  nodes.swap(other.nodes);
  edges.swap(other.edges);
  subgraphs.swap(other.subgraphs);
  roots.swap(other.roots);
}

int32_t LiveGraph::Append(const CellGraph::Run& run) {
  AddPiece(run, run.first, run.last(), run.dependencies, run.follows);
  const auto same_type =
      std::find_if(run.dependencies.begin(), run.dependencies.end(),
                   [&](int32_t d) { return nodes[EntryOf(d)].type == run.type; });
  if (same_type != run.dependencies.end()) {
    nodes.back().subgraph = nodes[EntryOf(*same_type)].subgraph;
  } else {
    nodes.back().subgraph = static_cast<int32_t>(subgraphs.size());
    subgraphs.push_back({.type = run.type, .first_node = static_cast<int32_t>(nodes.size()) - 1});
  }
  return static_cast<int32_t>(nodes.size()) - 1;
}

int32_t LiveGraph::Steps(int32_t index, WorkerId worker, int32_t most) const {
  int32_t steps = nodes[index].count - nodes[index].given;
  for (index = nodes[index].follower; index >= 0 && steps < most; index = nodes[index].follower) {
    const LiveNode& node = nodes[index];
    if (node.not_given > 1) break;
    if (node.not_complete > node.not_given && node.worker != worker) break;
    steps += node.count;
  }
  return std::min(steps, most);
}

void LiveGraph::PushReady(int32_t index) {
  LiveNode& node = nodes[index];
  Subgraph& subgraph = subgraphs[node.subgraph];
  node.state = LiveNode::State::kReady;
  node.next_ready = -1;
  (subgraph.last_ready < 0 ? subgraph.first_ready : nodes[subgraph.last_ready].next_ready) = index;
  subgraph.last_ready = index;
  subgraph.ready_size += node.size();
}

int32_t LiveGraph::PopReady(Subgraph& subgraph) {
  const int32_t index = subgraph.first_ready;
  subgraph.first_ready = nodes[index].next_ready;
  if (subgraph.first_ready < 0) subgraph.last_ready = -1;
  subgraph.ready_size -= nodes[index].size();
  return index;
}

}  // namespace chairlift
