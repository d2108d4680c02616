// The SVG is laid out in layers by depth: from left to right or, where that is too wide, downwards.
#include "cli/cells_diagram.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cli/picture.h"

namespace chairlift {
namespace {

constexpr double kCharacter = 7.4;  // width of one on average, at the font size of boxes
constexpr double kSmallCharacter = 6.2;
constexpr double kLine = 18;
constexpr double kPadding = 12;
constexpr double kRowGap = 26;
constexpr double kLoop = 32;          // beside a box, before its label
constexpr size_t kLongest = 30;       // characters of a line
constexpr size_t kLongestLabel = 26;  // of an arrow's
constexpr size_t kMostLines = 4;

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + '"';
}

// Names differ most at their ends.
std::string ShortLabel(const std::string& text, size_t most) {
  if (text.size() <= most) return text;
  size_t first = (most - 1) / 3, last = text.size() - (most - 1 - first);
  const auto inside = [&](size_t at) {  // of a character of several bytes
    return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;
  };
  while (first > 0 && inside(first)) --first;
  while (inside(last)) ++last;
  return text.substr(0, first) + "…" + text.substr(last);
}

// In characters: what is beyond ASCII takes several bytes.
double WidthOf(const std::string& text, double character) {
  const auto characters = std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  });
  return static_cast<double>(characters) * character;
}

// Words in lines of at most kLongest characters.
std::vector<std::string> Wrapped(const std::string& text) {
  std::vector<std::string> lines;
  size_t at = 0;
  while (at < text.size()) {
    const size_t space = std::min(text.find(' ', at), text.size());
    const std::string word = ShortLabel(text.substr(at, space - at), kLongest);
    if (lines.empty() || lines.back().size() + 1 + word.size() > kLongest) {
      if (lines.size() == kMostLines) {
        lines.back() += " …";
        return lines;
      }
      lines.push_back(word);
    } else {
      lines.back() += " " + word;
    }
    at = space + 1;
  }
  return lines;
}

struct Box {
  std::vector<std::string> lines = {};  // empty: only a place that an arrow passes
  const char* style = nullptr;          // null: an input or output of the model, without a frame
  std::string again = {};
  size_t layer = 0;
  double x = 0, y = 0, width = 0, height = 0;
};
struct Arrow {
  size_t from = 0;
  size_t to = 0;
  std::string label = {};
  std::vector<size_t> through = {};  // places in the layers between
};

class Drawing {
 public:
  void Add(Box box) {
    for (const std::string& line : box.lines) {
      box.width = std::max(box.width, WidthOf(line, kCharacter) + 2 * kPadding);
    }
    box.height = static_cast<double>(box.lines.size()) * kLine + kPadding;
    boxes_.push_back(std::move(box));
  }
  // In topological order. Arrows between the same boxes become one.
  void Connect(size_t from, size_t to, const std::string& label) {
    boxes_[to].layer = std::max(boxes_[to].layer, boxes_[from].layer + 1);
    const auto [known, is_new] = known_.try_emplace({from, to}, arrows_.size());
    if (is_new) {
      arrows_.push_back({from, to, label});
    } else if (!label.empty()) {
      std::string& text = arrows_[known->second].label;
      text += (text.empty() ? "" : ", ") + label;
    }
  }

  std::string ToSvg(const std::string& title, const std::string& note) {
    for (Arrow& arrow : arrows_) {
      arrow.label = ShortLabel(arrow.label, kLongestLabel);
      for (size_t layer = boxes_[arrow.from].layer + 1; layer < boxes_[arrow.to].layer; ++layer) {
        arrow.through.push_back(boxes_.size());
        boxes_.push_back({.layer = layer, .width = 12, .height = 12});
      }
    }
    down_ = false;
    Place();
    if (width_ > kPictureWidth) {
      down_ = true;
      Place();
    }
    const double least = std::max(WidthOf(title, 9.5), WidthOf(note, 6.5)) + 2 * kPictureMargin;
    const double wanted = std::max(width_, least);
    for (Box& box : boxes_) box.x += (wanted - width_) / 2;
    std::string svg = PictureHead(wanted, height_, title, note);
    svg +=
        "<defs><marker id=\"head\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"8\" "
        "markerHeight=\"8\" orient=\"auto\"><path class=\"arrow\" d=\"M0,0 L8,4 L0,8 z\"/></marker>"
        "</defs>\n";
    for (const Arrow& arrow : arrows_) Draw(svg, arrow);
    for (const Box& box : boxes_) Draw(svg, box);
    for (const Arrow& arrow : arrows_) Label(svg, arrow);
    return svg + "</svg>\n";
  }

