package reference

import (
	"math"
	"slices"
	"testing"

	"spmoe/launcher/checkpoint/safetensors"
	"spmoe/mx"
)

// load returns a tensor of package mx's golden data. Codes of 8 bits are numbers.
func load(t *testing.T, file, name string) *node {
	t.Helper()
	f, err := safetensors.Open("../../mx/testdata/" + file + ".safetensors")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, _ := f.Info(name)
	n := &node{rows: info.Shape[0], cols: info.Shape[1]}
	if info.DType == safetensors.U8 {
		codes, _ := f.Bytes(name)
		for _, c := range codes {
			n.data = append(n.data, float64(c))
		}
		return n
	}
	values, _ := f.Float32s(name)
	for _, v := range values {
		n.data = append(n.data, float64(v))
	}
	return n
}

// The casts are those of torchao, bit for bit, except for ties by a free scale.
func TestCasts(t *testing.T) {
	const mxFile, blocks = "mx_quantize", "fp8_block_quantize"
	x := func(q *Recipe) Cast { return q[forward][0] }
	w := func(q *Recipe) Cast { return q[forward][1] }
	dy := func(q *Recipe) Cast { return q[dgrad][0] }
	for _, c := range []struct {
		file, x, codes, scales, recipe string
		cast                           func(q *Recipe) Cast
	}{
		{mxFile, "x", "e4m3_floor_data", "e4m3_floor_scale", "mxfp8", x}, {mxFile, "x", "e4m3_rceil_data", "e4m3_rceil_scale", "mxfp8_rceil", w},
		{mxFile, "xb", "bf16_e4m3_rceil_data", "bf16_e4m3_rceil_scale", "mxfp8_rceil", dy},
		{blocks, "x", "x_free_codes", "x_free_scales", "blockwise", x}, {blocks, "w", "w_free_codes", "w_free_scales", "blockwise", w},
		{blocks, "x", "xT_free_codes", "xT_free_scales", "blockwise", dy},
	} {
		x, codes, scales := load(t, c.file, c.x), load(t, c.file, c.codes), load(t, c.file, c.scales)
		m := view(x)
		if c.codes[:2] == "xT" {
			m = m.transposed()
		}
		cast := c.cast(Recipes[c.recipe])
		got, up, down, block, seen := cast.apply(m, 0).data, cast.apply(m, -1).data, cast.apply(m, 1).data, cast.Block, 0
		for i, code := range codes.data {
			r, k, at := i/m.cols, i%m.cols, i
			if m.flipped {
				at = k*m.rows + r
			}
			scale := scales.data[r/block[0]*scales.cols+k/block[1]]
			if c.file == mxFile {
				scale = float64(mx.DecodeScale(uint8(scale)))
			}
			want := float64(mx.E4M3.Decode(uint8(code))) * scale
			if want-want != 0 || x.data[at]-x.data[at] != 0 || c.file == blocks && scale < 3e-7 { // torch's least amax
				continue
			}
			if seen++; got[at] != want && (c.file == mxFile || up[at] != want && down[at] != want) {
				t.Errorf("%s: element %d, %g, is cast to %g, want %g", c.codes, i, x.data[at], got[at], want)
				break
			}
		}
		if seen < len(got)*9/10 {
			t.Errorf("%s: only %d of %d elements are finite", c.codes, seen, len(got))
		}
	}
	for x, want := range map[float64]float64{1.125: 1, 1.375: 1.5, 0x1.8p-16: 0x1p-15, 1e6: 57344, -60000: -57344} {
		if got := e5m2.round(float32(x)); got != want {
			t.Errorf("%g is %g in E5M2, want %g", x, got, want)
		}
	}
	if c := dy(Recipes["tensorwise"]); c.apply(matrix{data: []float64{1, 0.2}, rows: 2, cols: 1}, 0).data[1] != 12288*c.Scale.of(1, 57344) {
		t.Error("output gradients are not in E5M2")
	}
	if q := Recipes["blockwise"]; q[wgrad] != [2]Cast{dy(q), x(q)} || q[dgrad] != [2]Cast{dy(q), w(q)} {
		t.Errorf("casts of %+v", q)
	}
	q, m := newRecipe([2]int{1, 0}, [2]int{1, 0}, Free), matrix{data: []float64{1, 0.3, 8, 2.3}, rows: 2, cols: 2}
	along, across := q[forward][1].apply(m, 0).data, q[forward][1].apply(m.transposed(), 0).data
	if a, b := q.operands(forward, [2]float64{}, m, m.transposed()); !slices.Equal(a.data, along) || !slices.Equal(b.data, along) || slices.Equal(along, across) {
		t.Errorf("operands %v, %v: expected a scale for each row of the sum, %v", a.data, b.data, along)
	}
	between := matrix{data: []float64{1.75, 17. / 256}, rows: 1, cols: 2} // 16 and 18 times the scale
	if a, b := q.operands(forward, [2]float64{1, -1}, between, between.transposed()); a.data[1] != 16./256 || b.data[1] != 18./256 {
		t.Errorf("ties of two operands become %g and %g", a.data[1], b.data[1])
	}
}

// The three products of a linear layer are those of torchao's MXFP8, up to the rounding of BF16.
func TestQuantizedProducts(t *testing.T) {
	for _, recipe := range []*Recipe{Recipes["mxfp8_rceil"], nil} {
		tp, x, w := &tape{recipe: recipe}, load(t, "mx_linear", "x"), load(t, "mx_linear", "w")
		y := tp.linear(x, w, nil)
		y.grad = load(t, "mx_linear", "dy").data
		if tp.run(); tp.recipe != nil {
			t.Error("the recipe also holds for the next product")
		}
		for name, got := range map[string][]float64{"y": y.data, "dx": x.grad, "dw": w.grad} {
			if d := distance(got, load(t, "mx_linear", name).data); (d < 3e-3) != (recipe != nil) || math.IsNaN(d) {
				t.Errorf("%s is off by %.2g, quantized: %v", name, d, recipe != nil)
			}
		}
	}
}
