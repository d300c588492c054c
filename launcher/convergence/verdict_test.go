package convergence

import (
	"testing"

	"spmoe/moe"
	"spmoe/mx"
)

// The test can fail: of arms that differ in nothing but a fault of their quantization, the one
// without any is equivalent to the baseline and the others are not.
func TestBrokenRecipes(t *testing.T) {
	t.Parallel()
	faults := map[string]func(moe.Quantized){
		"intact":                nil,
		"scales off by one":     scalesOffByOne,
		"gradients of two bits": coarseGradients,
	}
	c := tiny(t, text(t), 60, "bf16,mxfp8")
	c.Design.Margin = 0.01 // the held-out text is short
	c.Jobs = 2
	mxfp8 := c.Recipes[1]
	c.Recipes = c.Recipes[:1]
	for _, name := range []string{"intact", "scales off by one", "gradients of two bits"} {
		r := mxfp8
		r.Name = name
		c.Recipes = append(c.Recipes, r)
	}
	c.Disturb = func(recipe string) func(moe.Quantized) { return faults[recipe] }
	r := finish(t, c)
	for _, a := range r.Arms[1:] {
		want := Different
		if a.Name == "intact" {
			want = Equivalent
		}
		if a.Verdict != want {
			t.Errorf("%s is %s, want %s: training %+v, held-out %+v", a.Name, a.Verdict, want, a.Train, a.HeldOut)
		}
	}
	if r.Verdict() == Equivalent {
		t.Error("the comparison as a whole is taken to have found equivalence")
	}
}

// both calls f with the forms of an operand that there are.
func both(q moe.Quantized, f func(codes, scales []uint8)) {
	for _, form := range []mx.Tensor{q.Rows, q.Cols} {
		if form.Codes.Valid() {
			f(form.Codes.U8(), form.Scales.U8())
		}
	}
}

// scalesOffByOne doubles what is multiplied: every block's scale is a binade too high.
func scalesOffByOne(q moe.Quantized) {
	both(q, func(_, scales []uint8) {
		for i := range scales {
			if scales[i] < mx.NaNScale-1 {
				scales[i]++
			}
		}
	})
}

// coarseGradients leaves gradients two bits of mantissa and turns the sign of some, which depend on
// the codes alone: the run is the same each time.
func coarseGradients(q moe.Quantized) {
	if q.Operand != moe.Gradient {
		return
	}
	both(q, func(codes, _ []uint8) {
		state := uint64(len(codes))
		for i, code := range codes {
			state = (state+uint64(code))*6364136223846793005 + 1442695040888963407
			codes[i] = code &^ 1
			if state>>61 == 0 {
				codes[i] ^= 0x80
			}
		}
	})
}
