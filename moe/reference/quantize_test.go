package reference

import (
	"math"
	"testing"

	"spmoe/launcher/checkpoint/safetensors"
)

// The casts are those of torchao, bit for bit: golden data of package mx.
func TestCasts(t *testing.T) {
	for _, c := range []struct {
		file, x, codes string
		recipe         string
		block          [2]int
		scale          byte // U: the exponent of two + 127, F: the scale
	}{
		{"mx_quantize", "x", "e4m3_floor", "mxfp8", [2]int{1, 32}, 'U'}, {"mx_quantize", "x", "e4m3_rceil", "mxfp8_rceil", [2]int{1, 32}, 'U'},
		{"mx_quantize", "x", "e5m2_floor", "mxfp8", [2]int{1, 32}, 'U'}, {"mx_quantize", "xb", "bf16_e4m3_rceil", "mxfp8_rceil", [2]int{1, 32}, 'U'},
		{"fp8_block_quantize", "x", "x_free", "blockwise", [2]int{1, 128}, 'F'}, {"fp8_block_quantize", "w", "w_free", "blockwise", [2]int{128, 128}, 'F'},
		{"fp8_block_quantize", "x", "xT_free", "blockwise", [2]int{1, 128}, 'F'}, {"fp8_block_quantize", "x", "x_pow2", "rowwise", [2]int{1, 128}, 'F'},
	} {
		f, err := safetensors.Open("../../mx/testdata/" + c.file + ".safetensors")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		read := func(name string) (x []float64, dims []int) {
			info, _ := f.Info(name)
			if info.DType == safetensors.U8 {
				bytes, err := f.Bytes(name)
				for _, b := range bytes {
					x = append(x, float64(b))
				}
				return x, append(info.Shape, map[error]int{nil: 1}[err])
			}
			values, _ := f.Float32s(name)
			for _, v := range values {
				x = append(x, float64(v))
			}
			return x, info.Shape
		}
		x, dims := read(c.x)
		suffix := map[byte][2]string{'U': {"_data", "_scale"}, 'F': {"_codes", "_scales"}}[c.scale]
		codes, _ := read(c.codes + suffix[0])
		scales, scaleDims := read(c.codes + suffix[1])
		m, e := matrix{data: x, rows: dims[0], cols: dims[1]}, e4m3
		if c.codes[:2] == "xT" {
			m = m.transposed()
		}
		if c.codes[:4] == "e5m2" {
			e = e5m2
		}
		got, seen, other := Recipes[c.recipe].cast(m, c.block, e, 0), 0, 0
		for i, code := range codes {
			r, k := i/m.cols, i%m.cols
			scale := scales[r/c.block[0]*scaleDims[1]+k/c.block[1]]
			at := i
			if m.flipped {
				at = k*m.rows + r
			}
			if c.scale == 'U' {
				scale = math.Ldexp(1, int(scale)-127)
			}
			want := decode(int(code), e) * scale
			if want-want != 0 || math.IsNaN(x[at]-x[at]) || scale == math.Ldexp(1, 128) || c.scale == 'F' && scale < 3e-7 { // of a least amax of 1e-4
				continue
			}
			// A product with the reciprocal of the scale rounds ties that division does not meet.
			if seen++; got.data[at] != want {
				if other++; c.scale == 'U' || other > len(codes)/1000 {
					t.Errorf("%s: element %d, %g, is cast to %g, want %g", c.codes, i, x[at], got.data[at], want)
					break
				}
			}
		}
		if seen < len(codes)*9/10 {
			t.Errorf("%s: only %d of %d elements are finite", c.codes, seen, len(codes))
		}
	}
}

// decode returns the value of a code of 8 bits.
func decode(code int, e element) float64 {
	fraction, exp := float64(code&(1<<e.bits-1)), code&0x7f>>e.bits
	if exp > 0 {
		fraction += float64(int(1) << e.bits)
	}
	return math.Copysign(math.Ldexp(fraction, max(exp, 1)-1+e.least-e.bits), 127-float64(code))
}

// The three products of a linear layer are those of torchao's MXFP8, up to the rounding of BF16.
func TestQuantizedProducts(t *testing.T) {
	f, err := safetensors.Open("../../mx/testdata/mx_linear.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	read := func(name string) *node {
		info, _ := f.Info(name)
		values, _ := f.Float32s(name)
		n := &node{rows: info.Shape[0], cols: info.Shape[1]}
		for _, v := range values {
			n.data = append(n.data, float64(v))
		}
		return n
	}
	for recipe, most := range map[string]float64{"mxfp8_rceil": 3e-3, "": 1} {
		tp, x, w := &tape{}, read("x"), read("w")
		if recipe != "" {
			tp.quantizer = &quantizer{Recipe: Recipes[recipe]}
		}
		y := tp.linear(x, w, nil)
		y.grad = read("dy").data
		tp.run()
		for name, got := range map[string][]float64{"y": y.data, "dx": x.grad, "dw": w.grad} {
			if d := distance(got, read(name).data); d > most || most == 1 && d < 1e-2 {
				t.Errorf("%q: %s is off by %.2g", recipe, name, d)
			}
		}
	}
}
