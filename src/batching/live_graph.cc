#include "batching/live_graph.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace chairlift {
namespace {

// While subgraphs are found, they are a union-find forest: a node's `subgraph` is its parent, which
// never comes after it.
int32_t Root(std::vector<LiveNode>& nodes, int32_t node) {
  while (nodes[node].subgraph != node) {
    nodes[node].subgraph = nodes[nodes[node].subgraph].subgraph;
    node = nodes[node].subgraph;
  }
  return node;
}

}  // namespace

void LiveGraph::AddNode(CellType type, int32_t rows, std::span<const int32_t> dependencies,
                        int32_t follows) {
  const auto index = static_cast<int32_t>(nodes.size());
  LiveNode node;
  node.type = type;
  node.rows = rows;
  for (const int32_t dependency : dependencies) {
    assert(dependency >= 0 && dependency < index);
    LiveNode& earlier = nodes[dependency];
    if (earlier.state == LiveNode::State::kComplete) continue;
    const bool again = earlier.first_edge >= 0 && edges[earlier.first_edge].to == index;
    if (again) continue;
    edges.push_back({.to = index, .next = earlier.first_edge});
    earlier.first_edge = static_cast<int32_t>(edges.size()) - 1;
    if (earlier.state == LiveNode::State::kInFlight) {
      const bool first = node.not_complete == node.not_given;
      node.worker = first || node.worker == earlier.worker ? earlier.worker : kSeveralWorkers;
    } else {
      ++node.not_given;
    }
    ++node.not_complete;
  }
  nodes.push_back(node);
  if (follows >= 0) nodes[follows].follower = index;
  ++unfinished;
}

void LiveGraph::Assign(const CellGraph& graph) {
  nodes.clear();
  edges.clear();
  subgraphs.clear();
  roots.clear();
  unfinished = 0;
  for (int32_t i = 0; i < graph.size(); ++i) {
    AddNode(graph.type(i), graph.rows(i), graph.dependencies(i), graph.follows(i));
    if (graph.dependencies(i).empty()) roots.push_back(i);
    nodes[i].subgraph = i;
    for (const int32_t dependency : graph.dependencies(i)) {
      if (graph.type(dependency) != graph.type(i)) continue;
      const int32_t a = Root(nodes, dependency);
      const int32_t b = Root(nodes, i);
      nodes[std::max(a, b)].subgraph = std::min(a, b);
    }
  }
  for (int32_t i = 0; i < graph.size(); ++i) {
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
  nodes.swap(other.nodes);
  edges.swap(other.edges);
  subgraphs.swap(other.subgraphs);
  roots.swap(other.roots);
}

int32_t LiveGraph::Append(CellType type, int32_t rows, std::span<const int32_t> dependencies,
                          int32_t follows) {
  AddNode(type, rows, dependencies, follows);
  const auto same_type = std::find_if(dependencies.begin(), dependencies.end(),
                                      [&](int32_t d) { return nodes[d].type == type; });
  if (same_type != dependencies.end()) {
    nodes.back().subgraph = nodes[*same_type].subgraph;
  } else {
    nodes.back().subgraph = static_cast<int32_t>(subgraphs.size());
    subgraphs.push_back({.type = type, .first_node = static_cast<int32_t>(nodes.size()) - 1});
  }
  return static_cast<int32_t>(nodes.size()) - 1;
}

int32_t LiveGraph::Steps(int32_t index, WorkerId worker, int32_t most) const {
  int32_t steps = 1;
  for (index = nodes[index].follower; index >= 0 && steps < most; index = nodes[index].follower) {
    const LiveNode& node = nodes[index];
    if (node.not_given > 1) break;
    if (node.not_complete > node.not_given && node.worker != worker) break;
    ++steps;
  }
  return steps;
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
