package tensor

import "testing"

func TestRowKernels(t *testing.T) {
	g := newGenerator(FP32, 0)
	x, y := g.vector(oddCols), g.vector(oddCols)
	vx, vy := values(vectorOf(x)), values(vectorOf(y))

	dot := zeros(1, 1)
	dot.v[0] = inner(vx, vy)
	near(t, "dot", vectorOf([]float32{Dot(x, y)}), dot, absolute(2*oddCols*eps32))

	Scale(y, -2.5, x)
	near(t, "scaled", vectorOf(y), mapped(func(x ...float64) float64 { return -2.5 * x[0] }, vx), absolute(0))

	want := mapped(func(x ...float64) float64 { return x[0] + 0.75*x[1] }, values(vectorOf(y)), vx)
	AddScaled(y, 0.75, x)
	near(t, "sum", vectorOf(y), want, absolute(8*eps32))
}
