package tensorcore

// Bit-for-bit comparison with an H100 and a B200. testdata has the first rows of recorded products.

import (
	"math"
	"slices"
	"strings"
	"testing"

	"spmoe/launcher/checkpoint/safetensors"
	"spmoe/tensor/format"
)

// golden is an open file of recorded products.
type golden struct {
	*safetensors.File
	t testing.TB
}

func openGolden(t testing.TB, name string) golden {
	t.Helper()
	f, err := safetensors.Open("testdata/" + name + ".safetensors")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return golden{f, t}
}

// A matrix is the rows of an operand, of the same length.
type matrix struct {
	values     []float32
	rows, cols int
	least      int // exponent of the smallest normal number
}

// matrix returns an operand.
func (f golden) matrix(name string) matrix {
	f.t.Helper()
	info, ok := f.Info(name)
	if !ok {
		f.t.Fatalf("no tensor %s", name)
	}
	m := matrix{rows: info.Shape[0], cols: 1, least: leastNormal}
	if len(info.Shape) > 1 {
		m.cols = info.Shape[1]
	}
	var codes *format.Element
	switch info.DType {
	case safetensors.F8E4M3:
		codes = format.E4M3
	case safetensors.F8E5M2:
		codes = format.E5M2
	case safetensors.F16:
		m.least = -14
	}
	var err error
	if codes == nil {
		m.values, err = f.Float32s(name)
	} else {
		var bytes []byte
		bytes, err = f.Bytes(name)
		for _, b := range bytes {
			m.values = append(m.values, codes.Decode(b))
		}
		m.least = codes.MinExponent()
	}
	if err != nil {
		f.t.Fatal(err)
	}
	return m
}

func (m matrix) row(i int) []float32 { return m.values[i*m.cols : (i+1)*m.cols] }

// elements returns the elements of row i.
func (m matrix) elements(i int) []Element {
	all := make([]Element, m.cols)
	for k, v := range m.row(i) {
		all[k] = ElementOf(v, m.least)
	}
	return all
}

// products lists the prefixes of the products in the file.
func (f golden) products() (prefixes []string) {
	for _, info := range f.Tensors() {
		if prefix, ok := strings.CutSuffix(info.Name, ".a"); ok {
			prefixes = append(prefixes, prefix)
		}
	}
	return prefixes
}

// differing counts the elements of out that differ from what dot returns for their rows.
func (f golden) differing(prefix, out string, dot func(a, b []Element, i, j int) float32) (n int) {
	a, b, want := f.matrix(prefix+".a"), f.matrix(prefix+".b"), f.matrix(prefix+"."+out)
	columns := make([][]Element, want.cols)
	for j := range columns {
		columns[j] = b.elements(j)
	}
	for i := range want.rows {
		row := a.elements(i)
		for j, w := range want.row(i) {
			if math.Float32bits(dot(row, columns[j], i, j)) != math.Float32bits(w) {
				n++
			}
		}
	}
	return n
}

// A recording is a file with the plans of its outputs.
type recording struct {
	file, out string
	plan      Plan
}

var recordings = []recording{
	{"h100_bf16", "out", H100BF16},
	{"h100_e4m3", "out_chained", H100FastFP8},
	{"h100_e4m3", "out_promoted", H100FP8},
	{"h100_e5m2_mixed", "out_chained", H100FastFP8},
	{"h100_e5m2_mixed", "out_promoted", H100FP8},
}

// FP32's subnormal numbers, as an H200 adds them: its sums are cut at 2^-149, and terms are aligned
// to 2^-133 at least. The file's metadata says how it was recorded.
func TestGoldenSubnormals(t *testing.T) {
	f, subnormal := openGolden(t, "h200_subnormal"), 0
	for _, prefix := range f.products() {
		if n := f.differing(prefix, "out", func(a, b []Element, _, _ int) float32 { return H100BF16.Dot(a, b) }); n != 0 {
			t.Errorf("%s: %d elements differ", prefix, n)
		}
		for _, x := range f.matrix(prefix + ".out").values {
			if x != 0 && math.Abs(float64(x)) < 0x1p-126 {
				subnormal++
			}
		}
	}
	if subnormal < 1500 {
		t.Errorf("%d results are subnormal, want many", subnormal)
	}
}

