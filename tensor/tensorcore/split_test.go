package tensorcore

// Products that an H200 computed with PyTorch's default settings: parts of K, rows of an odd number
// of elements, TF32, and scales of rows. The file's metadata says how they were recorded.

import (
	"math"
	"strings"
	"testing"
)

var splits = map[string]Plan{
	"split.fp32.128x256x7168":     H100BF16.Split(7168, 5, 64),
	"split.fp32.1x2048x7168":      H100BF16.Split(7168, 3, 64),
	"split.fp32.17x2048x2816":     H100BF16.Split(2816, 2, 64),
	"split.bf16.17x2048x2816":     H100BF16.Split(2816, 2, 64),
	"dgrad.fp32.64x2048x10944":    H100BF16.Split(10944, 4, 64),
	"fp8.fast.fp32.64x256x7168":   H100FastFP8.Split(7168, 2, 128),
	"fp8.fast.fp32.16x2048x10880": H100FastFP8.Split(10880, 3, 128),
	"odd.fp32.64x96x2049":         H100OddBF16.Split(2049, 29, 8),
	"odd.fp32.32x64x1031":         H100OddBF16.Split(1031, 17, 8),
	"odd.fp32.64x96x515":          H100OddBF16.Split(515, 8, 8),
	"tf32.fp32.96x16x2048":        H100TF32.Split(2048, 32, 64),
	"tf32.fp32.96x16x64":          H100TF32.Split(64, 2, 32),
}

// rounded returns m in BF16 or TF32.
func (m matrix) rounded(bits int) matrix {
	values := make([]float32, len(m.values))
	for i, v := range m.values {
		u := math.Float32bits(v)
		u += 1<<(bits-1) - 1 + u>>bits&1
		values[i] = math.Float32frombits(u >> bits << bits)
	}
	m.values = values
	return m
}

// recorded returns the operands and the result of a product of the file.
func (f golden) recorded(name string) (a, b, out matrix) {
	a, b, out = f.matrix(name+".a"), f.matrix(name+".b"), f.matrix(name+".out")
	if strings.HasPrefix(name, "tf32") {
		return a.rounded(13), b.rounded(13), out
	}
	return a, b, out
}

// as rounds a result of the chip's sums to the type of the recorded one.
func as(name string, m matrix) matrix {
	if strings.Contains(name, ".bf16.") {
		return m.rounded(16)
	}
	return m
}

func TestSplitProducts(t *testing.T) {
	eachTier(t, func(t *testing.T) {
		f := openGolden(t, "h200_splitk")
		for name, plan := range splits {
			a, b, want := f.recorded(name)
			if n := differ(as(name, product(Job{Plan: plan}, a, b)), want); n != 0 {
				t.Errorf("%s: %d elements differ", name, n)
			}
		}
	})
}

// Without parts, or with longer ones, recorded elements differ.
func TestSplitMistakes(t *testing.T) {
	f := openGolden(t, "h200_splitk")
	for name, plan := range splits {
		if strings.Contains(name, ".bf16.") {
			continue // BF16 hides most of it
		}
		a, b, want := f.recorded(name)
		whole, longer := plan, plan
		whole.Part = 0
		longer.Part += 32
		for mistake, p := range map[string]Plan{"no parts": whole, "longer parts": longer} {
			if differ(product(Job{Plan: p}, a, b), want) == 0 {
				t.Errorf("%s: no element shows %s", name, mistake)
			}
		}
	}
}

func TestScalesOfRows(t *testing.T) {
	products := 0
	compare := func(f golden, name string, plan Plan, sa, sb matrix) {
		products++
		a, b, want := f.matrix(name+".a"), f.matrix(name+".b"), f.matrix(name+".out")
		got := matrix{rows: a.rows, cols: b.rows}
		for i := range a.rows {
			for j := range b.rows {
				scaled := plan.Dot(a.elements(i), b.elements(j)) * sb.values[j]
				got.values = append(got.values, scaled*sa.values[i])
			}
		}
		if n := differ(as(name, got), want); n != 0 {
			t.Errorf("%s: %d elements differ", name, n)
		}
	}
	f := openGolden(t, "h200_splitk")
	for _, name := range f.products() {
		if strings.HasPrefix(name, "rows.") {
			plan := H100FP8
			if strings.Contains(name, ".fast.") {
				plan = H100FastFP8
			}
			compare(f, name, plan, f.matrix(name+".sa"), f.matrix(name+".sb"))
		}
	}
	f = openGolden(t, "h100_blockwise")
	for _, name := range f.products() {
		if rowWise(name) {
			compare(f, name, H100FP8, f.matrix(name+".scale_a"), f.matrix(name+".scale_b"))
		}
	}
	if products != 14 {
		t.Errorf("%d products with scales of rows, want 14", products)
	}
}
