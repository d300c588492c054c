// OpenBLAS' sgemm. It packs both operands in every call.
#include <cblas.h>

#include "peer.h"

namespace {

class Sgemm : public Product {
 public:
  explicit Sgemm(const Shape& s)
      : shape_(s),
        x_size_(size_t(s.m) * s.k),
        w_size_(size_t(s.n) * s.k),
        y_size_(size_t(s.m) * s.n),
        x_(4 * x_size_ * s.groups),
        w_(4 * w_size_ * s.groups * s.copies),
        y_(4 * y_size_ * s.groups) {
    if (s.format != "fp32") throw std::runtime_error("only fp32");
    for (int g = 0; g < s.groups; g++)
      for (size_t i = 0; i < x_size_; i++) *x_.as<float>(g * x_size_ + i) = float(x_element(int(i / s.k), int(i % s.k)));
    for (int g = 0; g < s.groups * s.copies; g++)
      for (size_t i = 0; i < w_size_; i++) *w_.as<float>(g * w_size_ + i) = float(w_element(int(i / s.k), int(i % s.k)));
  }

  void multiply(int set) override {
    const Shape& s = shape_;
    for (int g = 0; g < s.groups; g++)
      cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, s.m, s.n, s.k, 1, x_.as<float>(g * x_size_), s.k,
                  w_.as<float>((size_t(set) * s.groups + g) * w_size_), s.k, 0, y_.as<float>(g * y_size_), s.n);
  }

  double result(int i, int j) const override { return *y_.as<float>(size_t(i) * shape_.n + j); }

 private:
  Shape shape_;
  size_t x_size_, w_size_, y_size_;
  Memory x_, w_, y_;
};

}  // namespace

int main() {
  return serve([](const Shape& s) { return std::make_unique<Sgemm>(s); });
}
