// Runs oneDNN's recurrent layers on one thread, on request, with weights in the layout that it
// chooses: a peer in bench/recurrent.py in addition to ONNX Runtime. The answer, [time, rows,
// directions · units], is written to DIR/y.npy.
//
//   recurrent_onednn KIND FOLDER
//
// FOLDER has x.npy [time, rows, features], w.npy and r.npy [layers, directions, gates, units,
// features or units], and b.npy [layers, directions, biases, units], with gates in oneDNN's order
// (its manual, "RNN").
#include <iostream>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <unordered_map>

#include "base/status.h"
#include "run_on_request.h"
#include "tensor/npy.h"

namespace chairlift {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;

memory::desc Describe(const memory::dims& dims, Tag tag) {
  return {dims, memory::data_type::f32, tag};
}

class Layer {
 public:
  Layer(const std::string& kind, Tensor x, const Tensor& w, const Tensor& r, const Tensor& b)
      : x_(std::move(x)) {
    const memory::dims weights(w.shape().begin(), w.shape().end());
    const memory::dims recurrent(r.shape().begin(), r.shape().end());
    const int64_t layers = weights[0], directions = weights[1], gates = weights[2];
    const int64_t units = weights[3], features = weights[4];
    const int64_t time = x_.shape()[0], rows = x_.shape()[1];
    y_ = Tensor::Allocate(DType::kFloat, Shape{time, rows, directions * units});

    const auto direction = directions == 1 ? dnnl::rnn_direction::unidirectional_left2right
                                           : dnnl::rnn_direction::bidirectional_concat;
    const auto inference = dnnl::prop_kind::forward_inference;
    const memory::desc in = Describe({time, rows, features}, Tag::tnc);
    const memory::desc out = Describe({time, rows, directions * units}, Tag::tnc);
    const memory::desc bias = Describe({layers, directions, b.shape()[2], units}, Tag::ldgo);
    const memory::dims packed_w{layers, directions, features, gates, units};
    const memory::dims packed_r{layers, directions, units, gates, units};
    const memory::desc any_w = Describe(packed_w, Tag::any), any_r = Describe(packed_r, Tag::any);
    const memory::desc none;  // states start at zero, and the last ones are not requested
    dnnl::rnn_primitive_desc_base chosen;
    if (kind == "LSTM") {
      const dnnl::lstm_forward::primitive_desc pd(
          {inference, direction, in, none, none, any_w, any_r, bias, out, none, none}, engine_);
      primitive_ = dnnl::lstm_forward(pd);
      Bind(pd, w, r, b);
    } else if (kind == "GRU") {
      const dnnl::gru_forward::primitive_desc pd(
          {inference, direction, in, none, any_w, any_r, bias, out, none}, engine_);
      primitive_ = dnnl::gru_forward(pd);
      Bind(pd, w, r, b);
    } else if (kind == "GRU reset after") {
      const dnnl::lbr_gru_forward::primitive_desc pd(
          {inference, direction, in, none, any_w, any_r, bias, out, none}, engine_);
      primitive_ = dnnl::lbr_gru_forward(pd);
      Bind(pd, w, r, b);
    } else {
      const dnnl::vanilla_rnn_forward::primitive_desc pd(
          {inference, dnnl::algorithm::eltwise_tanh, direction, in, none, any_w, any_r, bias, out,
           none},
          engine_);
      primitive_ = dnnl::vanilla_rnn_forward(pd);
      Bind(pd, w, r, b);
    }
  }

  void Run() {
    primitive_.execute(stream_, arguments_);
    stream_.wait();
  }

  const Tensor& y() const { return y_; }

 private:
  template <typename PrimitiveDesc>
  void Bind(const PrimitiveDesc& pd, const Tensor& w, const Tensor& r, const Tensor& b) {
    const auto user = [&](const memory::desc& desc, const Tensor& t) {
      return memory(desc, engine_, const_cast<float*>(t.data<float>()));
    };
    const auto pack = [&](const memory::desc& desc, const Tensor& t) {
      memory from = user(Describe(desc.dims(), Tag::ldgoi), t);
      memory to(desc, engine_);
      dnnl::reorder(from, to).execute(stream_, from, to);
      return to;
    };
    memory bias(pd.bias_desc(), engine_);
    memory from = user(pd.bias_desc(), b);
    dnnl::reorder(from, bias).execute(stream_, from, bias);
    arguments_ = {{DNNL_ARG_SRC_LAYER, user(pd.src_layer_desc(), x_)},
                  {DNNL_ARG_WEIGHTS_LAYER, pack(pd.weights_layer_desc(), w)},
                  {DNNL_ARG_WEIGHTS_ITER, pack(pd.weights_iter_desc(), r)},
                  {DNNL_ARG_BIAS, bias},
                  {DNNL_ARG_DST_LAYER, user(pd.dst_layer_desc(), y_)}};
    stream_.wait();
  }

  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  Tensor x_, y_;
  dnnl::primitive primitive_;
  std::unordered_map<int, memory> arguments_;
};

Status Serve(int argc, char** argv) {
  if (argc != 3) return InvalidArgument("usage: {} KIND FOLDER", argv[0]);
  const std::string folder = argv[2];
  CHAIRLIFT_ASSIGN_OR_RETURN(Tensor x, ReadNpy(folder + "/x.npy"));
  CHAIRLIFT_ASSIGN_OR_RETURN(Tensor w, ReadNpy(folder + "/w.npy"));
  CHAIRLIFT_ASSIGN_OR_RETURN(Tensor r, ReadNpy(folder + "/r.npy"));
  CHAIRLIFT_ASSIGN_OR_RETURN(Tensor b, ReadNpy(folder + "/b.npy"));
  Layer layer(argv[1], std::move(x), w, r, b);
  layer.Run();
  return RunOnRequest(
      [&] {
        layer.Run();
        return absl::OkStatus();
      },
      [&](const std::string& to) { return WriteNpy(to + "/y.npy", layer.y()); });
}

}  // namespace
}  // namespace chairlift

int main(int argc, char** argv) {
  try {
    const chairlift::Status status = chairlift::Serve(argc, argv);
    if (status.ok()) return 0;
    std::cerr << "recurrent_onednn: " << chairlift::Message(status) << "\n";
  } catch (const dnnl::error& error) {
    std::cerr << "recurrent_onednn: " << error.what() << "\n";
  }
  return 1;
}
