package collective

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// floats is rank r's data: of mixed size and sign, so that a sum in another order has other bits.
func floats(r, n int) []float32 {
	rng := rand.New(rand.NewPCG(uint64(r), uint64(n)))
	s := make([]float32, n)
	for i := range s {
		s[i] = float32(math.Ldexp(rng.NormFloat64(), rng.IntN(20)))
	}
	return s
}

// reference reduces the data of n ranks as a tree: the largest power of two of them that leaves
// some, and the others.
func reference[T Number](n, length int, data func(r, n int) []T, op func(a, b T) T) []T {
	if n == 1 {
		return data(0, length)
	}
	half := 1
	for 2*half < n {
		half *= 2
	}
	acc := reference(half, length, data, op)
	others := reference(n-half, length, func(r, n int) []T { return data(half+r, n) }, op)
	for i, v := range others {
		acc[i] = op(acc[i], v)
	}
	return acc
}

// expected is the reduction over a communicator, whatever its hosts.
func expected[T Number](c *Comm, length int, data func(r, n int) []T, op func(a, b T) T) []T {
	return reference(c.Size(), length, data, op)
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
				if err := wantEqual(fmt.Sprintf("%v of %d", op, n), buf, expected(c, n, floats, ops[op])); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// Eight terms that 1, 2, 4 or 8 ranks share, each adding up its own as a tree, have one sum; so
// have the 24 of 3, 6 and 12 ranks.
func TestSumsNest(t *testing.T) {
	const n = 1000
	add := func(a, b float32) float32 { return a + b }
	for terms, ranks := range map[int][]int{8: {1, 2, 4, 8}, 24: {3, 6, 12}} {
		want := reference(terms, n, floats, add)
		for _, np := range ranks {
			err := NewWorld(np).Run(func(c *Comm) error {
				each := terms / c.Size()
				buf := reference(each, n, func(r, n int) []float32 { return floats(c.Rank()*each+r, n) }, add)
				if err := AllReduce(c, buf, Sum); err != nil {
					return err
				}
				return wantEqual(fmt.Sprintf("%d terms on %d ranks", terms, np), buf, want)
			})
			if err != nil {
				t.Error(err)
			}
		}
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
		want := expected(c, n, data, reduction.f)
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
			want := expected(c, n, floats, add)[lo:][:counts[c.Rank()]]

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

// Pieces of a part that travel one after another over hosts do not meet in memory, and each host
// has several subtrees of the tree.
func TestPiecesOfHosts(t *testing.T) {
	err := runHosts([]int{3, 2}, func(c *Comm) error {
		counts := slices.Repeat([]int{mostPiece/4 + 100}, c.Size())
		src, dst := floats(c.Rank(), sum(counts)), make([]float32, counts[0])
		if err := ReduceScatter(c, dst, src, counts, Sum); err != nil {
			return err
		}
		want := expected(c, len(src), floats, func(a, b float32) float32 { return a + b })
		return wantEqual("pieces", dst, want[counts[0]*c.Rank():][:counts[0]])
	})
	if err != nil {
		t.Error(err)
	}
}
