package reference

import (
	"math"
	"strings"
)

// norm is RMSNorm: y = w · x / sqrt(mean(x²) + eps), for each row or each head.
//
// The statistic and the product with it are in FP32. The result is cast before it is multiplied by
// the weight.
func (f *formula) norm(path string, x *node) *node {
	if f.is("norm_missing") {
		return x
	}
	w, eps := f.param(path+".weight"), f.normEps(path)
	width, n := x.cols, w.cols
	if f.is("norm_all_heads") {
		n = width
		w = f.pick(w, tiled(w.cols, width))
	}
	if f.is("norm_frozen") {
		w.fixed = true
	}
	y := f.kernel(func() *node {
		x32 := f.reshape(x, n)
		if !f.is("norm_cast_first") {
			x32 = f.cast(x32, FP32)
		}
		if f.is("norm_layer") {
			x32 = f.add(x32, f.scale(f.sum(x32), 1/float64(n)), -1)
		}
		rstd := f.rsqrt(f.meanSquare(x32), eps)
		if f.is("norm_statistic_detached") {
			rstd = f.detach(rstd)
		}
		y := f.mul(x32, rstd)
		switch {
		case f.is("norm_weight_missing"):
			return f.cast(y, x.dtype)
		case f.is("norm_weight_plus_1"):
			w = f.shift(w, 1)
		case f.is("norm_weight_first"):
			return f.cast(f.mul(y, f.cast(w, FP32)), x.dtype)
		}
		return f.mul(f.cast(y, x.dtype), w)
	})
	return f.reshape(y, width)
}

// normEps returns the eps of a norm. Those of DeepSeek's latents do not follow config.json.
func (f *formula) normEps(path string) float64 {
	switch {
	case f.is("norm_eps_1e-5"):
		return 1e-5
	case f.is("norm_eps_1e-6"):
		return 1e-6
	case f.is("norm_eps_1e-12"):
		return 1e-12
	case f.is("norm_no_eps"):
		return 0
	case strings.HasSuffix(path, "_a_layernorm"):
		return f.LatentEps
	}
	return f.Eps
}

// meanSquare returns mean(x²) of each row.
func (f *formula) meanSquare(x *node) *node {
	sum := f.sum(f.square(x))
	if f.is("norm_sum") {
		return sum
	}
	return f.scale(sum, 1/float64(x.cols))
}

// rsqrt returns 1/sqrt(x + eps).
func (f *formula) rsqrt(x *node, eps float64) *node {
	outside := 0.0
	if f.is("norm_eps_outside") {
		eps, outside = 0, eps
	}
	return f.apply(f.shift(x, eps),
		func(x float64) float64 { return 1 / (math.Sqrt(x) + outside) },
		func(x, y float64) float64 { return -0.5 * y * y / math.Sqrt(x) })
}

// tiled returns 0, 1, … n-1 over and over, in all width numbers.
func tiled(n, width int) []int {
	list := make([]int, width)
	for i := range list {
		list[i] = i % n
	}
	return list
}
