// The SVG is laid out in columns by depth.
#include "cli/cells_diagram.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "cli/svg_text.h"

namespace chairlift {
namespace {

constexpr double kCharacter = 7.2;  // width of a character at the font size below
constexpr double kLine = 18;
constexpr double kPadding = 12;
constexpr double kColumnGap = 70;
constexpr double kRowGap = 26;
constexpr size_t kLongest = 36;  // of a name, in characters

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + '"';
}

// Keeps the end of a long name, which says most.
std::string Shortened(const std::string& text) {
  return text.size() <= kLongest
             ? text
             : fmt::format("...{}", std::string_view(text).substr(text.size() - kLongest + 3));
}

struct Box {
  std::vector<std::string> lines;
  const char* fill = "none";  // none: an input or output of the model
  bool repeats = false;
  int column = 0;
  double x = 0, y = 0, width = 0, height = 0;
};
struct Edge {
  int from;
  int to;
};

class Drawing {
 public:
  int Add(Box box) {
    size_t longest = 0;
    for (const std::string& line : box.lines) longest = std::max(longest, line.size());
    box.width = static_cast<double>(longest) * kCharacter + 2 * kPadding;
    box.height = static_cast<double>(box.lines.size()) * kLine + kPadding;
    boxes_.push_back(std::move(box));
    return static_cast<int>(boxes_.size()) - 1;
  }
  // In topological order.
  void Connect(int from, int to) {
    boxes_[to].column = std::max(boxes_[to].column, boxes_[from].column + 1);
    edges_.push_back({from, to});
  }

  std::string ToSvg() {
    Place();
    std::string svg = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{:.0f}\" height=\"{:.0f}\" "
        "font-family=\"monospace\" font-size=\"12\">\n"
        "<defs><marker id=\"head\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"8\" "
        "markerHeight=\"8\" orient=\"auto\"><path d=\"M0,0 L8,4 L0,8 z\" fill=\"#555\"/></marker>"
        "</defs>\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
        width_, height_);
    for (const Edge& edge : edges_) {
      const Box& a = boxes_[edge.from];
      const Box& b = boxes_[edge.to];
      Curve(svg, a.x + a.width, a.y + a.height / 2, b.x, b.y + b.height / 2);
    }
    for (const Box& box : boxes_) Draw(svg, box);
    return svg + "</svg>\n";
  }

 private:
  // Each column is as wide as its widest box; the boxes of a column are stacked and centred.
  void Place() {
    int columns = 0;
    for (const Box& box : boxes_) columns = std::max(columns, box.column + 1);
    std::vector<double> heights(columns, -kRowGap);
    std::vector<double> widths(columns, 0);
    for (const Box& box : boxes_) {
      heights[box.column] += box.height + kRowGap;
      widths[box.column] = std::max(widths[box.column], box.width);
    }
    double tallest = 0;
    for (double height : heights) tallest = std::max(tallest, height);
    std::vector<double> left(columns, kRowGap);
    std::vector<double> next(columns, 0);
    for (int c = 0; c < columns; ++c) {
      if (c > 0) left[c] = left[c - 1] + widths[c - 1] + kColumnGap;
      next[c] = kRowGap + (tallest - heights[c]) / 2;
    }
    for (Box& box : boxes_) {
      box.x = left[box.column] + (widths[box.column] - box.width) / 2;
      box.y = next[box.column];
      next[box.column] += box.height + kRowGap;
    }
    width_ = columns == 0 ? 0 : left.back() + widths.back() + kRowGap;
    height_ = tallest + 2 * kRowGap;
  }

  static void Curve(std::string& svg, double x0, double y0, double x1, double y1) {
    const double bend = (x1 - x0) / 2;
    fmt::format_to(std::back_inserter(svg),
                   "<path d=\"M{:.1f},{:.1f} C{:.1f},{:.1f} {:.1f},{:.1f} {:.1f},{:.1f}\" "
                   "fill=\"none\" stroke=\"#555\" marker-end=\"url(#head)\"/>\n",
                   x0, y0, x0 + bend, y0, x1 - bend, y1, x1, y1);
  }

  static void Draw(std::string& svg, const Box& box) {
    if (box.fill != std::string("none")) {
      fmt::format_to(std::back_inserter(svg),
                     "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"6\" "
                     "fill=\"{}\" stroke=\"#333\"/>\n",
                     box.x, box.y, box.width, box.height, box.fill);
    }
    if (box.repeats) {
      const double right = box.x + box.width;
      fmt::format_to(
          std::back_inserter(svg),
          "<path d=\"M{0:.1f},{1:.1f} C{0:.1f},{2:.1f} {3:.1f},{2:.1f} {3:.1f},{1:.1f}\" "
          "fill=\"none\" stroke=\"#555\" stroke-dasharray=\"4 3\" "
          "marker-end=\"url(#head)\"/>\n",
          right - 14, box.y, box.y - 24, right - 44);
    }
    double y = box.y + kPadding / 2 + kLine * 0.72;
    for (const std::string& line : box.lines) {
      fmt::format_to(std::back_inserter(svg),
                     "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n",
                     box.x + box.width / 2, y, SvgText(line));
      y += kLine;
    }
  }

  std::vector<Box> boxes_;
  std::vector<Edge> edges_;
  double width_ = 0;
  double height_ = 0;
};

}  // namespace

std::string ToDot(const CellsDiagram& diagram) {
  using Kind = CellsDiagram::Box::Kind;
  std::string text = "digraph cells {\n  rankdir=LR;\n  node [fontname=\"sans-serif\"];\n";
  for (size_t i = 0; i < diagram.boxes.size(); ++i) {
    const CellsDiagram::Box& box = diagram.boxes[i];
    const bool border = box.kind == Kind::kInput || box.kind == Kind::kOutput;
    const char* style = border                     ? "shape=plaintext"
                        : box.kind == Kind::kSteps ? "shape=box, style=\"rounded,bold\""
                                                   : "shape=box, style=rounded";
    text += fmt::format("  b{} [{}, label={}];\n", i, style,
                        Quoted(box.name + (box.about.empty() ? "" : "\n" + box.about)));
    if (!box.again.empty()) {
      text += fmt::format("  b{0} -> b{0} [style=dashed, label={1}];\n", i, Quoted(box.again));
    }
  }
  for (const CellsDiagram::Edge& edge : diagram.edges) {
    text += fmt::format("  b{} -> b{} [label={}];\n", edge.from, edge.to, Quoted(edge.label));
  }
  return text + "}\n";
}

std::string ToSvg(const CellsDiagram& diagram) {
  using Kind = CellsDiagram::Box::Kind;
  Drawing drawing;
  for (const CellsDiagram::Box& box : diagram.boxes) {
    Box drawn;
    drawn.lines = {Shortened(box.name)};
    if (!box.about.empty()) drawn.lines.push_back(Shortened(box.about));
    drawn.repeats = !box.again.empty();
    drawn.fill = box.kind == Kind::kSteps    ? "#cfe3f7"
                 : box.kind == Kind::kTokens ? "#dff0d8"
                 : box.kind == Kind::kLanes  ? "#fcefc9"
                                             : "none";
    drawing.Add(std::move(drawn));
  }
  for (const CellsDiagram::Edge& edge : diagram.edges) drawing.Connect(edge.from, edge.to);
  return drawing.ToSvg();
}

}  // namespace chairlift
