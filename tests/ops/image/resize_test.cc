#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "ops/movement/naive.h"

namespace chairlift {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

struct Config {
  std::string mode = "linear";
  std::string transform = "half_pixel";
  std::string nearest = "round_prefer_floor";
  double a = -0.75;
  bool exclude = false;
  bool antialias = false;
  double extrapolation = 0;

  Attributes attributes() const {
    Attributes out;
    out.Set("mode", mode);
    out.Set("coordinate_transformation_mode", transform);
    out.Set("nearest_mode", nearest);
    out.Set("cubic_coeff_a", static_cast<float>(a));
    out.Set("exclude_outside", int64_t{exclude});
    out.Set("antialias", int64_t{antialias});
    out.Set("extrapolation_value", static_cast<float>(extrapolation));
    return out;
  }
};

// One axis as a dense matrix: row o holds the weight of every input element. A row of NaN is
// outside. From the formulas of the ONNX specification.
std::vector<std::vector<double>> Matrix(const Config& s, int64_t in, int64_t out, double scale,
                                        double roi0 = 0, double roi1 = 1) {
  std::vector<std::vector<double>> m(out, std::vector<double>(in, 0));
  const double length = scale * static_cast<double>(in);
  const auto n = static_cast<double>(in);
  for (int64_t o = 0; o < out; ++o) {
    const auto r = static_cast<double>(o);
    double x = (r + 0.5) / scale - 0.5;
    if (s.transform == "asymmetric") x = r / scale;
    if (s.transform == "align_corners") x = length == 1 ? 0 : r * (n - 1) / (length - 1);
    if (s.transform == "pytorch_half_pixel" && out == 1) x = 0;
    if (s.transform == "half_pixel_symmetric") {
      x += n / 2 * (1 - static_cast<double>(out) / length);
    }
    if (s.transform == "tf_crop_and_resize") {
      x = out > 1 ? roi0 * (n - 1) + r * (roi1 - roi0) * (n - 1) / static_cast<double>(out - 1)
                  : 0.5 * (roi0 + roi1) * (n - 1);
      if (x < 0 || x > n - 1) {
        m[o].assign(in, NAN);
        continue;
      }
    }
    const auto add = [&](double i, double w) {
      m[o][static_cast<size_t>(std::min(std::max(i, 0.0), n - 1))] += w;
    };
    if (s.mode == "nearest") {
      double i = std::ceil(x - 0.5);
      if (s.nearest == "round_prefer_ceil") i = std::floor(x + 0.5);
      if (s.nearest == "floor") i = std::floor(x);
      if (s.nearest == "ceil") i = std::ceil(x);
      add(i, 1);
      continue;
    }
    const double narrow = s.antialias ? std::min(scale, 1.0) : 1.0;
    double sum = 0;
    for (int pass = 0; pass < 2; ++pass) {
      for (double i = -4 * n - 20; i < 5 * n + 20; ++i) {
        if (s.exclude && (i < 0 || i >= n)) continue;
        const double t = std::abs(i - x) * narrow;
        double w = std::max(0.0, 1 - t);
        if (s.mode == "cubic") {
          w = t <= 1  ? (s.a + 2) * t * t * t - (s.a + 3) * t * t + 1
              : t < 2 ? s.a * t * t * t - 5 * s.a * t * t + 8 * s.a * t - 4 * s.a
                      : 0;
        }
        if (pass == 0) {
          sum += w;
        } else if (w != 0) {
          add(i, w / (s.antialias || s.exclude ? sum : 1));
        }
      }
    }
  }
  return m;
}

using Matrices = std::vector<std::vector<std::vector<double>>>;

// Σ over all input indices; NaN where an axis is outside.
double Naive(const Tensor& x, const Matrices& m, const Index& o) {
  double sum = 0;
  int64_t at = 0;
  ForEachIndex(x.shape(), [&](const Index& i) {
    double w = 1;
    for (size_t d = 0; d < i.size(); ++d) {
      w *= m[d][static_cast<size_t>(o[d])][static_cast<size_t>(i[d])];
    }
    sum += w * static_cast<double>(x.data<float>()[at++]);
  });
  return sum;
}

Tensor RandomFloats(std::mt19937& rng, const Shape& shape) {
  Tensor t = Tensor::Allocate(DType::kFloat, shape);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (int64_t i = 0; i < t.size(); ++i) t.data<float>()[i] = uniform(rng);
  return t;
}

void Check(const Tensor& y, const Tensor& x, const Matrices& m, double extrapolation,
           const std::string& what) {
  int64_t at = 0;
  ForEachIndex(y.shape(), [&](const Index& o) {
    double expected = Naive(x, m, o);
    if (std::isnan(expected)) expected = extrapolation;
    ASSERT_NEAR(y.data<float>()[at++], expected, 2e-5) << what;
  });
}

Tensor Floats(const std::vector<float>& v) {
  return Tensor::Of<float>(Shape{static_cast<int64_t>(v.size())}, v);
}

TEST(ResizeTest, MatchesTheFormulasWithScales) {
  std::mt19937 rng(30);
  ReversedTeam team;
  const float exact[] = {0.25f, 0.5f, 1, 1.5f, 2, 2.5f, 4};
  const float any[] = {0.3f, 0.6f, 1, 1.3f, 2, 3, 0.5f};
  int rounds = 0;
  for (const char* mode : {"nearest", "linear", "cubic"}) {
    for (const char* transform : {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel",
                                  "align_corners", "asymmetric"}) {
      for (int round = 0; round < 14; ++round) {
        Config s;
        s.mode = mode;
        s.transform = transform;
        const char* const nearest[] = {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"};
        s.nearest = nearest[round % 4];
        const bool is_nearest = s.mode == "nearest";
        const bool inexact =
            s.transform == "align_corners" || s.transform == "half_pixel_symmetric";
        s.exclude = s.mode == "cubic" && round % 2 == 0;
        s.antialias = !is_nearest && round % 3 == 0;
        if (s.mode == "cubic" && round % 5 == 0) s.a = -0.5;
        const int rank = static_cast<int>(Pick(rng, 1, 4));
        const Shape shape = RandomShape(rng, rank, 1, rank < 3 ? 20 : 6);
        std::vector<float> scales;
        Matrices m;
        Shape out;
        for (int d = 0; d < rank; ++d) {
          // Ties of nearest depend on the last bit of a position.
          scales.push_back(rank == 4 && d < 2      ? 1
                           : is_nearest && inexact ? 2
                           : is_nearest            ? exact[Pick(rng, 0, 6)]
                                                   : any[Pick(rng, 0, 6)]);
          const double length = std::floor(static_cast<float>(shape[d]) * scales.back());
          if (length < 1) scales.back() = 1;
          out.Append(
              static_cast<int64_t>(std::floor(static_cast<float>(shape[d]) * scales.back())));
          m.push_back(Matrix(s, shape[d], out[d], static_cast<double>(scales.back())));
        }
        if (is_nearest && s.transform == "align_corners" && s.nearest != "round_prefer_floor") {
          continue;
        }
        const Tensor x = RandomFloats(rng, shape);
        OperatorCall call{"Resize", s.attributes(), {x, {}, Floats(scales)}};
        if (round % 2 == 0) call.constants = {2};
        const Tensor y = RunOne(call, &team);
        ASSERT_EQ(y.shape(), out);
        Check(y, x, m, 0, std::string(mode) + " " + transform);
        ++rounds;
      }
    }
  }
  EXPECT_GT(rounds, 150);
}

TEST(ResizeTest, DoublesImagePlanes) {
  std::mt19937 rng(31);
  ReversedTeam team;
  for (const char* mode : {"nearest", "linear"}) {
    for (int64_t width : {1, 2, 7, 33, 64}) {
      Config s;
      s.mode = mode;
      const Tensor x = RandomFloats(rng, Shape{1, 2, 5, width});
      const Tensor y =
          RunOne({"Resize", s.attributes(), {x, {}, Floats({1, 1, 2, 2})}, 1, "", {2}}, &team);
      ASSERT_EQ(y.shape(), (Shape{1, 2, 10, 2 * width}));
      const Config same;
      Check(y, x,
            {Matrix(same, 1, 1, 1), Matrix(same, 2, 2, 1), Matrix(s, 5, 10, 2),
             Matrix(s, width, 2 * width, 2)},
            0, mode);
    }
  }
}

// Rows shorter and longer than a vector, which grow and shrink: elements looked up together or not.
TEST(ResizeTest, RowsOfAllLengthsMatchTheFormulas) {
  std::mt19937 rng(36);
  ReversedTeam team;
  for (const char* mode : {"linear", "cubic"}) {
    for (const char* transform : {"half_pixel", "align_corners", "tf_crop_and_resize"}) {
      for (int round = 0; round < 20; ++round) {
        Config s;
        s.mode = mode;
        s.transform = transform;
        s.extrapolation = 7;
        const int64_t in = Pick(rng, 1, round % 2 == 0 ? 20 : 90);
        const int64_t out = Pick(rng, 1, 200);
        // Backwards as well, and from outside of the row.
        const float roi[] = {0.213f, round % 4 < 2 ? 1.187f : -0.117f};
        const Tensor x = RandomFloats(rng, Shape{3, in});
        const Tensor y = RunOne(
            {"Resize", s.attributes(), {x, Floats({0, roi[0], 1, roi[1]}), {}, Ints({3, out})}},
            &team);
        ASSERT_EQ(y.shape(), (Shape{3, out}));
        const double scale = static_cast<double>(out) / static_cast<double>(in);
        Check(y, x,
              {Matrix(Config(), 3, 3, 1),
               Matrix(s, in, out, scale, static_cast<double>(roi[0]), static_cast<double>(roi[1]))},
              7, mode + std::string(" ") + transform);
      }
    }
  }
}

TEST(ResizeTest, SharesLargeImages) {
  std::mt19937 rng(32);
  ReversedTeam team;
  SoloTeam solo;
  const Tensor x = RandomFloats(rng, Shape{1, 5, 61, 67});
  for (const char* mode : {"nearest", "linear", "cubic"}) {
    Config s;
    s.mode = mode;
    const OperatorCall call{"Resize", s.attributes(), {x, {}, {}, Ints({1, 5, 130, 141})}};
    ExpectSame(RunOne(call, &team), RunOne(call, &solo));
    // Channels last, and a volume of three resized axes.
    const OperatorCall last{
        "Resize", s.attributes(), {x.Reshaped({1, 61, 67, 5}), {}, Floats({1, 2, 2, 1})}};
    ExpectSame(RunOne(last, &team), RunOne(last, &solo));
    const OperatorCall volume{
        "Resize", s.attributes(), {x.Reshaped({5, 61, 67}), {}, Floats({1.4f, 1.6f, 2.2f})}};
    ExpectSame(RunOne(volume, &team), RunOne(volume, &solo));
  }
}

TEST(ResizeTest, ResizesBlocksOfChannelsAsTheyLie) {
  std::mt19937 rng(36);
  for (const auto& [mode, channels] : {std::pair("nearest", 32), {"linear", 24}, {"cubic", 9}}) {
    const Tensor x = RandomFloats(rng, Shape{2, channels, 5, 7});
    Config s;
    s.mode = mode;
    OperatorCall call{"Resize", s.attributes(), {x, {}, Floats({1, 1, 2, 1.5f})}, 1, "", {2}};
    const Tensor plain = RunOne(call);
    call.blocked = {.inputs = 1, .outputs = 1};
    const Tensor blocked = RunOne(call);
    ASSERT_EQ(blocked.shape(), plain.shape());
    for (int64_t i = 0; i < plain.size(); ++i) {
      ASSERT_NEAR(blocked.data<float>()[i], plain.data<float>()[i], 1e-6) << mode;
    }
  }
}

TEST(ResizeTest, HasABlockedFormOnlyWhereChannelsStay) {
  const OperatorDef* def = OperatorRegistry::Builtin().Find("", "Resize");
  const auto has = [&](const std::vector<float>& scales, const Attributes& a = {}) {
    const Tensor value = Floats(scales);
    const std::vector<ValueInfo> inputs = {
        Symbolic(DType::kFloat, {Dim::Symbol("batch"), 16, 4, 4}), {}, Known(value)};
    const auto outputs = Inferred("Resize", a, inputs);
    return def->blocked_form(a, inputs, *outputs).has_value();
  };
  EXPECT_TRUE(has({1, 1, 2, 2}));
  EXPECT_FALSE(has({1, 1.05f, 2, 2}));
  EXPECT_FALSE(has({1, 2, 2, 2}));
  Attributes axes;
  axes.Set("axes", std::vector<int64_t>{2, 3});
  EXPECT_TRUE(has({2, 2}, axes));
}

TEST(ResizeTest, CropsWithARegionOfInterest) {
  std::mt19937 rng(33);
  for (const char* mode : {"nearest", "linear", "cubic"}) {
    Config s;
    s.mode = mode;
    s.transform = "tf_crop_and_resize";
    s.extrapolation = 7;
    const Tensor x = RandomFloats(rng, Shape{2, 9, 8});
    const Tensor roi = Floats({0, 0.375f, -0.25f, 1, 0.75f, 1.25f});
    const Tensor y = RunOne({"Resize", s.attributes(), {x, roi, {}, Ints({2, 4, 7})}});
    ASSERT_EQ(y.shape(), (Shape{2, 4, 7}));
    Check(y, x,
          {Matrix(s, 2, 2, 1, 0, 1), Matrix(s, 9, 4, 1, 0.375, 0.75),
           Matrix(s, 8, 7, 1, -0.25, 1.25)},
          7, mode);
  }
}

TEST(ResizeTest, KeepsTheAspectRatio) {
  std::mt19937 rng(34);
  const Tensor x = RandomFloats(rng, Shape{1, 4, 8});
  Attributes a = Config().attributes();
  a.Set("axes", std::vector<int64_t>{2, 1});
  a.Set("keep_aspect_ratio_policy", std::string("not_larger"));
  EXPECT_EQ(RunOne({"Resize", a, {x, {}, {}, Ints({12, 7})}}).shape(), (Shape{1, 6, 12}));
  a.Set("keep_aspect_ratio_policy", std::string("not_smaller"));
  const Tensor y = RunOne({"Resize", a, {x, {}, {}, Ints({12, 7})}});
  ASSERT_EQ(y.shape(), (Shape{1, 7, 14}));
  const Config s;
  Check(y, x, {Matrix(s, 1, 1, 1), Matrix(s, 4, 7, 1.75), Matrix(s, 8, 14, 1.75)}, 0, "policy");
}

TEST(ResizeTest, TakesOtherTypes) {
  const Tensor x = Tensor::Of<uint8_t>(Shape{1, 4}, {10, 20, 255, 0});
  Attributes linear = Config().attributes();
  const Tensor y = RunOne({"Resize", linear, {x, {}, Floats({1, 2})}});
  EXPECT_EQ(std::vector<uint8_t>(y.values<uint8_t>().begin(), y.values<uint8_t>().end()),
            (std::vector<uint8_t>{10, 12, 17, 78, 196, 191, 63, 0}));
  // Thirds of a constant are the constant.
  const Tensor even = Tensor::Of<int64_t>(Shape{3}, {5, 5, 5});
  const Tensor thirds = RunOne({"Resize", linear, {even, {}, Floats({3})}});
  for (int64_t v : thirds.values<int64_t>()) EXPECT_EQ(v, 5);
  std::mt19937 rng(35);
  Config nearest;
  nearest.mode = "nearest";
  nearest.transform = "asymmetric";
  nearest.nearest = "floor";
  for (DType dtype : kEveryType) {
    if (kHalfTypes.Contains(dtype)) continue;
    const Tensor t = RandomBytes(rng, dtype, Shape{2, 3, 5});
    ExpectSame(RunOne({"Resize", nearest.attributes(), {t, {}, Floats({1, 3, 2})}}),
               Moved(t, Shape{2, 9, 10}, [](const Index& i) {
                 return Index{i[0], i[1] / 3, i[2] / 2};
               }));
  }
  const Tensor half = Tensor::Of<Float16>(Shape{2}, {Float16(1), Float16(3)});
  const Tensor wide = RunOne({"Resize", linear, {half, {}, Floats({2})}});
  ASSERT_EQ(wide.dtype(), DType::kFloat16);
  EXPECT_EQ(static_cast<float>(wide.data<Float16>()[1]), 1.5f);
  const Tensor flag = Tensor::Of<bool>(Shape{2}, {true, false});
  EXPECT_FALSE(ErrorOf({"Resize", linear, {flag, {}, Floats({2})}}).ok());
}

TEST(ResizeTest, RefusesImpossibleRequests) {
  const Tensor x = Tensor::Allocate(DType::kFloat, Shape{2, 3});
  const Tensor empty = Tensor::Allocate(DType::kFloat, Shape{2, 0});
  const auto error = [](std::vector<Tensor> inputs, Attributes a = {}) {
    return ErrorOf({"Resize", std::move(a), std::move(inputs)});
  };
  EXPECT_FALSE(error({x}).ok());
  EXPECT_FALSE(error({x, {}, Floats({1, 2}), Ints({2, 6})}).ok());
  EXPECT_TRUE(error({x, Floats({}), Floats({1, 2}), Ints({})}).ok());
  EXPECT_FALSE(error({x, {}, Floats({2})}).ok());
  EXPECT_FALSE(error({x, {}, Floats({1, 0})}).ok());
  EXPECT_FALSE(error({x, {}, Floats({1, -1})}).ok());
  EXPECT_FALSE(error({x, {}, Floats({1, NAN})}).ok());
  EXPECT_FALSE(error({x, {}, Floats({1, INFINITY})}).ok());
  EXPECT_FALSE(error({x, {}, Floats({1e9f, 1e9f})}).ok());
  EXPECT_FALSE(error({x, {}, {}, Ints({2, -1})}).ok());
  EXPECT_FALSE(error({x, {}, {}, Ints({1 << 30, 1 << 30})}).ok());
  EXPECT_FALSE(error({empty, {}, {}, Ints({2, 3})}).ok());
  EXPECT_TRUE(error({empty, {}, {}, Ints({4, 0})}).ok());
  Attributes a;
  a.Set("mode", std::string("quadratic"));
  EXPECT_FALSE(error({x, {}, Floats({1, 2})}, a).ok());
  Attributes crop;
  crop.Set("coordinate_transformation_mode", std::string("tf_crop_and_resize"));
  EXPECT_FALSE(error({x, {}, Floats({1, 2})}, crop).ok());
  EXPECT_FALSE(error({x, Floats({0, 1}), Floats({1, 2})}, crop).ok());
}

TEST(ResizeTest, KeepsSymbols) {
  const Dim height = Dim::Symbol("h");
  const ValueInfo x = Symbolic(DType::kFloat, {Dim::Symbol("batch"), 3, height, 8});
  const Tensor scales = Floats({1, 1, 2, 1.5f});
  EXPECT_EQ(ShapeOf(Inferred("Resize", {}, {x, {}, Known(scales)})), "[batch,3,2*h,12]");
  EXPECT_EQ(
      ShapeOf(Inferred("Resize", {},
                       {x, {}, {}, Tracked({Dim::Symbol("batch"), 3, Dim::Symbol("H"), 16})})),
      "[batch,3,H,16]");
}

}  // namespace
}  // namespace chairlift
