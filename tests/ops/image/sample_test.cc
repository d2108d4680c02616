// GridSample, AffineGrid, RoiAlign, MaxRoiPool.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/movement/naive.h"

namespace chairlift {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

Tensor Uniform(std::mt19937& rng, const Shape& shape, float low = -1, float high = 1) {
  Tensor t = Tensor::Allocate(DType::kFloat, shape);
  std::uniform_real_distribution<float> uniform(low, high);
  for (int64_t i = 0; i < t.size(); ++i) t.data<float>()[i] = uniform(rng);
  return t;
}

struct Grid {
  std::string mode;
  std::string padding;
  bool align;
};

// Folds a position back by walking from border to border.
double Folded(double x, double low, double high) {
  if (high <= low) return low;
  while (x < low || x > high) x = x < low ? 2 * low - x : 2 * high - x;
  return x;
}

// The weight of every element of one axis for the normalised position p.
std::vector<double> AxisWeights(const Grid& g, double p, int64_t dim) {
  const auto n = static_cast<double>(dim);
  const double low = g.align ? 0 : -0.5;
  const double high = g.align ? n - 1 : n - 0.5;
  double x = g.align ? (p + 1) / 2 * (n - 1) : ((p + 1) * n - 1) / 2;
  if (g.mode == "nearest") x = std::nearbyint(x);
  if (g.padding == "border" && (x < low || x > high)) x = std::min(std::max(x, 0.0), n - 1);
  if (g.padding == "reflection") x = Folded(x, low, high);
  std::vector<double> w(dim, 0);
  for (double i = -3 * n - 8; i < 4 * n + 8; ++i) {
    const double t = std::abs(i - x);
    double v = g.mode == "nearest" ? (i == (x == std::floor(x) ? x : std::trunc(x)) ? 1 : 0)
                                   : std::max(0.0, 1 - t);
    if (g.mode == "cubic") {
      v = t <= 1  ? 1.25 * t * t * t - 2.25 * t * t + 1
          : t < 2 ? -0.75 * t * t * t + 3.75 * t * t - 6 * t + 3
                  : 0;
    }
    if (v == 0) continue;
    double at = i;
    if (at < 0 || at >= n) {
      if (g.padding == "zeros") continue;
      if (g.padding == "border") at = at < 0 ? 0 : n - 1;
      if (g.padding == "reflection") at = std::trunc(Folded(at, low, high));
    }
    w[static_cast<size_t>(at)] += v;
  }
  return w;
}

TEST(GridSampleTest, MatchesTheFormulas) {
  std::mt19937 rng(50);
  ReversedTeam team;
  for (const char* mode : {"nearest", "linear", "cubic"}) {
    for (const char* padding : {"zeros", "border", "reflection"}) {
      for (int round = 0; round < 8; ++round) {
        const Grid g{mode, padding, round % 2 == 0};
        const int axes = round % 4 == 3 ? 3 : round % 4 == 1 ? 1 : 2;
        const bool large = round == 0;
        const Shape dims = RandomShape(rng, axes, 1, 6);
        const Shape points = RandomShape(rng, axes, 1, large ? 40 : 4);
        Shape in{large ? 3 : 2, 3}, grid_shape{in[0]}, out{in[0], 3};
        for (int64_t d : dims) in.Append(d);
        for (int64_t p : points) grid_shape.Append(p), out.Append(p);
        grid_shape.Append(axes);
        const Tensor x = Uniform(rng, in);
        const Tensor grid = Uniform(rng, grid_shape, -2.1f, 2.1f);
        Attributes a;
        a.Set("mode", std::string(mode));
        a.Set("padding_mode", std::string(padding));
        a.Set("align_corners", int64_t{g.align});
        const Tensor y = RunOne({"GridSample", a, {x, grid}}, &team);
        ASSERT_EQ(y.shape(), out);
        int64_t at = 0;
        ForEachIndex(out, [&](const Index& o) {
          Index p{o[0]};
          p.insert(p.end(), o.begin() + 2, o.end());
          p.push_back(0);
          std::vector<std::vector<double>> w(axes);
          for (int d = 0; d < axes; ++d) {
            p.back() = axes - 1 - d;
            w[d] = AxisWeights(g, static_cast<double>(grid.data<float>()[Offset(grid_shape, p)]),
                               dims[d]);
          }
          double expected = 0;
          ForEachIndex(dims, [&](const Index& i) {
            double weight = 1;
            Index from{o[0], o[1]};
            for (int d = 0; d < axes; ++d) {
              weight *= w[d][static_cast<size_t>(i[d])];
              from.push_back(i[d]);
            }
            expected += weight * static_cast<double>(x.data<float>()[Offset(in, from)]);
          });
          ASSERT_NEAR(y.data<float>()[at++], expected, 3e-5)
              << mode << " " << padding << " " << g.align;
        });
      }
    }
  }
}

TEST(GridSampleTest, SurvivesPositionsWithoutSense) {
  const Tensor x = Tensor::Of<float>(Shape{1, 1, 1, 2}, {1, 2});
  const Tensor grid = Tensor::Of<float>(Shape{1, 1, 3, 2}, {NAN, 0, INFINITY, 0, -1e30f, 0});
  for (const char* padding : {"zeros", "border", "reflection"}) {
    for (const char* mode : {"nearest", "linear", "cubic"}) {
      Attributes a;
      a.Set("mode", std::string(mode));
      a.Set("padding_mode", std::string(padding));
      const Tensor y = RunOne({"GridSample", a, {x, grid}});
      for (float v : y.values<float>()) EXPECT_TRUE(std::isfinite(v));
    }
  }
  EXPECT_FALSE(ErrorOf({"GridSample", {}, {x, grid.Reshaped({1, 1, 2, 3})}}).ok());
  EXPECT_FALSE(ErrorOf({"GridSample", {}, {x.Reshaped({2, 1, 1, 1}), grid}}).ok());
}

TEST(AffineGridTest, TheIdentityOnCornersSamplesTheImageItself) {
  std::mt19937 rng(51);
  for (bool align : {false, true}) {
    Attributes a;
    a.Set("align_corners", int64_t{align});
    const Tensor flat = Tensor::Of<float>(Shape{1, 2, 3}, {1, 0, 0, 0, 1, 0});
    const Tensor x = Uniform(rng, Shape{1, 2, 4, 5});
    const Tensor grid = RunOne({"AffineGrid", a, {flat, Ints({1, 2, 4, 5})}});
    ASSERT_EQ(grid.shape(), (Shape{1, 4, 5, 2}));
    const Tensor y = RunOne({"GridSample", a, {x, grid}});
    for (int64_t i = 0; i < x.size(); ++i) {
      EXPECT_NEAR(y.data<float>()[i], x.data<float>()[i], 1e-5);
    }
    const Tensor solid = Uniform(rng, Shape{2, 3, 4});
    const Tensor volume = RunOne({"AffineGrid", a, {solid, Ints({2, 1, 2, 3, 4})}});
    ASSERT_EQ(volume.shape(), (Shape{2, 2, 3, 4, 3}));
    ForEachIndex(Shape{2, 2, 3, 4}, [&](const Index& i) {
      const auto place = [&](int64_t at, int64_t n) {
        const double step = align ? 2.0 / static_cast<double>(n - 1) : 2.0 / static_cast<double>(n);
        return (align ? -1 : -1 + step / 2) + step * static_cast<double>(at);
      };
      const double p[] = {place(i[3], 4), place(i[2], 3), place(i[1], 2), 1};
      for (int64_t r = 0; r < 3; ++r) {
        double sum = 0;
        for (int64_t c = 0; c < 4; ++c) {
          sum += p[c] * static_cast<double>(solid.data<float>()[(i[0] * 3 + r) * 4 + c]);
        }
        Index at = i;
        at.push_back(r);
        ASSERT_NEAR(volume.data<float>()[Offset(volume.shape(), at)], sum, 1e-5);
      }
    });
  }
  const Tensor theta = Tensor::Allocate(DType::kFloat, Shape{1, 2, 3});
  EXPECT_FALSE(ErrorOf({"AffineGrid", {}, {theta, Ints({1, 2, 4})}}).ok());
  EXPECT_FALSE(ErrorOf({"AffineGrid", {}, {theta, Ints({2, 2, 4, 4})}}).ok());
  EXPECT_FALSE(ErrorOf({"AffineGrid", {}, {theta, Ints({1, 2, -4, 4})}}).ok());
}

// A plane at a real position, as RoiAlign reads it.
double PlaneAt(const float* plane, int64_t h, int64_t w, double y, double x) {
  if (y < -1 || y > static_cast<double>(h) || x < -1 || x > static_cast<double>(w)) return 0;
  y = std::min(std::max(y, 0.0), static_cast<double>(h - 1));
  x = std::min(std::max(x, 0.0), static_cast<double>(w - 1));
  double sum = 0;
  for (int64_t i = 0; i < h; ++i) {
    for (int64_t j = 0; j < w; ++j) {
      sum += std::max(0.0, 1 - std::abs(y - static_cast<double>(i))) *
             std::max(0.0, 1 - std::abs(x - static_cast<double>(j))) *
             static_cast<double>(plane[i * w + j]);
    }
  }
  return sum;
}

// The largest of the elements around such a position, each times its share there.
double LargestShareAt(const float* plane, int64_t h, int64_t w, double y, double x) {
  if (y < -1 || y > static_cast<double>(h) || x < -1 || x > static_cast<double>(w)) return 0;
  y = std::min(std::max(y, 0.0), static_cast<double>(h - 1));
  x = std::min(std::max(x, 0.0), static_cast<double>(w - 1));
  double largest = -std::numeric_limits<double>::infinity();
  for (const double i : {std::floor(y), std::floor(y) + 1}) {
    for (const double j : {std::floor(x), std::floor(x) + 1}) {
      const int64_t at =
          std::min(static_cast<int64_t>(i), h - 1) * w + std::min(static_cast<int64_t>(j), w - 1);
      largest = std::max(
          largest, (1 - std::abs(y - i)) * (1 - std::abs(x - j)) * static_cast<double>(plane[at]));
    }
  }
  return largest;
}

TEST(RoiAlignTest, TakesBilinearSamples) {
  std::mt19937 rng(52);
  ReversedTeam team;
  for (int round = 0; round < 40; ++round) {
    const bool max = round >= 20;
    const Shape in{2, 3, Pick(rng, 1, 9), Pick(rng, 1, 9)};
    const int64_t count = Pick(rng, 0, 4);
    const int64_t height = Pick(rng, 1, 4), width = Pick(rng, 1, 4);
    const int64_t ratio = round % 4 == 3 ? 9 : round % 3;
    const bool half_pixel = round % 2 == 0;
    const Tensor x = Uniform(rng, in);
    const Tensor rois = Uniform(rng, Shape{count, 4}, -4, 24);
    std::vector<int64_t> batch;
    for (int64_t i = 0; i < count; ++i) batch.push_back(Pick(rng, 0, 1));
    Attributes a;
    a.Set("output_height", height);
    a.Set("output_width", width);
    a.Set("sampling_ratio", ratio);
    a.Set("mode", std::string(max ? "max" : "avg"));
    a.Set("spatial_scale", 0.5f);
    a.Set("coordinate_transformation_mode",
          std::string(half_pixel ? "half_pixel" : "output_half_pixel"));
    const Tensor y = RunOne({"RoiAlign", a, {x, rois, Ints(batch)}}, &team);
    ASSERT_EQ(y.shape(), (Shape{count, 3, height, width}));
    int64_t at = 0;
    ForEachIndex(y.shape(), [&](const Index& o) {
      double edge[4];
      for (int i = 0; i < 4; ++i) {
        edge[i] =
            static_cast<double>(rois.data<float>()[o[0] * 4 + i]) * 0.5 - (half_pixel ? 0.5 : 0);
      }
      double size[] = {edge[3] - edge[1], edge[2] - edge[0]};
      if (!half_pixel) size[0] = std::max(size[0], 1.0), size[1] = std::max(size[1], 1.0);
      const double bin[] = {size[0] / static_cast<double>(height),
                            size[1] / static_cast<double>(width)};
      const int64_t rows = ratio > 0 ? ratio : static_cast<int64_t>(std::ceil(bin[0]));
      const int64_t columns = ratio > 0 ? ratio : static_cast<int64_t>(std::ceil(bin[1]));
      double sum = 0, largest = -std::numeric_limits<double>::infinity();
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < columns; ++j) {
          const double py =
              edge[1] + bin[0] * (static_cast<double>(o[2]) +
                                  (static_cast<double>(i) + 0.5) / static_cast<double>(rows));
          const double px =
              edge[0] + bin[1] * (static_cast<double>(o[3]) +
                                  (static_cast<double>(j) + 0.5) / static_cast<double>(columns));
          const float* plane = x.data<float>() + (batch[o[0]] * 3 + o[1]) * in[2] * in[3];
          sum += PlaneAt(plane, in[2], in[3], py, px);
          largest = std::max(largest, LargestShareAt(plane, in[2], in[3], py, px));
        }
      }
      const auto samples = static_cast<double>(
          std::max<int64_t>(1, std::max<int64_t>(rows, 0) * std::max<int64_t>(columns, 0)));
      const bool none = rows <= 0 || columns <= 0;
      ASSERT_NEAR(y.data<float>()[at++], !max ? sum / samples : none ? 0 : largest, 1e-5);
    });
  }
}

