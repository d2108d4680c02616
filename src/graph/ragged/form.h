// How a value depends on sequences and tokens, and its form in the packed graph.
//
// The packed graph is the original one run as one batch of one long sequence: where the original
// has [batch, length, ...], it has [1, T, ...], and most nodes are copied unchanged. Values that
// depend on whole sequences have R entries along the batch instead. A value is one of
//   fixed      the same for every request; the same in both graphs;
//   sizes      integers that depend on batch and length alone (Shape and the arithmetic on it);
//   uniform    the same for every sequence, though the batch is one of its axes: 1 there;
//   rows       entry b along `batch` depends on sequence b; R there;
//   positions  entry l along `length` depends on position l in a sequence, for any length;
//              T there, the entry for each token's position;
//   tokens     entry (b, l) belongs to token l of sequence b; 1 along `batch`, T along `length`; or
//              both are one axis (batch·length entries in this order), T;
//   unknown    anything else, with the reason.
// No other dimension depends on batch or length. Every rule must preserve this.
#ifndef CHAIRLIFT_GRAPH_RAGGED_FORM_H_
#define CHAIRLIFT_GRAPH_RAGGED_FORM_H_

#include <string>
#include <utility>

#include "graph/analysis/shapes.h"

namespace chairlift::ragged {

using analysis::Dims;
using analysis::Line;

// The names of the two dimensions in the original graph, which no other dimension can have.
inline constexpr const char* kBatchSymbol = analysis::Size::kBatch;
inline constexpr const char* kLengthSymbol = analysis::Size::kNew;

struct Form {
  enum class Kind { kFixed, kSizes, kUniform, kRows, kPositions, kTokens, kUnknown };
  Kind kind = Kind::kFixed;
  int batch = -1;        // for uniform, rows, tokens: the axis
  int length = -1;       // for positions, tokens: the axis
  std::string why = {};  // for unknown

  static Form Of(Kind kind, int batch = -1, int length = -1) {
    return {.kind = kind, .batch = batch, .length = length};
  }
  static Form Unknown(std::string why) {
    Form form = Of(Kind::kUnknown);
    form.why = std::move(why);
    return form;
  }
  bool fixed() const { return kind == Kind::kFixed; }
  bool sizes() const { return kind == Kind::kSizes; }
  bool uniform() const { return kind == Kind::kUniform; }
  bool rows() const { return kind == Kind::kRows; }
  bool positions() const { return kind == Kind::kPositions; }
  bool tokens() const { return kind == Kind::kTokens; }
  bool unknown() const { return kind == Kind::kUnknown; }
  bool merged() const { return tokens() && batch == length; }
  // Whether `axis` is its batch or its length.
  bool Has(int axis) const { return axis == batch || axis == length; }
  // [batch, length, ...].
  bool leading_tokens() const { return tokens() && batch == 0 && length == 1; }
  // With axes renumbered by `to(axis)`.
  template <typename To>
  Form Moved(const To& to) const {
    Form moved = *this;
    if (batch >= 0) moved.batch = to(batch);
    if (length >= 0) moved.length = to(length);
    return moved;
  }
  friend bool operator==(const Form& a, const Form& b) {
    return a.kind == b.kind && a.batch == b.batch && a.length == b.length;
  }
};

}  // namespace chairlift::ragged

#endif  // CHAIRLIFT_GRAPH_RAGGED_FORM_H_
