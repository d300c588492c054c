package reference

import "math"

// project is a linear layer: y = x·wᵀ + b.
func (f *formula) project(path string, x *node) *node {
	w, bias := f.param(path+".weight"), f.optional(path+".bias")
	switch {
	case f.is("linear_no_bias") || f.is("biases_missing"):
		bias = nil
	case f.is("linear_bias_twice") && bias != nil:
		bias = f.scale(bias, 2)
	case f.is("linear_transposed") && w.rows == w.cols:
		w = f.transpose(w)
	case f.is("linear_frozen"):
		w.fixed = true
	case f.is("linear_detached"):
		x = f.detach(x)
	}
	y := f.linear(x, w, bias)
	if f.is("linear_halves_swapped") {
		y = f.pick(y, append(span(y.cols/2, y.cols), span(0, y.cols/2)...))
	}
	return y
}

// span returns lo, lo+1, … hi-1.
func span(lo, hi int) (list []int) {
	for i := lo; i < hi; i++ {
		list = append(list, i)
	}
	return list
}

// mlp is a SwiGLU layer: down(silu(gate(x)) · up(x)).
func (f *formula) mlp(path string, x *node) *node {
	gate, up := f.project(path+".gate_proj", x), f.project(path+".up_proj", x)
	return f.project(path+".down_proj", f.act(gate, up))
}

// act is silu(gate) · up.
func (f *formula) act(gate, up *node) *node {
	switch {
	case f.is("gate_up_swapped"):
		gate, up = up, gate
	case f.is("gate_detached"):
		gate = f.detach(gate)
	case f.is("up_detached"):
		up = f.detach(up)
	case f.is("act_clamped"):
		gate, up = f.clamp(gate, math.Inf(-1), 7), f.clamp(up, -7, 7)
	case f.is("act_up_plus_1"):
		up = f.shift(up, 1)
	}
	return f.kernel(func() *node {
		a := f.activation(gate)
		if f.is("act_up_missing") {
			return a
		}
		return f.mul(a, up)
	})
}

// activation is silu(x) = x·sigmoid(x), or the one of a mistake.
func (f *formula) activation(x *node) *node {
	gelu := math.Sqrt(2 / math.Pi)
	switch {
	case f.is("act_missing"):
		return x
	case f.is("act_relu"):
		return f.clamp(x, 0, math.Inf(1))
	case f.is("act_sigmoid"):
		return f.sigmoid(x)
	case f.is("act_gelu"):
		return f.apply(x, func(x float64) float64 { return x / 2 * (1 + math.Erf(x/math.Sqrt2)) },
			func(x, _ float64) float64 {
				return (1+math.Erf(x/math.Sqrt2))/2 + x*math.Exp(-x*x/2)/math.Sqrt(2*math.Pi)
			})
	case f.is("act_gelu_tanh"):
		return f.apply(x, func(x float64) float64 { return x / 2 * (1 + math.Tanh(gelu*(x+0.044715*x*x*x))) },
			func(x, _ float64) float64 {
				t := math.Tanh(gelu * (x + 0.044715*x*x*x))
				return (1+t)/2 + x/2*(1-t*t)*gelu*(1+3*0.044715*x*x)
			})
	}
	slope := 1.0
	if f.is("act_quick_gelu") {
		slope = 1.702
	}
	return f.apply(x, func(x float64) float64 { return x * sigmoid(slope*x) },
		func(x, _ float64) float64 {
			s := sigmoid(slope * x)
			return s + slope*x*s*(1-s)
		})
}

func (t *tape) clamp(x *node, lo, hi float64) *node {
	return t.apply(x, func(x float64) float64 { return min(max(x, lo), hi) }, func(x, _ float64) float64 {
		if x < lo || x > hi {
			return 0
		}
		return 1
	})
}