TEST(RoiAlignTest, RefusesImpossibleRegions) {
  const Tensor x = Tensor::Of<float>(Shape{1, 1, 2, 2}, {1, 2, 3, 4});
  const auto error = [&](std::vector<float> roi, int64_t batch) {
    return ErrorOf({"RoiAlign", {}, {x, Tensor::Of<float>(Shape{1, 4}, roi), Ints({batch})}});
  };
  EXPECT_TRUE(error({0, 0, 1, 1}, 0).ok());
  EXPECT_FALSE(error({0, 0, 1, 1}, 1).ok());
  EXPECT_FALSE(error({0, 0, 1, 1}, -1).ok());
  EXPECT_FALSE(error({0, 0, 1e20f, 1e20f}, 0).ok());
  EXPECT_FALSE(error({0, 0, NAN, 1}, 0).ok());
}

TEST(MaxRoiPoolTest, TakesTheLargestOfEachBin) {
  std::mt19937 rng(53);
  for (int round = 0; round < 20; ++round) {
    const Shape in{2, 2, Pick(rng, 1, 9), Pick(rng, 1, 9)};
    const int64_t bins[] = {Pick(rng, 1, 3), Pick(rng, 1, 3)};
    const Tensor x = Uniform(rng, in);
    Tensor rois = Uniform(rng, Shape{3, 5}, -2, 12);
    for (int64_t i = 0; i < 3; ++i) {
      float* r = rois.data<float>() + i * 5;
      r[0] = static_cast<float>(i % 2);
      if (r[3] < r[1]) std::swap(r[1], r[3]);
      if (r[4] < r[2]) std::swap(r[2], r[4]);
    }
    Attributes a;
    a.Set("pooled_shape", std::vector<int64_t>{bins[0], bins[1]});
    a.Set("spatial_scale", 0.75f);
    const Tensor y = RunOne({"MaxRoiPool", a, {x, rois}});
    ASSERT_EQ(y.shape(), (Shape{3, 2, bins[0], bins[1]}));
    int64_t at = 0;
    ForEachIndex(y.shape(), [&](const Index& o) {
      const float* r = rois.data<float>() + o[0] * 5;
      double largest = 0;
      bool any = false;
      for (int64_t i = 0; i < in[2]; ++i) {
        for (int64_t j = 0; j < in[3]; ++j) {
          // Whether element (i, j) lies in the bin, borders rounded outwards.
          const auto within = [&](int64_t e, int64_t bin, int64_t n, float from, float to) {
            const double start = std::round(static_cast<double>(from) * 0.75);
            const double end = std::round(static_cast<double>(to) * 0.75);
            const double size = std::max(end - start + 1, 1.0) / static_cast<double>(n);
            const double place = static_cast<double>(e) - start;
            return place >= std::floor(static_cast<double>(bin) * size) &&
                   place < std::ceil(static_cast<double>(bin + 1) * size);
          };
          if (!within(i, o[2], bins[0], r[2], r[4]) || !within(j, o[3], bins[1], r[1], r[3])) {
            continue;
          }
          const double v = static_cast<double>(
              x.data<float>()[Offset(in, {static_cast<int64_t>(r[0]), o[1], i, j})]);
          largest = any ? std::max(largest, v) : v;
          any = true;
        }
      }
      ASSERT_NEAR(y.data<float>()[at++], largest, 1e-6);
    });
  }
}

