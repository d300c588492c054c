// oneDNN's matmul in BF16, INT8 (unsigned by signed) and FP32. It chooses the layout of the weights, which are brought
// into it beforehand.
#include <dnnl.hpp>

#include "peer.h"

using dnnl::memory;

namespace {

dnnl::engine engine(dnnl::engine::kind::cpu, 0);
dnnl::stream stream(engine);

memory::desc row_major(int rows, int columns, memory::data_type type) { return {{rows, columns}, type, memory::format_tag::ab}; }

dnnl::matmul::primitive_desc describe(const memory::desc& x, const memory::desc& w, const memory::desc& y) {
#if DNNL_VERSION_MAJOR >= 3
  return {engine, x, w, y};
#else
  return {{x, w, y}, engine};
#endif
}

class Matmul : public Product {
 public:
  explicit Matmul(const Shape& s) : shape_(s) {
    using type = memory::data_type;
    type x = type::f32, w = type::f32, y = type::f32;
    if (s.format == "bf16") x = w = type::bf16;
    if (s.format == "int8") x = type::u8, w = type::s8, y = type::s32;
    integer_ = y == type::s32;
    auto pd = describe(row_major(s.m, s.k, x), memory::desc({s.k, s.n}, w, memory::format_tag::any), row_major(s.m, s.n, y));
    matmul_ = dnnl::matmul(pd);
    x_ = filled(pd.src_desc(), s.m, s.k, [](int r, int k) { return float(x_element(r, k)); });
    memory first = filled(pd.weights_desc(), s.k, s.n, [](int k, int c) { return float(w_element(c, k)); });
    for (int g = 0; g < s.groups; g++) {
      xs_.push_back(copy(x_));
      ys_.emplace_back(pd.dst_desc(), engine);
    }
    for (int i = 0; i < s.groups * s.copies; i++) ws_.push_back(copy(first));
  }

  void multiply(int set) override {
    for (int g = 0; g < shape_.groups; g++)
      matmul_.execute(stream, {{DNNL_ARG_SRC, xs_[g]}, {DNNL_ARG_WEIGHTS, ws_[set * shape_.groups + g]}, {DNNL_ARG_DST, ys_[g]}});
    stream.wait();
  }

  double result(int i, int j) const override {
    size_t at = size_t(i) * shape_.n + j;
    const void* y = ys_[0].get_data_handle();
    return integer_ ? static_cast<const int32_t*>(y)[at] : static_cast<const float*>(y)[at];
  }

 private:
  // filled returns values in the library's layout and type.
  template <class F>
  static memory filled(const memory::desc& as, int rows, int columns, F value) {
    memory plain(row_major(rows, columns, memory::data_type::f32), engine), out(as, engine);
    auto* p = static_cast<float*>(plain.get_data_handle());
    for (int r = 0; r < rows; r++)
      for (int c = 0; c < columns; c++) p[size_t(r) * columns + c] = value(r, c);
    dnnl::reorder(plain, out).execute(stream, plain, out);
    stream.wait();
    return out;
  }

  memory copy(const memory& of) {
    size_t bytes = of.get_desc().get_size();
    blocks_.emplace_back(bytes);
    std::memcpy(blocks_.back().as<char>(), of.get_data_handle(), bytes);
    return memory(of.get_desc(), engine, blocks_.back().as<char>());
  }

  Shape shape_;
  bool integer_;
  dnnl::matmul matmul_;
  memory x_;
  std::vector<Memory> blocks_;
  std::vector<memory> xs_, ws_, ys_;
};

}  // namespace

int main() {
  return serve([](const Shape& s) { return std::make_unique<Matmul>(s); });
}