 private:
  // From one layer to the next there is room for the labels of arrows.
  double LayerGap() const {
    double gap = 48;
    if (down_) return gap;
    for (const Arrow& arrow : arrows_) {
      gap = std::max(gap, WidthOf(arrow.label, kSmallCharacter) + 30);
    }
    return gap;
  }
  double& Along(Box& box) const { return down_ ? box.y : box.x; }
  double& Across(Box& box) const { return down_ ? box.x : box.y; }
  double Length(const Box& box) const { return down_ ? box.height : box.width; }
  double Breadth(const Box& box) const {
    return down_ ? box.width + 2 * LoopRoom(box) : box.height;
  }
  // For the loop beside a box, where layers are below each other; as much on the other side, so
  // that the box stays in the middle.
  double LoopRoom(const Box& box) const {
    if (!down_ || box.again.empty()) return 0;
    return kLoop + WidthOf(ShortLabel(box.again, kLongestLabel), kSmallCharacter);
  }

  // Each layer is as long as its longest box; boxes of a layer lie beside each other, in the
  // middle.
  void Place() {
    size_t layers = 0;
    for (const Box& box : boxes_) layers = std::max(layers, box.layer + 1);
    const double gap = down_ ? 36 : kRowGap;
    std::vector<double> breadth(layers, -gap), length(layers, 0);
    for (const Box& box : boxes_) {
      breadth[box.layer] += Breadth(box) + gap;
      length[box.layer] = std::max(length[box.layer], Length(box));
    }
    const double first = down_ ? kPictureTop + 12 : kPictureMargin;
    const double edge = down_ ? kPictureMargin : kPictureTop + 12;
    double widest = 0;
    for (const double one : breadth) widest = std::max(widest, one);
    std::vector<double> begin(layers, first), next(layers, 0);
    for (size_t l = 0; l < layers; ++l) {
      if (l > 0) begin[l] = begin[l - 1] + length[l - 1] + LayerGap();
      next[l] = edge + (widest - breadth[l]) / 2;
    }
    for (Box& box : boxes_) {
      Along(box) = begin[box.layer] + (length[box.layer] - Length(box)) / 2;
      Across(box) = next[box.layer] + LoopRoom(box);
      next[box.layer] += Breadth(box) + gap;
    }
    const double end = layers == 0 ? first : begin.back() + length.back();
    width_ = down_ ? edge + widest + kPictureMargin : end + kPictureMargin;
    height_ = down_ ? end + kPictureMargin : edge + widest + kPictureMargin;
  }

  std::pair<double, double> Begin(const Box& box) const {
    return down_ ? std::pair(box.x + box.width / 2, box.y)
                 : std::pair(box.x, box.y + box.height / 2);
  }
  std::pair<double, double> End(const Box& box) const {
    return down_ ? std::pair(box.x + box.width / 2, box.y + box.height)
                 : std::pair(box.x + box.width, box.y + box.height / 2);
  }

  void Draw(std::string& svg, const Arrow& arrow) const {
    auto [x, y] = End(boxes_[arrow.from]);
    std::string path = fmt::format("M{:.1f},{:.1f}", x, y);
    std::vector<size_t> stops = arrow.through;
    stops.push_back(arrow.to);
    for (const size_t stop : stops) {
      const auto [next_x, next_y] = Begin(boxes_[stop]);
      const double bend = (down_ ? next_y - y : next_x - x) / 2;
      path += down_ ? fmt::format(" C{:.1f},{:.1f} {:.1f},{:.1f} {:.1f},{:.1f}", x, y + bend,
                                  next_x, next_y - bend, next_x, next_y)
                    : fmt::format(" C{:.1f},{:.1f} {:.1f},{:.1f} {:.1f},{:.1f}", x + bend, y,
                                  next_x - bend, next_y, next_x, next_y);
      std::tie(x, y) = End(boxes_[stop]);
      if (stop != arrow.to) path += fmt::format(" L{:.1f},{:.1f}", x, y);
    }
    fmt::format_to(std::back_inserter(svg),
                   "<path class=\"axis\" d=\"{}\" marker-end=\"url(#head)\"/>\n", path);
  }

