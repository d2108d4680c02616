// Resize by weighted sums along one axis after the other. The last two resized axes are combined
// row by row, so that intermediate results stay in cache.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "ops/image/resize_plan.h"
#include "ops/image/resize_simd.h"

namespace chairlift {
namespace {

constexpr int64_t kParallelElements = 32 * 1024;

size_t AlignedBytes(size_t bytes) { return (bytes + 63) / 64 * 64; }

// The tables of an axis in the type of the computation.
template <typename A>
struct Taps {
  int64_t in = 1;
  int64_t out = 1;
  int count = 1;
  bool identity = true;
  std::vector<int32_t> index;
  std::vector<A> weight;
  std::vector<uint8_t> outside;

  Taps() = default;
  explicit Taps(const ResizeAxis& axis)
      : in(axis.in),
        out(axis.out),
        count(axis.taps),
        identity(axis.identity),
        index(axis.index),
        weight(axis.weight.begin(), axis.weight.end()),
        outside(axis.outside) {}
  bool IsOutside(int64_t o) const { return !outside.empty() && outside[static_cast<size_t>(o)]; }
};

template <typename A>
void BlendRows(const A* const* rows, const A* weight, int taps, int64_t n, A* out) {
  if constexpr (std::is_same_v<A, float>) {
    GetResizeLoops().blend_rows(rows, weight, taps, n, out);
  } else {
    for (int64_t i = 0; i < n; ++i) {
      A sum = 0;
      for (int k = 0; k < taps; ++k) sum += weight[k] * rows[k][i];
      out[i] = sum;
    }
  }
}

// One output row o of `axis` from `in`, whose rows have n elements.
template <typename A>
void BlendRow(const Taps<A>& axis, int64_t o, const A* in, int64_t n, A* out) {
  constexpr int kAtOnce = 16;
  const A* rows[kAtOnce];
  A weight[kAtOnce];
  int taps = 0;
  bool first = true;
  const auto flush = [&] {
    if (first) {
      BlendRows(rows, weight, taps, n, out);
      first = false;
    } else if (taps > 0) {
      // The existing contents are one more row.
      rows[taps] = out;
      weight[taps] = 1;
      BlendRows(rows, weight, taps + 1, n, out);
    }
    taps = 0;
  };
  for (int k = 0; k < axis.count; ++k) {
    const auto at = static_cast<size_t>(k * axis.out + o);
    if (axis.weight[at] == 0) continue;
    rows[taps] = in + axis.index[at] * n;
    weight[taps++] = axis.weight[at];
    if (taps == kAtOnce - 1) flush();
  }
  flush();
}

template <typename A>
class Interpolation final : public Kernel {
 public:
  explicit Interpolation(const ResizePlan& plan)
      : most_parts_(plan.width == 1 ? 1 : plan.width * 2),
        extrapolation_(static_cast<A>(plan.options.extrapolation_value)) {
    std::vector<int64_t> dims;  // resized axes already have their output length
    std::vector<size_t> resized;
    for (size_t d = 0; d < plan.axes.size(); ++d) {
      dims.push_back(plan.axes[d].in);
      if (!plan.axes[d].identity) resized.push_back(d);
    }
    const auto product = [&](size_t first, size_t last) {
      int64_t n = 1;
      for (size_t d = first; d < last; ++d) n *= dims[d];
      return n;
    };
    while (resized.size() > 2) {
      const size_t d = resized.front();
      resized.erase(resized.begin());
      leading_.push_back({Taps<A>(plan.axes[d]), product(0, d), product(d + 1, dims.size())});
      dims[d] = plan.axes[d].out;
      leading_bytes_ = std::max(
          leading_bytes_, AlignedBytes(sizeof(A) * static_cast<size_t>(product(0, dims.size()))));
    }
    if (resized.empty()) {
      unit_ = product(0, dims.size());
      return;
    }
    const size_t w = resized.back();
    unit_ = product(w + 1, dims.size());
    columns_ = Taps<A>(plan.axes[w]);
    if (resized.size() == 2) {
      const size_t h = resized.front();
      rows_ = Taps<A>(plan.axes[h]);
      outer_ = product(0, h);
      middle_ = product(h + 1, w);
    } else {
      rows_.index = {0};
      rows_.weight = {1};
      outer_ = product(0, w);
    }
    doubles_ = IsHalfPixelDouble();
  }