TEST(MaxRoiPoolTest, ABinWithNaNIsNaN) {
  const Tensor x = Tensor::Of<float>(Shape{1, 1, 1, 4}, {NAN, 2, 3, 4});
  const Tensor rois = Tensor::Of<float>(Shape{1, 5}, {0, 0, 0, 3, 0});
  Attributes a;
  a.Set("pooled_shape", std::vector<int64_t>{1, 2});
  const Tensor y = RunOne({"MaxRoiPool", a, {x, rois}});
  EXPECT_TRUE(std::isnan(y.data<float>()[0]));
  EXPECT_EQ(y.data<float>()[1], 4);
}

TEST(MaxRoiPoolTest, RefusesImpossibleRegions) {
  const Tensor x = Tensor::Of<float>(Shape{1, 1, 2, 2}, {1, 2, 3, 4});
  Attributes a;
  a.Set("pooled_shape", std::vector<int64_t>{1, 1});
  const auto error = [&](std::vector<float> roi) {
    return ErrorOf({"MaxRoiPool", a, {x, Tensor::Of<float>(Shape{1, 5}, roi)}});
  };
  EXPECT_TRUE(error({0, 0, 0, 1, 1}).ok());
  EXPECT_FALSE(error({1, 0, 0, 1, 1}).ok());
  EXPECT_FALSE(error({NAN, 0, 0, 1, 1}).ok());
  EXPECT_FALSE(error({0, 0, 0, INFINITY, 1}).ok());
  EXPECT_FALSE(error({0, 0, NAN, 1, 1}).ok());
  EXPECT_FALSE(
      ErrorOf({"MaxRoiPool", {}, {x, Tensor::Of<float>(Shape{1, 5}, {0, 0, 0, 1, 1})}}).ok());
}

}  // namespace
}  // namespace chairlift
