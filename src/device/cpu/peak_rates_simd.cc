// The loops that peak_rates.h times, one build per instruction set.
#include <algorithm>
#include <chrono>
#include <vector>

#include "device/cpu/peak_rates.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/cpu/peak_rates_simd.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace chairlift::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// 12 independent accumulators: enough to fill two FMA pipes of latency 4 or 5. Returns FLOPs.
double FmaLoop(int64_t iterations, float* sink) {
  const hn::ScalableTag<float> d;
  const auto scale = hn::Set(d, *sink);
  const auto shift = hn::Set(d, 1e-3f);
  // Different start values, or the compiler would merge the accumulators.
  const auto start = [&](int i) { return hn::Set(d, *sink + static_cast<float>(i)); };
  auto a0 = start(0), a1 = start(1), a2 = start(2), a3 = start(3), a4 = start(4), a5 = start(5);
  auto a6 = start(6), a7 = start(7), a8 = start(8), a9 = start(9), a10 = start(10), a11 = start(11);
  for (int64_t n = 0; n < iterations; ++n) {
    a0 = hn::MulAdd(a0, scale, shift);
    a1 = hn::MulAdd(a1, scale, shift);
    a2 = hn::MulAdd(a2, scale, shift);
    a3 = hn::MulAdd(a3, scale, shift);
    a4 = hn::MulAdd(a4, scale, shift);
    a5 = hn::MulAdd(a5, scale, shift);
    a6 = hn::MulAdd(a6, scale, shift);
    a7 = hn::MulAdd(a7, scale, shift);
    a8 = hn::MulAdd(a8, scale, shift);
    a9 = hn::MulAdd(a9, scale, shift);
    a10 = hn::MulAdd(a10, scale, shift);
    a11 = hn::MulAdd(a11, scale, shift);
  }
  const auto sum =
      hn::Add(hn::Add(hn::Add(a0, a1), hn::Add(a2, a3)), hn::Add(hn::Add(a4, a5), hn::Add(a6, a7)));
  *sink = hn::GetLane(hn::SumOfLanes(d, hn::Add(sum, hn::Add(hn::Add(a8, a9), hn::Add(a10, a11)))));
  return 2.0 * 12 * static_cast<double>(hn::Lanes(d)) * static_cast<double>(iterations);
}

// 6 pairs of accumulators, because the accumulated type differs between instruction sets.
double IntegerLoop(int64_t iterations, int32_t* sink) {
#if HWY_TARGET == HWY_SCALAR
  // Integers that are computed one at a time are as fast as floats.
  float start = static_cast<float>(*sink) - 1e-3f;
  return FmaLoop(iterations, &start);
#else
  const hn::ScalableTag<int32_t> d;
  const hn::Repartition<int16_t, decltype(d)> d16;
  const auto factor = hn::Set(d16, static_cast<int16_t>(*sink));
  auto a0 = hn::Zero(d), a1 = a0, a2 = a0, a3 = a0, a4 = a0, a5 = a0;
  auto b0 = a0, b1 = a0, b2 = a0, b3 = a0, b4 = a0, b5 = a0;
  const auto start = [&](int i) { return hn::Set(d16, static_cast<int16_t>(*sink + i)); };
  const auto f0 = start(0), f1 = start(1), f2 = start(2), f3 = start(3), f4 = start(4),
             f5 = start(5);
  for (int64_t n = 0; n < iterations; ++n) {
    a0 = hn::ReorderWidenMulAccumulate(d, factor, f0, a0, b0);
    a1 = hn::ReorderWidenMulAccumulate(d, factor, f1, a1, b1);
    a2 = hn::ReorderWidenMulAccumulate(d, factor, f2, a2, b2);
    a3 = hn::ReorderWidenMulAccumulate(d, factor, f3, a3, b3);
    a4 = hn::ReorderWidenMulAccumulate(d, factor, f4, a4, b4);
    a5 = hn::ReorderWidenMulAccumulate(d, factor, f5, a5, b5);
  }
  const auto sum = [&](auto x, auto y, auto z) { return hn::Add(x, hn::Add(y, z)); };
  const auto all =
      hn::Add(hn::Add(sum(a0, a1, a2), sum(a3, a4, a5)), hn::Add(sum(b0, b1, b2), sum(b3, b4, b5)));
  *sink = hn::GetLane(hn::SumOfLanes(d, all));
  return 2.0 * 6 * static_cast<double>(hn::Lanes(d16)) * static_cast<double>(iterations);
#endif
}

// Reads `count` floats (a multiple of 64) once. Returns bytes.
double ReadLoop(const float* data, size_t count, float* sink) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  for (size_t i = 0; i < count; i += 4 * lanes) {
    s0 = hn::Add(s0, hn::Load(d, data + i));
    s1 = hn::Add(s1, hn::Load(d, data + i + lanes));
    s2 = hn::Add(s2, hn::Load(d, data + i + 2 * lanes));
    s3 = hn::Add(s3, hn::Load(d, data + i + 3 * lanes));
  }
  *sink = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
  return static_cast<double>(count) * sizeof(float);
}

}  // namespace chairlift::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace chairlift {
namespace {

HWY_EXPORT(FmaLoop);
HWY_EXPORT(IntegerLoop);
HWY_EXPORT(ReadLoop);

using Clock = std::chrono::steady_clock;

// The best of `repeats` runs of `work`, which returns the amount of work it did: its rate per
// second in units of 1e9. Many short runs find the machine undisturbed more often than a few long
// ones.
template <typename F>
double BestRate(int repeats, F work) {
  double best = 0;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    const auto begin = Clock::now();
    const double done = work();
    best = std::max(best, done / std::chrono::duration<double>(Clock::now() - begin).count() / 1e9);
  }
  return best;
}

}  // namespace

double MeasureFma() {
  return BestRate(200, [] {
    volatile float start = 0.999f;
    float sink = start;
    return HWY_DYNAMIC_DISPATCH(FmaLoop)(100'000, &sink);
  });
}

double MeasureIntegerPairs() {
  return BestRate(200, [] {
    volatile int32_t start = 1;
    int32_t sink = start;
    return HWY_DYNAMIC_DISPATCH(IntegerLoop)(100'000, &sink);
  });
}

double MeasureRead(size_t bytes) {
  std::vector<float> buffer(bytes / sizeof(float) + 64, 1.0f);
  const auto address = reinterpret_cast<uintptr_t>(buffer.data());
  const auto* data = buffer.data() + ((address + 255) / 256 * 256 - address) / sizeof(float);
  float sink = 0;
  const int repeats = static_cast<int>(std::clamp<size_t>((size_t{4} << 30) / bytes, 9, 400));
  return BestRate(
      repeats, [&] { return HWY_DYNAMIC_DISPATCH(ReadLoop)(data, bytes / sizeof(float), &sink); });
}

}  // namespace chairlift
#endif  // HWY_ONCE