  size_t scratch_bytes() const override {
    const size_t buffers = std::min<size_t>(leading_.size(), 2);
    return buffers * leading_bytes_ + static_cast<size_t>(most_parts_) * RowBytes();
  }

  Status Run(const KernelArgs& args) const override {
    Resize(static_cast<const A*>(args.inputs[0]), static_cast<A*>(args.outputs[0]),
           static_cast<char*>(args.scratch), args.team);
    return absl::OkStatus();
  }

  void Resize(const A* src, A* dst, char* scratch, Team& team) const {
    if (outer_ * rows_.out * middle_ * columns_.out * unit_ == 0) return;
    for (size_t i = 0; i < leading_.size(); ++i) {
      auto* next = reinterpret_cast<A*>(scratch + (i % 2) * leading_bytes_);
      RunLeading(leading_[i], src, next, team);
      src = next;
    }
    scratch += std::min<size_t>(leading_.size(), 2) * leading_bytes_;
    const int64_t rows = outer_ * rows_.out;
    const int64_t elements = rows * middle_ * columns_.out * unit_;
    if (elements <= kParallelElements || team.width() == 1) {
      RunRows(src, dst, reinterpret_cast<A*>(scratch), 0, rows);
      return;
    }
    const int64_t parts = std::min({rows, int64_t{team.width()} * 2, most_parts_});
    team.For(static_cast<int>(parts), [&](int part, int) {
      RunRows(src, dst, reinterpret_cast<A*>(scratch + static_cast<size_t>(part) * RowBytes()),
              rows * part / parts, rows * (part + 1) / parts);
    });
  }

 private:
  struct Leading {
    Taps<A> axis;
    int64_t outer;
    int64_t inner;
  };

  int64_t InputRow() const { return middle_ * columns_.in * unit_; }
  size_t RowBytes() const {
    return rows_.identity ? 0 : AlignedBytes(sizeof(A) * static_cast<size_t>(InputRow()));
  }

  bool IsHalfPixelDouble() const {
    if (unit_ != 1 || columns_.out != 2 * columns_.in || columns_.count != 2 ||
        !columns_.outside.empty()) {
      return false;
    }
    for (int64_t o = 0; o < columns_.out; ++o) {
      const int64_t near = o / 2;
      const int64_t far = std::clamp<int64_t>(o % 2 == 0 ? near - 1 : near + 1, 0, columns_.in - 1);
      A near_weight = 0;
      A far_weight = 0;
      for (int k = 0; k < 2; ++k) {
        const auto at = static_cast<size_t>(k * columns_.out + o);
        const int64_t i = columns_.index[at];
        if (i != near && i != far) return false;
        (i == near ? near_weight : far_weight) += columns_.weight[at];
      }
      if (near == far ? near_weight != A(1) : near_weight != A(0.75) || far_weight != A(0.25)) {
        return false;
      }
    }
    return true;
  }

  void RunLeading(const Leading& pass, const A* src, A* dst, Team& team) const {
    const int64_t rows = pass.outer * pass.axis.out;
    const auto range = [&](int64_t first, int64_t last) {
      for (int64_t r = first; r < last; ++r) {
        const int64_t o = r % pass.axis.out;
        A* out = dst + r * pass.inner;
        if (pass.axis.IsOutside(o)) {
          std::fill_n(out, pass.inner, extrapolation_);
        } else {
          BlendRow(pass.axis, o, src + r / pass.axis.out * pass.axis.in * pass.inner, pass.inner,
                   out);
        }
      }
    };
    const int64_t parts = std::min<int64_t>(rows, team.width() == 1 ? 1 : team.width() * 2);
    team.For(static_cast<int>(parts),
             [&](int part, int) { range(rows * part / parts, rows * (part + 1) / parts); });
  }

  void RunRows(const A* src, A* dst, A* blended, int64_t first, int64_t last) const {
    const int64_t out_row = middle_ * columns_.out * unit_;
    for (int64_t r = first; r < last; ++r) {
      const int64_t o = r % rows_.out;
      const A* plane = src + r / rows_.out * rows_.in * InputRow();
      A* out = dst + r * out_row;
      if (rows_.IsOutside(o)) {
        std::fill_n(out, out_row, extrapolation_);
        continue;
      }
      const A* row = plane + o * InputRow();
      if (!rows_.identity) {
        BlendRow(rows_, o, plane, InputRow(), blended);
        row = blended;
      }
      for (int64_t m = 0; m < middle_; ++m) {
        RunColumns(row + m * columns_.in * unit_, out + m * columns_.out * unit_);
      }
    }
  }