// Sums by hand, each at the edge of a rule: M is the largest exponent, at least -133; terms are cut
// at 2^(M-F), and the total at its last mantissa bit, at least 2^-149.
func TestSumsByHand(t *testing.T) {
	// power returns n·2^e as a term of that exponent.
	power := func(n float64, e int) Term { return Term{math.Ldexp(n, e), e} }
	for name, c := range map[string]struct {
		unit  Unit
		c     float32
		terms []Term
		want  float64
	}{
		// M = 0, F = 35: 1 - 1 + 2^-35, and 3/4 of it is cut to 0.
		"fp4's last bit":         {BlackwellFP4, 1, []Term{power(-1, 0), power(1, -35), power(0.75, -35)}, 0x1p-35},
		"fp4's accumulator":      {BlackwellFP4, 0x1p-35, []Term{power(1, 0), power(-1, 0)}, 0x1p-35},
		"fp4's bit beyond":       {BlackwellFP4, 0x1p-36, []Term{power(1, 0), power(-1, 0)}, 0},
		"fp8's last bit":         {BlackwellFP8, 0, []Term{power(1, 0), power(-1, 0), power(1, -25), power(0.75, -25)}, 0x1p-25},
		"a group of fp4":         {BlackwellFP4, 0, []Term{Group([]float32{6, -0.5, 4}, []float32{6, 3, 0.5}, Element{1.75, 0}, Element{0x1p-9, -9})}, (36 - 1.5 + 2) * 1.75 * 0x1p-9},
		"cut at 2^-149":          {HopperBF16, 0, []Term{power(1.75, -149)}, 0x1p-149},
		"negative, cut to zero":  {HopperBF16, 0, []Term{power(-1.5, -150)}, 0},
		"fp8 of a subnormal":     {HopperFP8, 0, []Term{power(1.5, -139)}, 0x1p-139},
		"alignment at -133":      {HopperBF16, 0, slices.Repeat([]Term{power(1, -152)}, 8), 0x1p-149},
		"no lower than 2^-158":   {HopperBF16, 0, []Term{power(511, -158), power(1, -159), power(1, -159)}, 0},
		"2^-158 itself is added": {HopperBF16, 0, []Term{power(511, -158), power(1, -158)}, 0x1p-149},
	} {
		if got := c.unit.Add(c.c, c.terms); float64(got) != c.want {
			t.Errorf("%s: %g, want %g", name, got, c.want)
		}
	}
}

// dots are single blocks with an accumulator.
var dots = []struct {
	file, format string
	unit         Unit
}{
	{"h100_dots", "bf16", HopperBF16},
	{"h100_dots", "fp16", HopperBF16},
	{"h100_dots", "e4m3", HopperFP8},
	{"h100_dots", "e5m2", HopperFP8},
	{"b200_dots", "bf16", BlackwellBF16},
	{"b200_dots", "fp16", BlackwellBF16},
}

func TestGoldenBlocks(t *testing.T) {
	for _, tt := range dots {
		f := openGolden(t, tt.file)
		if n := f.differingBlocks(tt.format, tt.unit); n != 0 {
			t.Errorf("%s, %s: %d blocks differ", tt.file, tt.format, n)
		}
	}
}

func (f golden) differingBlocks(name string, unit Unit) (n int) {
	a, b, c, d := f.matrix(name+".a"), f.matrix(name+".b"), f.matrix(name+".c"), f.matrix(name+".d")
	if a.rows < 100 {
		f.t.Fatalf("%s has %d blocks", name, a.rows)
	}
	for i := range a.rows {
		if math.Float32bits(unit.Chain(c.values[i], a.elements(i), b.elements(i))) != math.Float32bits(d.values[i]) {
			n++
		}
	}
	return n
}

// rowWise says whether a product of the file of blocks had scales of rows. torch._scaled_mm takes
// scales of 1x128 for those if there is one block of K.
func rowWise(prefix string) bool {
	return strings.HasPrefix(prefix, "blocks_1x128") && strings.HasSuffix(prefix, ".128")
}

// scaled calls compare for each product in blocks of 128.
func scaled(t testing.TB, compare func(f golden, prefix string, s func(i, j int) Scales)) {
	f := openGolden(t, "h100_blockwise")
	for _, prefix := range f.products() {
		if rowWise(prefix) {
			continue
		}
		sa, sb := f.matrix(prefix+".scale_a"), f.matrix(prefix+".scale_b")
		squares := strings.HasPrefix(prefix, "blocks_128x128")
		compare(f, prefix, func(i, j int) Scales {
			if squares {
				j = 0
			}
			return Scales{A: sa.row(i), B: sb.row(j), Squares: squares}
		})
	}
}

func TestGoldenScaledProducts(t *testing.T) {
	products := 0
	scaled(t, func(f golden, prefix string, s func(i, j int) Scales) {
		products++
		n := f.differing(prefix, "out", func(a, b []Element, i, j int) float32 { return H100FP8.DotScaled(a, b, s(i, j)) })
		if n != 0 {
			t.Errorf("%s: %d elements differ", prefix, n)
		}
	})
	if products != 10 {
		t.Errorf("%d products in blocks, want 10", products)
	}
}
