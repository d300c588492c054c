package tensor

import (
	"testing"
	"time"

	"spmoe/tensor/profile"
)

// Kernels tell the profile which family they are of; products by type, grouping and operands.
func TestEnter(t *testing.T) {
	now := time.Duration(0)
	tick := func() time.Duration { now++; return now }
	ex := NewExec()
	ex.Profile = profile.NewTimer(tick, func() time.Duration { return 0 })
	x, w, y := New(BF16, 8, 16), New(BF16, 4, 16), New(BF16, 8, 4)
	wide, grouped, dw := New(FP32, 8, 16), New(BF16, 2, 4, 16), New(FP32, 2, 4, 16)
	for _, m := range []Tensor{x, w, y, wide, grouped, dw} {
		m.Zero()
	}
	one, two := []int32{8}, []int32{3, 8}
	shape := AttentionShape{Batch: 1, Seq: 8, Heads: 1, KeyDim: 16, ValueDim: 16, Scale: 1}
	for _, c := range []struct {
		want profile.Family
		run  func()
	}{
		{profile.Product(profile.BF16, false, profile.Forward), func() { MatMul(ex, y.Mat(), x.Mat(), w.Mat().T()) }},
		{profile.Product(profile.BF16, false, profile.Dgrad), func() { MatMul(ex, x.Mat(), y.Mat(), w.Mat()) }},
		{profile.Product(profile.BF16, false, profile.Wgrad), func() { MatMulAdd(ex, dw.Index(0).Mat(), y.Mat().T(), x.Mat()) }},
		{profile.Product(profile.FP32, false, profile.Wgrad), func() { MatMulAdd(ex, New(FP32, 16, 16).Mat(), wide.Mat().T(), wide.Mat()) }},
		{profile.Product(profile.BF16, true, profile.Forward), func() { GroupedMatMul(ex, y.Mat(), x.Mat(), grouped, two) }},
		{profile.Product(profile.BF16, false, profile.Forward), func() { GroupedMatMul(ex, y.Mat(), x.Mat(), grouped.Slice(0, 1), one) }},
		{profile.Product(profile.BF16, true, profile.Dgrad), func() { GroupedDgrad(ex, x.Mat(), y.Mat(), grouped, two) }},
		{profile.Product(profile.BF16, true, profile.Wgrad), func() { GroupedWgrad(ex, dw, y.Mat(), x.Mat(), two, true) }},
		{profile.Attention, func() { CausalAttention(ex, x.Mat(), New(FP32, 8).F32(), x.Mat(), x.Mat(), x.Mat(), shape) }},
	} {
		ex.Profile.Start()
		ex.Enter(profile.Rows)
		c.run()
		times := ex.Profile.Stop()
		if times[c.want] == 0 || times.Total() != times[c.want]+times[profile.Rows]+times[profile.Rest] {
			t.Errorf("the times of %v are %v", c.want, times)
		}
	}
	var none *Exec
	if none.Enter(profile.Loss) != profile.Rest || NewExec().Enter(profile.Loss) != profile.Rest {
		t.Error("without a profile there is a family")
	}
}
