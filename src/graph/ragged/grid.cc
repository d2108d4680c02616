#include "graph/ragged/grid.h"

#include <algorithm>
#include <cstring>

#include "graph/ragged/form.h"

namespace chairlift::ragged {
namespace {

// [2] of a number; not present if the type cannot hold it.
Tensor Twice(int64_t number, DType dtype) {
  Tensor t = Tensor::Allocate(dtype, Shape{2});
  for (int64_t i = 0; i < 2; ++i) {
    switch (dtype) {
      case DType::kInt64:
        t.data<int64_t>()[i] = number;
        break;
      case DType::kInt32:
        if (number != static_cast<int32_t>(number)) return {};
        t.data<int32_t>()[i] = static_cast<int32_t>(number);
        break;
      case DType::kBool:
        t.data<bool>()[i] = number != 0;
        break;
      default:
        return {};
    }
  }
  return t;
}

// [2] of 0 and 1; not present if marks cannot have this type.
Tensor Marks(DType dtype) {
  switch (dtype) {
    case DType::kInt64:
      return Tensor::Of<int64_t>(Shape{2}, {0, 1});
    case DType::kInt32:
      return Tensor::Of<int32_t>(Shape{2}, {0, 1});
    case DType::kBool:
      return Tensor::Of<bool>(Shape{2}, {false, true});
    case DType::kFloat:
      return Tensor::Of<float>(Shape{2}, {0.0f, 1.0f});
    default:
      return {};
  }
}

const Extent& Batches() {
  static const Extent* const kBatches = new Extent(Extent::Batch());
  return *kBatches;
}
const Extent& Lengths() {
  static const Extent* const kLengths = new Extent(Extent::Symbol(kLengthSymbol));
  return *kLengths;
}
const Extent& Tokens() {
  static const Extent* const kTokens = new Extent(*Extent::Product(Batches(), Lengths()));
  return *kTokens;
}

// The axes with other than one entry.
std::vector<int> LongAxes(const std::vector<Extent>& dims) {
  std::vector<int> axes;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (!dims[i].is_one()) axes.push_back(static_cast<int>(i));
  }
  return axes;
}

}  // namespace

Grid Grid::Unknown(std::string why, std::optional<std::vector<Extent>> dims) {
  Grid grid;
  grid.why = std::move(why);
  grid.dims = std::move(dims);
  return grid;
}

Grid Grid::OfConstant(const Tensor& constant) {
  std::vector<Extent> dims;
  for (const int64_t dim : constant.shape()) dims.push_back(Extent::Number(dim));
  const size_t bytes = DTypeSize(constant.dtype());
  const auto* data = static_cast<const std::byte*>(constant.raw());
  if (constant.size() == 0) return Unknown("a constant is empty");
  for (int64_t i = 1; i < constant.size(); ++i) {
    if (std::memcmp(data, data + static_cast<size_t>(i) * bytes, bytes) != 0) {
      return Unknown("the elements of a constant differ", std::move(dims));
    }
  }
  Tensor bits = Tensor::Allocate(constant.dtype(), Shape{2});
  for (size_t i = 0; i < 2; ++i) {
    std::memcpy(static_cast<std::byte*>(bits.raw()) + i * bytes, data, bytes);
  }
  return OfBits(std::move(bits), std::move(dims));
}

Grid Grid::OfSizes(const std::vector<Extent>& elements, int rank, DType dtype) {
  std::vector<Extent> dims;
  if (rank == 1) dims.push_back(Extent::Number(static_cast<int64_t>(elements.size())));
  if (elements.size() != 1) return Unknown("it has several sizes", std::move(dims));
  const auto size = SizeSum::Of(elements[0]);
  if (!size) return Unknown("it follows from other sizes", std::move(dims));
  Grid grid = OfPlace({.offset = *size, .steps = {}}, std::move(dims));
  return dtype == DType::kInt64 ? grid : grid.AsBits(dtype).value_or(Unknown("it is a size"));
}

Grid Grid::OfInput(const Value& value, int input) {
  std::vector<Extent> dims;
  for (const Dim& dim : value.shape.dims()) {
    dims.push_back(dim.known()                    ? Extent::Number(dim.value())
                   : dim.symbol() == kBatchSymbol ? Batches()
                                                  : Extent::Symbol(dim.symbol()));
  }
  Tensor marks = Marks(value.dtype);
  if (dims != std::vector<Extent>{Batches(), Lengths()} || !marks.present()) {
    return Unknown(fmt::format("input '{}' is no [batch, length] of marks", value.name),
                   std::move(dims));
  }
  Grid grid = OfBits(std::move(marks), std::move(dims));
  grid.batch = 0;
  grid.length = 1;
  grid.input = input;
  return grid;
}

Grid Grid::OfBits(Tensor bits, std::vector<Extent> dims) {
  Grid grid;
  grid.kind = Kind::kBits;
  grid.bits = std::move(bits);
  grid.dims = std::move(dims);
  return grid;
}

