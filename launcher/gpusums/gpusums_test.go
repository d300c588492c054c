package gpusums

import (
	"encoding/json"
	"math"
	"slices"
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
		m := Matrix{Rows: info.Shape[0], Cols: info.Shape[1]}
		for _, v := range values {
			m.Values = append(m.Values, float64(v))
		}
		return m
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
		r := Judge(p)
		if r.Verdict != EqualBits {
			t.Errorf("%s: %+v", name, r)
		}
		if n := parts[name]; n != 0 && r.Parts != n {
			t.Errorf("%s: %d parts, want %d", name, r.Parts, n)
		}
	}
}

// A wrong element outside of the sample is found if all are compared.
func TestAllElements(t *testing.T) {
	const n, k = 1200, 24 // larger than smallProduct
	x := Matrix{Rows: n, Cols: k}
	for i := range n * k {
		x.Values = append(x.Values, float64(i%7-3)*math.Ldexp(1, i%5))
	}
	p := Product{X: x, W: x, Y: Matrix{Values: make([]float64, n*n), Rows: n, Cols: n}}
	for i := range n {
		for j := range n {
			for e := range k { // exact in any order
				p.Y.Values[i*n+j] += x.At(i, e) * x.At(j, e)
			}
		}
	}
	row := slices.IndexFunc(choose(n, n), func(i int) bool { return !slices.Contains(choose(n, sampled), i) })
	p.Y.Values[row*n+5]++
	if chosen := choose(n, sampled); len(chosen) != sampled {
		t.Errorf("%d of %d rows are chosen, want %d", len(chosen), n, sampled)
	}
	for _, p.All = range []bool{false, true} {
		r := Judge(p)
		if (r.Verdict == Wrong) != p.All || p.All && (r.Compared != n*n || r.Equal != n*n-1 || r.Element != [2]int{row, 5} || r.Got == r.Want || r.Want == "") {
			t.Errorf("all %v: %+v", p.All, r)
		}
	}
	p.Y.Values[row*n+5] = math.NaN()
	r := Judge(p)
	if text, err := json.Marshal(r); err != nil || !strings.Contains(string(text), `"wrong"`) || r.Got != "NaN" {
		t.Errorf("a NaN: %s, %v", text, err)
	}
}