  // In the middle of the arrow's first part.
  void Label(std::string& svg, const Arrow& arrow) const {
    if (arrow.label.empty()) return;
    const auto [x0, y0] = End(boxes_[arrow.from]);
    const auto [x1, y1] = Begin(boxes_[arrow.through.empty() ? arrow.to : arrow.through.front()]);
    const double x = (x0 + x1) / 2, y = (y0 + y1) / 2 + (down_ ? 4 : -5);
    // The arrow goes behind the words: a halo alone leaves it between them.
    const double width = WidthOf(arrow.label, kSmallCharacter);
    fmt::format_to(std::back_inserter(svg),
                   "<rect class=\"page\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" "
                   "height=\"13\"/>\n"
                   "<text class=\"note small halo\" x=\"{:.1f}\" y=\"{:.1f}\" "
                   "text-anchor=\"middle\">{}</text>\n",
                   x - width / 2, y - 10, width, x, y, SvgText(arrow.label));
  }

  // Arrows reach a box from the left, and the loop is above it; or from above, and it is at the
  // right.
  void DrawLoop(std::string& svg, const Box& box) const {
    const double right = box.x + box.width, middle = box.y + box.height / 2;
    const std::string path =
        down_ ? fmt::format("M{0:.1f},{1:.1f} C{2:.1f},{1:.1f} {2:.1f},{3:.1f} {0:.1f},{3:.1f}",
                            right, middle + 13, right + kLoop, middle - 13)
              : fmt::format("M{0:.1f},{1:.1f} C{0:.1f},{2:.1f} {3:.1f},{2:.1f} {3:.1f},{1:.1f}",
                            right - 14, box.y, box.y - 24, right - 40);
    fmt::format_to(std::back_inserter(svg),
                   "<path class=\"axis\" d=\"{}\" stroke-dasharray=\"4 3\" "
                   "marker-end=\"url(#head)\"/>\n"
                   "<text class=\"note small halo\" x=\"{:.1f}\" y=\"{:.1f}\" "
                   "text-anchor=\"{}\">{}</text>\n",
                   path, down_ ? right + kLoop : right - 46, down_ ? middle + 4 : box.y - 6,
                   down_ ? "start" : "end", SvgText(ShortLabel(box.again, kLongestLabel)));
  }

  void Draw(std::string& svg, const Box& box) const {
    if (box.lines.empty()) return;
    if (box.style != nullptr) {
      fmt::format_to(std::back_inserter(svg),
                     "<rect class=\"box {}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" "
                     "height=\"{:.1f}\" rx=\"6\"/>\n",
                     box.style, box.x, box.y, box.width, box.height);
    }
    if (!box.again.empty()) DrawLoop(svg, box);
    double y = box.y + kPadding / 2 + kLine * 0.72;
    for (const std::string& line : box.lines) {
      fmt::format_to(std::back_inserter(svg),
                     "<text{} x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n",
                     &line == &box.lines.front() ? " font-weight=\"600\"" : " class=\"note\"",
                     box.x + box.width / 2, y, SvgText(line));
      y += kLine;
    }
  }

  std::vector<Box> boxes_;
  std::vector<Arrow> arrows_;
  std::map<std::pair<size_t, size_t>, size_t> known_;  // arrows by the boxes that they connect
  bool down_ = false;
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

std::string ToSvg(const CellsDiagram& diagram, const std::string& title) {
  using Kind = CellsDiagram::Box::Kind;
  Drawing drawing;
  bool steps = false, tokens = false, lanes = false;
  for (const CellsDiagram::Box& box : diagram.boxes) {
    Box drawn;
    drawn.lines = {ShortLabel(box.name, kLongest)};
    for (std::string& line : Wrapped(box.about)) drawn.lines.push_back(std::move(line));
    drawn.again = box.again;
    drawn.style = box.kind == Kind::kSteps    ? "steps"
                  : box.kind == Kind::kTokens ? "tokens"
                  : box.kind == Kind::kLanes  ? "lanes"
                                              : nullptr;
    steps |= box.kind == Kind::kSteps;
    tokens |= box.kind == Kind::kTokens;
    lanes |= box.kind == Kind::kLanes;
    drawing.Add(std::move(drawn));
  }
  for (const CellsDiagram::Edge& edge : diagram.edges) {
    drawing.Connect(static_cast<size_t>(edge.from), static_cast<size_t>(edge.to), edge.label);
  }
  std::string note;
  for (const auto& [shown, text] : {std::pair(steps, "blue: once for each step"),
                                    {tokens, "green: once for each token"},
                                    {lanes, "yellow: once for each request"}}) {
    if (shown && (steps || tokens)) note += (note.empty() ? "" : " · ") + std::string(text);
  }
  return drawing.ToSvg(title, note);
}

}  // namespace chairlift
