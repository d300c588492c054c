// libxsmm's batch-reduce kernels in BF16, in the loop that its users write around them. libxsmm counts columns first, so
// that its left operand is W and its right one x. W lies in blocks of 64 columns, in pairs along k.
#include <libxsmm.h>

#include "peer.h"

namespace {

constexpr int kColumns = 64;

// Blocking is how many rows and how many steps of the sum one call of a kernel does.
struct Blocking {
  int rows, steps;
};

class BatchReduce : public Product {
 public:
  explicit BatchReduce(const Shape& s)
      : shape_(s),
        x_size_(size_t(s.m) * s.k),
        w_size_(size_t(s.n) * s.k),
        y_size_(size_t(s.m) * s.n),
        x_(2 * x_size_ * s.groups),
        w_(2 * w_size_ * s.groups * s.copies),
        y_(4 * y_size_ * s.groups) {
    if (s.format != "bf16" || s.n % kColumns || s.k % 64) throw std::runtime_error("only bf16, N and K in multiples of 64");
    auto* x = x_.as<uint16_t>();
    for (int r = 0; r < s.m; r++)
      for (int k = 0; k < s.k; k++) x[size_t(r) * s.k + k] = bf16(float(x_element(r, k)));
    for (int g = 1; g < s.groups; g++) std::memcpy(x + g * x_size_, x, 2 * x_size_);
    auto* w = w_.as<uint16_t>();
    for (int c = 0; c < s.n; c++)
      for (int k = 0; k < s.k; k++)
        w[(size_t(c / kColumns) * s.k + k / 2 * 2) * kColumns + c % kColumns * 2 + k % 2] = bf16(float(w_element(c, k)));
    for (int i = 1; i < s.groups * s.copies; i++) std::memcpy(w + i * w_size_, w, 2 * w_size_);
    choose();
  }

  void multiply(int set) override {
    for (int g = 0; g < shape_.groups; g++)
      one(x_.as<libxsmm_bfloat16>(g * x_size_), w_.as<libxsmm_bfloat16>((size_t(set) * shape_.groups + g) * w_size_), y_.as<float>(g * y_size_));
  }

  double result(int i, int j) const override { return *y_.as<float>(size_t(i) * shape_.n + j); }

 private:
  using Kernel = libxsmm_bsmmfunction_reducebatch_strd;

  // choose takes the fastest of a few blockings for this shape.
  void choose() {
    double best = 0;
    Blocking chosen{};
    for (int rows : {16, 32, 64})
      for (int steps : {64, 256, 512, 1024}) {
        if (shape_.k % steps || (rows > shape_.m && rows != 16)) continue;
        use({std::min(rows, shape_.m), steps});
        multiply(0);
        double fastest = 1e300;
        for (int t = 0; t < 3; t++) {
          auto begin = Clock::now();
          multiply((t + 1) % shape_.copies);
          fastest = std::min(fastest, since(begin));
        }
        if (best == 0 || fastest < best) best = fastest, chosen = blocking_;
      }
    use(chosen);
  }

  void use(Blocking b) {
    blocking_ = b;
    whole_ = kernel(b.rows);
    rest_ = shape_.m % b.rows ? kernel(shape_.m % b.rows) : nullptr;
  }

  Kernel kernel(int rows) const {
    int lda = kColumns, ldb = shape_.k, ldc = shape_.n, flags = LIBXSMM_GEMM_FLAG_VNNI_A;
    float alpha = 1, beta = 0;
    auto k = libxsmm_bsmmdispatch_reducebatch_strd(kColumns, rows, blocking_.steps, 2 * blocking_.steps * kColumns, 2 * blocking_.steps, &lda, &ldb,
                                                   &ldc, &alpha, &beta, &flags, nullptr);
    if (k == nullptr) throw std::runtime_error("libxsmm has no kernel for this CPU and shape");
    return k;
  }

  void one(const libxsmm_bfloat16* x, const libxsmm_bfloat16* w, float* y) const {
    unsigned long long batch = shape_.k / blocking_.steps;
    for (int c = 0; c < shape_.n; c += kColumns)
      for (int r = 0; r < shape_.m; r += blocking_.rows) {
        Kernel k = shape_.m - r >= blocking_.rows ? whole_ : rest_;
        k(w + size_t(c) * shape_.k, x + size_t(r) * shape_.k, y + size_t(r) * shape_.n + c, &batch);
      }
  }

  Shape shape_;
  size_t x_size_, w_size_, y_size_;
  Memory x_, w_, y_;
  Blocking blocking_;
  Kernel whole_, rest_;
};

}  // namespace

int main() {
  libxsmm_init();
  return serve([](const Shape& s) { return std::make_unique<BatchReduce>(s); });
}
