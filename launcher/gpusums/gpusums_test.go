package gpusums

import (
	"math"
	"strings"
	"testing"

	"spmoe/launcher/checkpoint/safetensors"
)

// recorded returns the products of an H200 in BF16 and TF32, with PyTorch's default settings.
func recorded(t *testing.T) map[string]Product {
	f, err := safetensors.Open("../../tensor/tensorcore/testdata/h200_splitk.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	matrix := func(name string) Matrix {
		info, ok := f.Info(name)
		values, err := f.Float32s(name)
		if !ok || err != nil {
			t.Fatal(name, err)
		}
		return Matrix{Values: values, Rows: info.Shape[0], Cols: info.Shape[1]}
	}
	products := map[string]Product{}
	for _, info := range f.Tensors() {
		name, ok := strings.CutSuffix(info.Name, ".a")
		if !ok || strings.HasPrefix(name, "fp8") || strings.HasPrefix(name, "rows") {
			continue
		}
		products[name] = Product{X: matrix(name + ".a"), W: matrix(name + ".b"), Y: matrix(name + ".out"), TF32: strings.HasPrefix(name, "tf32"), BF16: strings.Contains(name, ".bf16.")}
	}
	return products
}

func TestRecordedProducts(t *testing.T) {
	parts := map[string]int{"split.fp32.128x256x7168": 5, "split.fp32.1x2048x7168": 3, "dgrad.fp32.64x2048x10944": 4, "odd.fp32.64x96x2049": 29, "tf32.fp32.96x16x2048": 32}
	for name, p := range recorded(t) {
		r, err := Judge(p)
		if err != nil || r.Verdict != EqualBits {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
		if n := parts[name]; n != 0 && r.Parts != n {
			t.Errorf("%s: %d parts, want %d", name, r.Parts, n)
		}
	}
}

// One bit of one element, as a flipped multiplier would leave it, is found and named.
func TestWrongElement(t *testing.T) {
	p := recorded(t)["split.fp32.128x256x7168"]
	i := 1*p.Y.Cols + 2
	p.Y.Values[i] = math.Float32frombits(math.Float32bits(p.Y.Values[i]) ^ 1<<20)
	r, err := Judge(p)
	if err != nil || r.Verdict != Wrong || r.Row != 1 || r.Col != 2 || r.Equal != r.Compared-1 {
		t.Errorf("%+v, %v", r, err)
	}
}

// FP32 sums in ascending order, as a loop of multiply-adds has them, are another order.
func TestOtherOrder(t *testing.T) {
	p := recorded(t)["split.fp32.17x2048x2816"]
	for i := range p.Y.Rows {
		for j := range p.Y.Cols {
			var sum float32
			for k := range p.X.Cols {
				sum += p.X.Values[i*p.X.Cols+k] * p.W.Values[j*p.W.Cols+k]
			}
			p.Y.Values[i*p.Y.Cols+j] = sum
		}
	}
	if r, err := Judge(p); err != nil || r.Verdict != OtherOrder {
		t.Errorf("%+v, %v", r, err)
	}
}
