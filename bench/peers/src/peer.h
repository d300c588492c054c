// What the peers' programs share: the line protocol, memory, values and the check of results.
//
// A program reads one command a line and answers each with one line:
//
//   prepare FORMAT GROUPS M N K COPIES   make operands: y = x * W^T in bf16, int8 or fp32, GROUPS times, each with x: [M, K] and
//                                        W: [N, K] of its own; COPIES sets of weights, of which every call takes the next
//                                        -> ok, or error and the reason
//   run SECONDS                          multiply for about that long -> GFLOP/s
#pragma once

#include <sys/mman.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <memory>
#include <new>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

struct Shape {
  std::string format;
  int groups, m, n, k, copies;
};

// Product is one prepared shape.
class Product {
 public:
  virtual ~Product() = default;
  // multiply does all groups with set `copy` of the weights.
  virtual void multiply(int copy) = 0;
  // result returns element (i, j) of the first group.
  virtual double result(int i, int j) const = 0;
};

// Memory is zeroed and lies in huge pages where the system has them.
class Memory {
 public:
  explicit Memory(size_t bytes) : bytes_((bytes + kPage - 1) / kPage * kPage) {
    void* at = std::aligned_alloc(kPage, bytes_);
    if (at == nullptr) throw std::bad_alloc();
    data_.reset(static_cast<char*>(at));
    madvise(at, bytes_, MADV_HUGEPAGE);
    std::memset(at, 0, bytes_);
  }
  template <class T>
  T* as(size_t element = 0) const {
    return reinterpret_cast<T*>(data_.get()) + element;
  }

 private:
  struct Free {
    void operator()(char* p) const { std::free(p); }
  };
  static constexpr size_t kPage = size_t(1) << 21;
  size_t bytes_;
  std::unique_ptr<char[], Free> data_;
};

// element returns operand values that every format holds exactly: whole numbers from low to high.
inline int element(uint64_t which, uint64_t row, uint64_t column, int low, int high) {
  uint64_t h = (which * 1000003 + row) * 1000033 + column;
  h ^= h >> 29;
  h *= 0xbf58476d1ce4e5b9;
  h ^= h >> 32;
  return low + int(h % uint64_t(high - low + 1));
}

// x and w are the operands of the first group and set; x is not negative, as int8's unsigned side needs.
inline int x_element(int row, int k) { return element(1, row, k, 0, 7); }
inline int w_element(int column, int k) { return element(2, column, k, -7, 7); }

inline uint16_t bf16(float value) {  // exact for whole numbers up to 256
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return uint16_t(bits >> 16);
}

inline void check(const Product& p, const Shape& s) {
  for (int t = 0; t < 32; t++) {
    int i = int(t * 7919ll % s.m), j = int(t * 104729ll % s.n);
    double want = 0;
    for (int k = 0; k < s.k; k++) want += double(x_element(i, k)) * w_element(j, k);
    double got = p.result(i, j);
    if (!(std::fabs(got - want) <= 1e-5 * std::fabs(want) + 1e-3)) {
      std::ostringstream text;
      text << "element (" << i << ", " << j << ") is " << got << ", want " << want;
      throw std::runtime_error(text.str());
    }
  }
}

using Clock = std::chrono::steady_clock;
inline double since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// serve answers commands until the input ends.
inline int serve(const std::function<std::unique_ptr<Product>(const Shape&)>& make) {
  std::unique_ptr<Product> product;
  Shape shape{};
  int next = 0;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream in(line);
    std::string command;
    in >> command;
    try {
      if (command == "prepare") {
        product.reset();
        if (!(in >> shape.format >> shape.groups >> shape.m >> shape.n >> shape.k >> shape.copies)) throw std::runtime_error("bad shape");
        product = make(shape);
        product->multiply(0);
        check(*product, shape);
        next = 0;
        std::cout << "ok" << std::endl;
      } else if (command == "run" && product) {
        double seconds = 0, calls = 0, took = 0;
        in >> seconds;
        for (auto begin = Clock::now(); calls == 0 || took < seconds; took = since(begin), calls++) {
          product->multiply(next);
          next = (next + 1) % shape.copies;
        }
        std::cout << 2e-9 * shape.groups * shape.m * shape.n * double(shape.k) * calls / took << std::endl;
      } else {
        throw std::runtime_error("unknown command: " + line);
      }
    } catch (const std::exception& e) {
      std::cout << "error " << e.what() << std::endl;
    }
  }
  return 0;
}