  void RunColumns(const A* in, A* out) const {
    if (columns_.identity) {
      std::copy_n(in, columns_.in * unit_, out);
      return;
    }
    if constexpr (std::is_same_v<A, float>) {
      const ResizeLoops& loops = GetResizeLoops();
      if (doubles_) {
        loops.double_linear(in, columns_.in, out);
      } else if (unit_ == 1) {
        loops.blend_columns(in, columns_.in, columns_.index.data(), columns_.weight.data(),
                            columns_.count, columns_.out, out);
      } else {
        loops.blend_pixels(in, columns_.index.data(), columns_.weight.data(), columns_.count,
                           columns_.out, unit_, out);
      }
    } else {
      for (int64_t o = 0; o < columns_.out; ++o) {
        for (int64_t j = 0; j < unit_; ++j) {
          A sum = 0;
          for (int k = 0; k < columns_.count; ++k) {
            const auto at = static_cast<size_t>(k * columns_.out + o);
            sum += columns_.weight[at] * in[columns_.index[at] * unit_ + j];
          }
          out[o * unit_ + j] = sum;
        }
      }
    }
    for (size_t o = 0; o < columns_.outside.size(); ++o) {
      if (columns_.outside[o] != 0) {
        std::fill_n(out + static_cast<int64_t>(o) * unit_, unit_, extrapolation_);
      }
    }
  }

  // The resized axes except the last two, each over [outer, axis, inner].
  std::vector<Leading> leading_;
  size_t leading_bytes_ = 0;
  // The last two as [outer, rows, middle, columns, unit].
  int64_t outer_ = 1;
  Taps<A> rows_;
  int64_t middle_ = 1;
  Taps<A> columns_;
  int64_t unit_ = 1;
  bool doubles_ = false;
  int64_t most_parts_;
  A extrapolation_;
};

// Integers are computed in double and rounded towards zero, as in ONNX. A result that differs from
// a whole number only by rounding is that number.
template <typename T>
T Whole(double v) {
  constexpr double kRounding = 1e-6;
  if (std::isnan(v)) return 0;
  v = std::trunc(v + (v < 0 ? -kRounding : kRounding));
  if (v <= static_cast<double>(std::numeric_limits<T>::min())) {
    return std::numeric_limits<T>::min();
  }
  if (v >= static_cast<double>(std::numeric_limits<T>::max())) {
    return std::numeric_limits<T>::max();
  }
  return static_cast<T>(v);
}

template <typename T>
std::unique_ptr<Kernel> IntegerKernel(const ResizePlan& plan) {
  int64_t in = 1;
  int64_t out = 1;
  for (const ResizeAxis& axis : plan.axes) {
    in *= axis.in;
    out *= axis.out;
  }
  const size_t in_bytes = AlignedBytes(sizeof(double) * static_cast<size_t>(in));
  const size_t out_bytes = AlignedBytes(sizeof(double) * static_cast<size_t>(out));
  auto inner = std::make_shared<const Interpolation<double>>(plan);
  const size_t scratch = in_bytes + out_bytes + inner->scratch_bytes();
  return MakeKernel(
      [=](const KernelArgs& args) -> Status {
        const auto* src = static_cast<const T*>(args.inputs[0]);
        auto* dst = static_cast<T*>(args.outputs[0]);
        auto* bytes = static_cast<char*>(args.scratch);
        auto* wide_in = reinterpret_cast<double*>(bytes);
        auto* wide_out = reinterpret_cast<double*>(bytes + in_bytes);
        std::copy_n(src, in, wide_in);
        inner->Resize(wide_in, wide_out, bytes + in_bytes + out_bytes, args.team);
        std::transform(wide_out, wide_out + out, dst, Whole<T>);
        return absl::OkStatus();
      },
      scratch);
}

}  // namespace

StatusOr<std::unique_ptr<Kernel>> MakeInterpolationKernel(const ResizePlan& plan) {
  return DispatchNumeric(plan.dtype, [&]<typename T>() -> StatusOr<std::unique_ptr<Kernel>> {
    if constexpr (std::is_floating_point_v<T>) {
      return std::unique_ptr<Kernel>(new Interpolation<T>(plan));
    } else {
      return IntegerKernel<T>(plan);
    }
  });
}

}  // namespace chairlift
