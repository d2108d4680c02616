// Resize by copying the nearest element.
#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "ops/image/resize_plan.h"
#include "ops/image/resize_simd.h"
#include "ops/ranges.h"

namespace chairlift {
namespace {

constexpr int64_t kParallelBytes = 256 * 1024;

template <typename T>
T Saturated(double value) {
  if constexpr (std::is_integral_v<T>) {
    if (std::isnan(value)) return 0;
    if (value <= static_cast<double>(std::numeric_limits<T>::min())) {
      return std::numeric_limits<T>::min();
    }
    if (value >= static_cast<double>(std::numeric_limits<T>::max())) {
      return std::numeric_limits<T>::max();
    }
  }
  return static_cast<T>(value);
}

// The bytes of the extrapolation value.
void FillValue(const ResizePlan& plan, char* fill) {
  const float value = plan.options.extrapolation_value;
  const auto store = [&](auto v) { std::memcpy(fill, &v, sizeof(v)); };
  if (plan.dtype == DType::kFloat16) {
    store(Float16(value));
  } else if (plan.dtype == DType::kBFloat16) {
    store(BFloat16(value));
  } else if (plan.dtype == DType::kBool) {
    store(value != 0);
  } else {
    const Status numeric = DispatchNumeric(plan.dtype, [&]<typename T>() -> Status {
      store(Saturated<T>(value));
      return absl::OkStatus();
    });
    assert(numeric.ok());
    (void)numeric;
  }
}

// The tensor as rows: one for every index of the axes before the last resized one. A row has `in`
// units and becomes `out` units; a unit is everything after that axis.
class Nearest final : public Kernel {
 public:
  explicit Nearest(const ResizePlan& plan) {
    size_t last = plan.axes.size();
    while (last > 0 && plan.axes[last - 1].identity) --last;
    unit_ = static_cast<int64_t>(DTypeSize(plan.dtype));
    for (size_t d = last; d < plan.axes.size(); ++d) unit_ *= plan.axes[d].out;
    element_bytes_ = DTypeSize(plan.dtype);
    if (last > 0) {
      row_ = plan.axes[last - 1];
      outer_.assign(plan.axes.begin(), plan.axes.begin() + static_cast<int64_t>(last) - 1);
    } else {
      row_.index = {0};
    }
    for (const ResizeAxis& axis : outer_) rows_ *= axis.out;
    doubles_ = unit_ == 4 && row_.outside.empty() && row_.out == 2 * row_.in;
    for (int64_t o = 0; doubles_ && o < row_.out; ++o) {
      doubles_ = row_.index[static_cast<size_t>(o)] == o / 2;
    }
    FillValue(plan, fill_);
  }

  Status Run(const KernelArgs& args) const override {
    const auto* src = static_cast<const char*>(args.inputs[0]);
    auto* dst = static_cast<char*>(args.outputs[0]);
    const int64_t bytes = rows_ * row_.out * unit_;
    if (bytes == 0) return absl::OkStatus();
    ForRanges(args.team, rows_, bytes, kParallelBytes,
              [&](int64_t first, int64_t last) { Rows(src, dst, first, last); });
    return absl::OkStatus();
  }

 private:
  // The input row for output row r, or −1 if it is outside.
  int64_t SourceRow(int64_t r) const {
    int64_t source = 0;
    int64_t stride = 1;
    for (size_t d = outer_.size(); d-- > 0;) {
      const ResizeAxis& axis = outer_[d];
      const auto o = static_cast<size_t>(r % axis.out);
      r /= axis.out;
      if (!axis.outside.empty() && axis.outside[o] != 0) return -1;
      source += axis.index[o] * stride;
      stride *= axis.in;
    }
    return source;
  }

  void Fill(char* dst, int64_t units) const {
    const int64_t elements = units * unit_ / static_cast<int64_t>(element_bytes_);
    for (int64_t i = 0; i < elements; ++i, dst += element_bytes_) {
      std::memcpy(dst, fill_, element_bytes_);
    }
  }

  void Rows(const char* src, char* dst, int64_t first, int64_t end) const {
    const int64_t row_bytes = row_.out * unit_;
    int64_t previous = -1;
    for (int64_t r = first; r < end; ++r) {
      char* out = dst + r * row_bytes;
      const int64_t source = SourceRow(r);
      if (source < 0) {
        Fill(out, row_.out);
      } else if (source == previous) {
        std::memcpy(out, out - row_bytes, static_cast<size_t>(row_bytes));
      } else {
        Row(src + source * row_.in * unit_, out);
      }
      previous = source;
    }
  }

  template <typename T>
  void GatherUnits(const char* src, char* dst) const {
    const auto* in = reinterpret_cast<const T*>(src);
    auto* out = reinterpret_cast<T*>(dst);
    for (int64_t o = 0; o < row_.out; ++o) out[o] = in[row_.index[static_cast<size_t>(o)]];
  }

  void Row(const char* src, char* dst) const {
    if (doubles_) {
      GetResizeLoops().double_nearest(reinterpret_cast<const uint32_t*>(src), row_.in,
                                      reinterpret_cast<uint32_t*>(dst));
    } else if (unit_ == 4 && element_bytes_ == 4) {
      GatherUnits<uint32_t>(src, dst);
    } else if (unit_ == 1) {
      GatherUnits<uint8_t>(src, dst);
    } else {
      for (int64_t o = 0; o < row_.out; ++o) {
        std::memcpy(dst + o * unit_, src + row_.index[static_cast<size_t>(o)] * unit_,
                    static_cast<size_t>(unit_));
      }
    }
    for (size_t o = 0; o < row_.outside.size(); ++o) {
      if (row_.outside[o] != 0) Fill(dst + static_cast<int64_t>(o) * unit_, 1);
    }
  }

  std::vector<ResizeAxis> outer_;
  ResizeAxis row_;
  int64_t rows_ = 1;
  int64_t unit_ = 1;  // bytes
  size_t element_bytes_ = 1;
  bool doubles_ = false;
  char fill_[8] = {};
};

}  // namespace

std::unique_ptr<Kernel> MakeNearestKernel(const ResizePlan& plan) {
  return std::make_unique<Nearest>(plan);
}

}  // namespace chairlift
