// A diagram of a model's cells, as text for graphviz and as an image.
#ifndef CHAIRLIFT_CLI_CELLS_DIAGRAM_H_
#define CHAIRLIFT_CLI_CELLS_DIAGRAM_H_

#include <string>
#include <utility>
#include <vector>

namespace chairlift {

struct CellsDiagram {
  struct Box {
    enum class Kind { kInput, kOutput, kLanes, kTokens, kSteps };
    Kind kind = Kind::kLanes;
    std::string name = {};
    std::string about = {};  // its second line
    std::string again = {};  // the values fed back to itself; empty: none
  };
  struct Edge {
    int from = 0;  // boxes
    int to = 0;
    std::string label = {};
  };
  // In topological order.
  std::vector<Box> boxes;
  std::vector<Edge> edges;

  int Add(Box box) {
    boxes.push_back(std::move(box));
    return static_cast<int>(boxes.size()) - 1;
  }
  void Connect(int from, int to, std::string label) {
    edges.push_back({from, to, std::move(label)});
  }
};

std::string ToDot(const CellsDiagram& diagram);  // for graphviz
std::string ToSvg(const CellsDiagram& diagram, const std::string& title);

}  // namespace chairlift

#endif  // CHAIRLIFT_CLI_CELLS_DIAGRAM_H_
