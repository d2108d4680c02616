#include "batching/live_request.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace chairlift {
namespace {

// A union-find forest in which a parent never comes after its child.
int32_t Root(std::vector<int32_t>& parents, int32_t node) {
  while (parents[node] != node) {
    parents[node] = parents[parents[node]];
    node = parents[node];
  }
  return node;
}

}  // namespace

void LiveRequest::AddNode(CellType type, int32_t rows, std::span<const int32_t> dependencies) {
  const auto index = static_cast<int32_t>(nodes.size());
  LiveNode node;
  node.type = type;
  node.rows = rows;
  for (const int32_t dependency : dependencies) {
    assert(dependency >= 0 && dependency < index);
    LiveNode& earlier = nodes[dependency];
    if (earlier.state == LiveNode::State::kComplete) continue;
    edges.push_back({.to = index, .next = earlier.first_edge});
    earlier.first_edge = static_cast<int32_t>(edges.size()) - 1;
    if (earlier.state == LiveNode::State::kInFlight) {
      const WorkerId worker = subgraphs[earlier.subgraph].pinned;
      const bool first = node.not_complete == node.not_given;
      node.tie = first || node.tie == worker ? worker : kSeveralWorkers;
    } else {
      ++node.not_given;
    }
    ++node.not_complete;
  }
  nodes.push_back(node);
  ++unfinished;
}

void LiveRequest::Assign(const CellGraph& graph) {
  nodes.clear();
  edges.clear();
  subgraphs.clear();
  unfinished = in_flight = 0;
  parents_.resize(static_cast<size_t>(graph.size()));
  for (int32_t i = 0; i < graph.size(); ++i) {
    AddNode(graph.type(i), graph.rows(i), graph.dependencies(i));
    parents_[i] = i;
    for (const int32_t dependency : graph.dependencies(i)) {
      if (graph.type(dependency) != graph.type(i)) continue;
      const int32_t a = Root(parents_, dependency);
      const int32_t b = Root(parents_, i);
      parents_[std::max(a, b)] = std::min(a, b);
    }
  }
  for (int32_t i = 0; i < graph.size(); ++i) {
    const int32_t root = Root(parents_, i);
    if (root == i) {
      nodes[i].subgraph = static_cast<int32_t>(subgraphs.size());
      subgraphs.push_back({.type = nodes[i].type});
    } else {
      nodes[i].subgraph = nodes[root].subgraph;
    }
  }
}

void LiveRequest::SwapGraphs(LiveRequest& other) {
  nodes.swap(other.nodes);
  edges.swap(other.edges);
  subgraphs.swap(other.subgraphs);
  std::swap(unfinished, other.unfinished);
  std::swap(in_flight, other.in_flight);
}

int32_t LiveRequest::Append(CellType type, int32_t rows, std::span<const int32_t> dependencies) {
  AddNode(type, rows, dependencies);
  const auto same_type = std::find_if(dependencies.begin(), dependencies.end(),
                                      [&](int32_t d) { return nodes[d].type == type; });
  if (same_type != dependencies.end()) {
    nodes.back().subgraph = nodes[*same_type].subgraph;
  } else {
    nodes.back().subgraph = static_cast<int32_t>(subgraphs.size());
    subgraphs.push_back({.type = type});
  }
  return static_cast<int32_t>(nodes.size()) - 1;
}

void LiveRequest::PushReady(int32_t index) {
  LiveNode& node = nodes[index];
  Subgraph& subgraph = subgraphs[node.subgraph];
  node.state = LiveNode::State::kReady;
  node.next_ready = -1;
  (subgraph.last_ready < 0 ? subgraph.first_ready : nodes[subgraph.last_ready].next_ready) = index;
  subgraph.last_ready = index;
  subgraph.ready_size += node.size();
}

int32_t LiveRequest::PopReady(Subgraph& subgraph) {
  const int32_t index = subgraph.first_ready;
  subgraph.first_ready = nodes[index].next_ready;
  if (subgraph.first_ready < 0) subgraph.last_ready = -1;
  subgraph.ready_size -= nodes[index].size();
  return index;
}

}  // namespace chairlift
