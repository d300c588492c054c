package reference

import "math"

// project is a linear layer: y = x·wᵀ + b.
func (f *formula) project(path string, x *node) *node {
	bias := f.optional(path + ".bias")
	switch {
	case f.is("bias_missing"):
		bias = nil
	case f.is("bias_twice") && bias != nil:
		bias = f.scale(bias, 2)
	}
	y := f.linear(x, f.param(path+".weight"), bias)
	if f.is("halves_swapped") {
		return f.columns(y, append(span(y.cols/2, y.cols), span(0, y.cols/2)...))
	}
	return y
}

// mlp is a SwiGLU layer: down(silu(gate(x)) · up(x)).
func (f *formula) mlp(path string, x *node) *node {
	gate, up := f.project(path+".gate_proj", x), f.project(path+".up_proj", x)
	return f.project(path+".down_proj", f.act(gate, up))
}

// act is silu(gate) · up.
func (f *formula) act(gate, up *node) *node {
	gate, up = f.flow(gate, "gate_detached"), f.flow(up, "up_detached")
	switch {
	case f.is("gate_up_swapped"):
		gate, up = up, gate
	case f.is("act_clamped"):
		gate, up = f.clamp(gate, math.Inf(-1), 7), f.clamp(up, -7, 7)
	case f.is("act_up_plus_1"):
		up = f.shift(up, 1)
	case f.is("act_up_missing"):
		return f.activation(gate)
	}
	return f.kernel(func() *node { return f.mul(f.activation(gate), up) })
}

// activation is silu(x) = x·sigmoid(x), or that of a mistake.
func (f *formula) activation(x *node) *node {
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
	case f.is("act_gelu_tanh"): // x·sigmoid(2·inner)
		inner := func(x float64) float64 { return math.Sqrt(8/math.Pi) * (x + 0.044715*x*x*x) }
		return f.apply(x, func(x float64) float64 { return x * sigmoid(inner(x)) },
			func(x, _ float64) float64 {
				s := sigmoid(inner(x))
				return s + x*s*(1-s)*math.Sqrt(8/math.Pi)*(1+3*0.044715*x*x)
			})
	case f.is("act_gelu_quick"):
		return f.silu(x, 1.702)
	}
	return f.silu(x, 1)
}

// silu is x / (1 + exp(-slope·x)), in FP32.
func (f *formula) silu(x *node, slope float64) *node {
	x32 := f.cast(x, FP32)
	y := f.mul(x32, f.sigmoid(f.scale(x32, slope)))
	return f.cast(y, x.dtype)
}
