package collective

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// floats is rank r's data: of mixed size and sign, so that a sum in another order has other bits.
func floats(r, n int) []float32 {
	rng := rand.New(rand.NewPCG(uint64(r), uint64(n)))
	s := make([]float32, n)
	for i := range s {
		s[i] = float32(rng.NormFloat64() * math.Exp2(float64(rng.IntN(20))))
	}
	return s
}

// reference reduces the data of n ranks in rank order, one element at a time.
func reference[T Number](n, length int, data func(r, n int) []T, op func(a, b T) T) []T {
	acc := data(0, length)
	for r := 1; r < n; r++ {
		for i, v := range data(r, length) {
			acc[i] = op(acc[i], v)
		}
	}
	return acc
}

func TestAllReduceFloat32(t *testing.T) {
	ops := map[Op]func(a, b float32) float32{
		Sum: func(a, b float32) float32 { return a + b },
		Max: func(a, b float32) float32 { return max(a, b) },
		Min: func(a, b float32) float32 { return min(a, b) },
	}
	forSizes(t, func(c *Comm) error {
		for _, n := range lengths {
			for _, op := range []Op{Sum, Max, Min} {
				buf := floats(c.Rank(), n)
				if err := AllReduce(c, buf, op); err != nil {
					return err
				}
				if err := wantEqual(fmt.Sprintf("%v of %d", op, n), buf, reference(c.Size(), n, floats, ops[op])); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// The order of the sum matters for this data: otherwise the tests of bits above would prove nothing.
func TestOrderMatters(t *testing.T) {
	const n = 1000
	forward := reference(4, n, floats, func(a, b float32) float32 { return a + b })
	backward := reference(4, n, func(r, n int) []float32 { return floats(3-r, n) }, func(a, b float32) float32 { return a + b })
	if wantEqual("", forward, backward) == nil {
		t.Fatal("the sums are the same in both orders")
	}
}

func TestAllReduceOtherTypes(t *testing.T) {
	forSizes(t, func(c *Comm) error {
		for _, err := range []error{
			allReduceInts[int8](c), allReduceInts[uint16](c), allReduceInts[int32](c), allReduceInts[int64](c),
			allReduceInts[float64](c),
		} {
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// allReduceInts reduces numbers that T has exactly.
func allReduceInts[T Number](c *Comm) error {
	data := func(r, n int) []T {
		s := make([]T, n)
		for i := range s {
			s[i] = T((i*5 + r*3) % 11)
		}
		return s
	}
	const n = 3000
	for _, reduction := range []struct {
		op Op
		f  func(a, b T) T
	}{
		{Sum, func(a, b T) T { return a + b }},
		{Max, func(a, b T) T { return max(a, b) }},
		{Min, func(a, b T) T { return min(a, b) }},
	} {
		buf := data(c.Rank(), n)
		if err := AllReduce(c, buf, reduction.op); err != nil {
			return err
		}
		want := reference(c.Size(), n, data, reduction.f)
		if err := wantEqual(fmt.Sprintf("%v of %T", reduction.op, buf), buf, want); err != nil {
			return err
		}
	}
	return nil
}

// A NaN of any rank is seen by all, whatever the op.
func TestAllReduceNaN(t *testing.T) {
	forSizes(t, func(c *Comm) error {
		for _, op := range []Op{Sum, Max, Min} {
			for bad := range c.Size() {
				buf := []float32{1, 2, 3}
				if c.Rank() == bad {
					buf[1] = float32(math.NaN())
				}
				if err := AllReduce(c, buf, op); err != nil {
					return err
				}
				if buf[1] == buf[1] || buf[0] != buf[0] || buf[2] != buf[2] {
					return fmt.Errorf("%v with a NaN on rank %d in element 1 is %v", op, bad, buf)
				}
			}
		}
		return nil
	})
}

func TestReduceScatter(t *testing.T) {
	add := func(a, b float32) float32 { return a + b }
	forSizes(t, func(c *Comm) error {
		for round := range 6 {
			counts := ragged(c.Size(), round)
			if round == 5 { // more than a block for each
				for r := range counts {
					counts[r] = blockBytes/4 + 100*r
				}
			}
			n, lo := sum(counts), sum(counts[:c.Rank()])
			want := reference(c.Size(), n, floats, add)[lo:][:counts[c.Rank()]]

			src, dst := floats(c.Rank(), n), make([]float32, counts[c.Rank()])
			if err := ReduceScatter(c, dst, src, counts, Sum); err != nil {
				return err
			}
			if err := wantEqual("apart", dst, want); err != nil {
				return err
			}
			if err := wantEqual("src", src, floats(c.Rank(), n)); err != nil {
				return err
			}
			own := src[lo:][:counts[c.Rank()]]
			if err := ReduceScatter(c, own, src, counts, Sum); err != nil {
				return err
			}
			if err := wantEqual("in place", own, want); err != nil {
				return err
			}
		}
		return nil
	})
}

// Shares cover the range once, in order.
func TestShare(t *testing.T) {
	for _, np := range sizes {
		w := NewWorld(np)
		for _, n := range lengths {
			end := 0
			for r := range np {
				lo, hi := w.Comm(r).share(n, 4)
				if lo != end || hi < lo {
					t.Fatalf("np %d, %d elements: rank %d has [%d, %d), the rank before it ends at %d", np, n, r, lo, hi, end)
				}
				end = hi
			}
			if end != n {
				t.Fatalf("np %d: the shares of %d elements end at %d", np, n, end)
			}
		}
	}
}
