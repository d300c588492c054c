package ep

import (
	"math"
	"testing"

	"spmoe/collective"
	"spmoe/tensor"
)

// cases are routings at the limits.
func cases() map[string]*batch {
	all := map[string]*batch{
		"mixed":      newBatch(37, 12, 3, 16, small),
		"one slot":   newBatch(20, 8, 1, 8, small),
		"one token":  newBatch(1, 8, 4, 8, small),
		"no tokens":  newBatch(0, 8, 2, 8, small),
		"odd hidden": newBatch(9, 5, 2, 8, small),
		"one expert": newBatch(30, 8, 2, 8, small),
		"masked":     newBatch(30, 8, 2, 8, small),
		"twice":      newBatch(30, 8, 3, 8, small),
	}
	for i := range all["one expert"].topk {
		all["one expert"].topk[i] = 5
	}
	for i := range all["masked"].topk {
		all["masked"].topk[i] = -1
	}
	for i := range all["twice"].topk { // a token may choose an expert more than once
		all["twice"].topk[i] = int32(i / 3 % 8)
	}
	return all
}

// Every result is that of plain loops over the global batch, whoever holds the tokens and the
// experts.
func TestAgainstReference(t *testing.T) {
	for name, b := range cases() {
		t.Run(name, func(t *testing.T) {
			forRanks(t, b.tokens(), func(t *testing.T, by way, dtype tensor.DType, split []int) {
				b.run(t, by, dtype, split).wantSame(t, b.reference(dtype))
			})
		})
	}
}

// On data whose sums do round, every number of ranks and every way gives the same bits: FP32 sums
// in slot order, rounded once.
func TestRanksAgreeBitForBit(t *testing.T) {
	b := newBatch(61, 33, 4, 16, normal)
	alone := map[tensor.DType]*result{}
	for _, dtype := range []tensor.DType{tensor.FP32, tensor.BF16} {
		alone[dtype] = b.reference(dtype)
		exact := alone[dtype].dweights
		alone[dtype].dweights = b.run(t, ways[0], dtype, []int{b.tokens()}).dweights // inner products may be added in any fixed order
		for i, got := range alone[dtype].dweights {
			if math.Abs(float64(got-exact[i])) > 1e-4 {
				t.Errorf("%v: dweights[%d] is %v, want %v", dtype, i, got, exact[i])
			}
		}
	}
	forRanks(t, b.tokens(), func(t *testing.T, by way, dtype tensor.DType, split []int) {
		b.run(t, by, dtype, split).wantSame(t, alone[dtype])
	})
}

// After the first step, a step allocates nothing on the Go heap, on any rank.
func TestWarmStepsDoNotAllocate(t *testing.T) {
	for _, by := range ways[:2] {
		t.Run(by.name, func(t *testing.T) { testWarmSteps(t, by) })
	}
}

func testWarmSteps(t *testing.T, by way) {
	const np, runs = 2, 20
	err := by.run(np, func(c *collective.Comm) error {
		l, err := newLayer(c, by, newBatch(64, 32, 4, 8, normal), tensor.BF16)
		if err != nil {
			return err
		}
		var failed error
		step := func() {
			if err := l.step(); err != nil && failed == nil {
				failed = err
			}
		}
		step()
		if c.Rank() == 0 { // counts the allocations of all ranks
			if n := testing.AllocsPerRun(runs, step); n != 0 {
				t.Errorf("%v allocations a step", n)
			}
			return failed
		}
		for range runs + 1 {
			step()
		}
		return failed
	})
	if err != nil {
		t.Fatal(err)
	}
}

// layer is one rank's layer in a training loop, its experts being the identity.
type layer struct {
	Exchange
	ex                    *tensor.Exec
	h                     Handle
	x, topk, weights, out tensor.Tensor
	dweights, dx          tensor.Tensor
}

func newLayer(c *collective.Comm, by way, b *batch, dtype tensor.DType) (*layer, error) {
	s, err := by.make(c, b.experts)
	if err != nil {
		return nil, err
	}
	keep, n := newExec(c), b.tokens()
	l := &layer{
		Exchange: s, ex: newExec(c),
		x: matrix(keep, dtype, b.x, b.hidden), topk: keep.New(tensor.INT32, n, b.slots),
		weights: matrix(keep, tensor.FP32, b.weights, b.slots), out: keep.New(dtype, n, b.hidden),
		dweights: keep.New(tensor.FP32, n, b.slots), dx: keep.New(dtype, n, b.hidden),
	}
	copy(l.topk.I32(), b.topk)
	return l, nil
}

func (l *layer) forward() error {
	l.ex.Reset()
	rows, err := dispatch(l, l.ex, &l.h, l.x, l.topk)
	if err != nil {
		return err
	}
	return l.Combine(l.ex, &l.h, rows, l.weights, l.out)
}

func (l *layer) step() error {
	if err := l.forward(); err != nil {
		return err
	}
	dy, err := combineBackward(l, l.ex, &l.h, l.out, l.dweights)
	if err != nil {
		return err
	}
	return l.DispatchBackward(l.ex, &l.h, dy, l.dx)
}
