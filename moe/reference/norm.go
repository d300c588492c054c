package reference

import (
	"math"
	"strconv"
	"strings"
)

// norm is RMSNorm: y = w · x / sqrt(mean(x²) + eps), for each row or each head.
//
// The statistic and the product with it are in FP32. The result is cast before it is multiplied by
// the weight.
func (f *formula) norm(path string, x *node) *node {
	w, width := f.param(path+".weight"), x.cols
	if f.is("norm_missing") {
		return x
	}
	if n := w.cols; f.is("norm_all_heads") {
		w = f.take(w, 1, width, func(_, i int) int { return i % n })
	}
	y := f.kernel(func() *node {
		x32 := f.cast(f.reshape(x, w.cols), FP32)
		if f.is("norm_layer") {
			x32 = f.add(x32, f.scale(f.sum(x32), 1/float64(w.cols)), -1)
		}
		over := pick(f, map[string]float64{"norm_sum": 1}, float64(w.cols))
		rstd := f.rsqrt(f.scale(f.sum(f.square(x32)), 1/over), f.eps(path))
		y := f.cast(f.mul(x32, f.flow(rstd, "norm_statistic_detached")), x.dtype)
		switch {
		case f.is("norm_weight_missing"):
			return y
		case f.is("norm_weight_plus_1"):
			return f.mul(y, f.shift(w, 1))
		}
		return f.mul(y, w)
	})
	return f.reshape(y, width)
}

// rsqrt returns 1/sqrt(x + eps).
func (f *formula) rsqrt(x *node, eps float64) *node {
	outside := 0.0
	if f.is("norm_eps_outside") {
		eps, outside = 0, max(eps, f.numbers[0])
	}
	return f.apply(f.shift(x, eps),
		func(x float64) float64 { return 1 / (math.Sqrt(x) + outside) },
		func(x, y float64) float64 { return -0.5 * y * y / math.Sqrt(x) })
}

// eps returns that of a norm. Those of DeepSeek's latents do not follow config.json.
func (f *formula) eps(path string) float64 {
	number, _ := strings.CutPrefix(f.call.Mistake, "norm_eps_")
	other, err := strconv.ParseFloat(number, 64)
	switch {
	case err == nil:
		return other
	case f.is("norm_no_eps"):
		return 0
	case strings.HasSuffix(path, "_a_layernorm"):
		return f.LatentEps
	}
	return f.Eps
}