Grid Grid::OfPlace(Place place, std::vector<Extent> dims) {
  Grid grid;
  grid.kind = Kind::kPlace;
  // The only index into a dimension of 1 is 0.
  for (auto it = place.steps.begin(); it != place.steps.end();) {
    it = dims[static_cast<size_t>(it->first)].is_one() ? place.steps.erase(it) : std::next(it);
  }
  grid.places = {std::move(place)};
  grid.dims = std::move(dims);
  return grid;
}

std::optional<Place> Grid::AsPlace() const {
  if (is_place()) return places[0];
  if (!constant() || bits.dtype() != DType::kInt64) return std::nullopt;
  return Place{.offset = SizeSum::Number(bits.data<int64_t>()[0]), .steps = {}};
}

std::optional<Grid> Grid::AsBits(DType dtype) const {
  if (is_bits()) return *this;
  if (!is_place() || !places[0].steps.empty()) return std::nullopt;
  const std::optional<int64_t> number = places[0].offset.number();
  Tensor two = number ? Twice(*number, dtype) : Tensor();
  if (!two.present()) return std::nullopt;
  return OfBits(std::move(two), *dims);
}

Grid Grid::Moved(std::span<const int> to, std::vector<Extent> to_dims) const {
  Grid moved = *this;
  if (batch >= 0) moved.batch = to[static_cast<size_t>(batch)];
  if (length >= 0) moved.length = to[static_cast<size_t>(length)];
  if (kind == Kind::kPlaces && (to.empty() || to.back() != static_cast<int>(to_dims.size()) - 1)) {
    return Unknown("places are moved", std::move(to_dims));
  }
  for (Place& place : moved.places) {
    place.steps.clear();
    for (const auto& [axis, step] :
         places[static_cast<size_t>(&place - moved.places.data())].steps) {
      place.steps.emplace(to[static_cast<size_t>(axis)], step);
    }
  }
  moved.dims = std::move(to_dims);
  return moved;
}

Grid Grid::Broadcast(const std::vector<Extent>& to_dims) const {
  const size_t rank = dims->size();
  if (rank > to_dims.size()) return Unknown("it has too many dimensions");
  std::vector<int> to(rank);
  for (size_t i = 0; i < rank; ++i) to[i] = static_cast<int>(to_dims.size() - rank + i);
  if (kind == Kind::kPlaces && !(dims->back() == to_dims.back())) {
    return Unknown("places are repeated", to_dims);
  }
  return Moved(to, to_dims);
}

Grid Grid::Reshaped(std::vector<Extent> to_dims) const {
  if (constant()) return OfBits(bits, std::move(to_dims));
  const std::vector<int> own = LongAxes(*dims), others = LongAxes(to_dims);
  const auto pair_at = [](const std::vector<Extent>& of, const std::vector<int>& axes, size_t at) {
    return at + 1 < axes.size() && of[static_cast<size_t>(axes[at])] == Batches() &&
           of[static_cast<size_t>(axes[at + 1])] == Lengths();
  };
  std::vector<int> to(dims->size(), -1);
  int merged = -1, split = -1;  // the axis of the result, or of this
  int split_length = -1;        // of the result
  size_t i = 0, j = 0;
  while (i < own.size() && j < others.size()) {
    const auto from = static_cast<size_t>(own[i]);
    const Extent& wanted = to_dims[static_cast<size_t>(others[j])];
    to[from] = others[j];
    const bool apart = merged < 0 && split < 0;
    if ((*dims)[from] == wanted) {
      ++i, ++j;
    } else if (apart && pair_at(*dims, own, i) && wanted == Tokens()) {
      merged = others[j];
      to[static_cast<size_t>(own[i + 1])] = merged;
      i += 2, ++j;
    } else if (apart && (*dims)[from] == Tokens() && pair_at(to_dims, others, j)) {
      split = own[i];
      split_length = others[j + 1];
      ++i, j += 2;
    } else {
      break;
    }
  }
  // Marks along both axes of a pair, or along neither, are unchanged; nothing else may vary along
  // one of them.
  const auto of_pair = [&](int axis) {
    return axis >= 0 && (axis == split || (merged >= 0 && to[static_cast<size_t>(axis)] == merged));
  };
  const bool torn =
      is_bits() ? of_pair(batch) != of_pair(length)
                : std::any_of(places.begin(), places.end(), [&](const Place& place) {
                    return std::any_of(place.steps.begin(), place.steps.end(),
                                       [&](const auto& step) { return of_pair(step.first); });
                  });
  if (i != own.size() || j != others.size() || torn || kind == Kind::kUnknown) {
    return Unknown(why.empty() ? "its elements change places" : why, std::move(to_dims));
  }
  Grid result = Moved(to, std::move(to_dims));
  if (is_bits() && batch == split) result.length = split_length;
  return result;
}

std::optional<std::vector<Extent>> BroadcastDims(const std::vector<Extent>& a,
                                                 const std::vector<Extent>& b) {
  if (a.size() < b.size()) return BroadcastDims(b, a);
  std::vector<Extent> dims = a;
  const size_t added = a.size() - b.size();
  for (size_t i = 0; i < b.size(); ++i) {
    if (b[i].is_one() || b[i] == dims[added + i]) continue;
    if (!dims[added + i].is_one()) return std::nullopt;
    dims[added + i] = b[i];
  }
  return dims;
}

}  // namespace chairlift::ragged
