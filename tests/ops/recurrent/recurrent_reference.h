// LSTM, GRU and RNN as the ONNX equations say them, element by element in double; layout 0.
#ifndef CHAIRLIFT_TESTS_OPS_RECURRENT_RECURRENT_REFERENCE_H_
#define CHAIRLIFT_TESTS_OPS_RECURRENT_RECURRENT_REFERENCE_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace chairlift::testing {

using Function = std::function<double(double)>;

struct RecurrentCase {
  std::string op = "LSTM";
  int64_t time = 1, batch = 1, features = 1, hidden = 1;
  std::string direction = "forward";
  bool has_bias = true, has_lengths = false, has_h = false, has_c = false, has_peepholes = false;
  bool input_forget = false, linear_before_reset = false;
  int64_t layout = 0;
  double clip = 0;  // 0: none

  int directions() const { return direction == "bidirectional" ? 2 : 1; }
  int gates() const { return op == "LSTM" ? 4 : op == "GRU" ? 3 : 1; }
};

struct RecurrentData {
  std::vector<double> x, w, r, bias, h, c, peepholes;  // as the inputs are, layout 0
  std::vector<int64_t> lengths;                        // one a row
  std::vector<Function> functions;                     // of all directions
};

struct RecurrentResult {
  std::vector<double> y, y_h, y_c;
};

inline RecurrentResult Reference(const RecurrentCase& p, const RecurrentData& data) {
  const int64_t H = p.hidden, G = p.gates(), D = p.directions(), B = p.batch, I = p.features;
  RecurrentResult out;
  out.y.assign(p.time * D * B * H, 0.0);
  out.y_h.assign(D * B * H, 0.0);
  out.y_c.assign(D * B * H, 0.0);
  const double bound = p.clip > 0 ? p.clip : std::numeric_limits<double>::infinity();
  const auto clip = [&](double v) { return v > bound ? bound : v < -bound ? -bound : v; };
  const size_t functions = data.functions.size() / D;
  for (int64_t d = 0; d < D; ++d) {
    const Function* f = &data.functions[d * functions];
    const bool reverse = p.direction == "reverse" || d == 1;
    // Row `gate`·H + u of W times x, of R times a state, and of either half of the bias.
    const auto from_x = [&](const double* x, int64_t gate, int64_t u) {
      double sum = 0;
      for (int64_t i = 0; i < I; ++i) sum += data.w[((d * G + gate) * H + u) * I + i] * x[i];
      return sum;
    };
    const auto from_h = [&](const std::vector<double>& h, int64_t gate, int64_t u) {
      double sum = 0;
      for (int64_t i = 0; i < H; ++i) sum += data.r[((d * G + gate) * H + u) * H + i] * h[i];
      return sum;
    };
    const auto bias = [&](int64_t half, int64_t gate, int64_t u) {
      return p.has_bias ? data.bias[((d * 2 + half) * G + gate) * H + u] : 0.0;
    };
    const auto peephole = [&](int64_t gate, int64_t u) {
      return p.has_peepholes ? data.peepholes[(d * 3 + gate) * H + u] : 0.0;
    };
    for (int64_t b = 0; b < B; ++b) {
      std::vector<double> h(H), c(H);
      for (int64_t u = 0; u < H; ++u) {
        h[u] = p.has_h ? data.h[(d * B + b) * H + u] : 0;
        c[u] = p.has_c ? data.c[(d * B + b) * H + u] : 0;
      }
      const int64_t length = data.lengths[b];
      for (int64_t step = 0; step < length; ++step) {
        const int64_t t = reverse ? length - 1 - step : step;
        const double* x = data.x.data() + (t * B + b) * I;
        const auto gate = [&](int64_t g, int64_t u) {
          return from_x(x, g, u) + from_h(h, g, u) + bias(0, g, u) + bias(1, g, u);
        };
        std::vector<double> next(H);
        if (p.op == "LSTM") {
          for (int64_t u = 0; u < H; ++u) {
            const double i = f[0](clip(gate(0, u) + peephole(0, u) * c[u]));
            const double forget =
                p.input_forget ? 1 - i : f[0](clip(gate(2, u) + peephole(2, u) * c[u]));
            c[u] = forget * c[u] + i * f[1](clip(gate(3, u)));
            next[u] = f[0](clip(gate(1, u) + peephole(1, u) * c[u])) * f[2](c[u]);
          }
        } else if (p.op == "GRU") {
          std::vector<double> z(H), r(H), reset(H);
          for (int64_t u = 0; u < H; ++u) {
            z[u] = f[0](clip(gate(0, u)));
            r[u] = f[0](clip(gate(1, u)));
            reset[u] = r[u] * h[u];
          }
          for (int64_t u = 0; u < H; ++u) {
            const double n =
                p.linear_before_reset
                    ? from_x(x, 2, u) + bias(0, 2, u) + r[u] * (from_h(h, 2, u) + bias(1, 2, u))
                    : from_x(x, 2, u) + bias(0, 2, u) + from_h(reset, 2, u) + bias(1, 2, u);
            next[u] = (1 - z[u]) * f[1](clip(n)) + z[u] * h[u];
          }
        } else {
          for (int64_t u = 0; u < H; ++u) next[u] = f[0](clip(gate(0, u)));
        }
        h = next;
        for (int64_t u = 0; u < H; ++u) out.y[((t * D + d) * B + b) * H + u] = h[u];
      }
      // A sequence without steps ends in zeros (as in onnxruntime).
      for (int64_t u = 0; u < H && length > 0; ++u) {
        out.y_h[(d * B + b) * H + u] = h[u];
        out.y_c[(d * B + b) * H + u] = c[u];
      }
    }
  }
  return out;
}

}  // namespace chairlift::testing

#endif  // CHAIRLIFT_TESTS_OPS_RECURRENT_RECURRENT_REFERENCE_H_
