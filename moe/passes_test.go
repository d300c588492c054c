package moe

// The sum over the passes of a step.

import (
	"math/rand/v2"
	"testing"

	"spmoe/tensor"
)

// A pass tree of any number of passes has the shape that tensor.Wgrad documents, and as many copies
// as it says.
func TestPassTree(t *testing.T) {
	ex, rng := tensor.NewExec(), rand.New(rand.NewPCG(1, 2))
	for passes := 1; passes <= 33; passes++ {
		result := tensor.New(tensor.FP32, 1)
		tree := newSumTree(result)
		x := make([]float32, passes)
		for i := range x {
			x[i] = rng.Float32()
			to, adds := tree.next(ex, 1, i == passes-1)
			if !adds {
				to.F32()[0] = 0
			}
			to.F32()[0] += x[i]
			tree.push(ex, i == passes-1)
		}
		if got, want := result.F32()[0], balanced(x); got != want {
			t.Errorf("%d passes: %v, want %v", passes, got, want)
		}
		most := 0
		for n := passes; n > 3; n /= 2 {
			most++
		}
		if n := len(tree.copies()); n != most {
			t.Errorf("%d passes: %d copies, want %d", passes, n, most)
		}
	}
}

// Passes of 2^i sequences, then of ever smaller powers of two, have the sum of single sequences.
// One sum in a wrong order may round to the same number, but not those of many trials.
func TestUnequalPasses(t *testing.T) {
	ex, rng := tensor.NewExec(), rand.New(rand.NewPCG(3, 4))
	tables := []struct {
		sizes  []int
		copies int
	}{
		{[]int{2, 1}, 0},
		{[]int{4, 2, 1}, 1},
		{[]int{4, 4, 2}, 0},
		{[]int{4, 4, 4, 2, 1}, 2},
		{[]int{8, 8, 8, 4, 1}, 2},
		{[]int{1, 1, 1, 1, 1}, 1},
	}
	for i := range 64 * len(tables) {
		sizes, copies := tables[i%len(tables)].sizes, tables[i%len(tables)].copies
		result, x := tensor.New(tensor.FP32, 1), []float32(nil)
		tree := newSumTree(result)
		for i, size := range sizes {
			part := make([]float32, size)
			for j := range part {
				part[j] = float32(rng.NormFloat64())
			}
			x = append(x, part...)
			to, adds := tree.next(ex, size, i == len(sizes)-1)
			if !adds {
				to.F32()[0] = 0
			}
			to.F32()[0] += balanced(part)
			tree.push(ex, i == len(sizes)-1)
		}
		if got, want := result.F32()[0], balanced(x); got != want {
			t.Fatalf("passes of %v: %v, want %v", sizes, got, want)
		}
		if n := len(tree.copies()); n != copies {
			t.Fatalf("passes of %v: %d copies, want %d", sizes, n, copies)
		}
	}
}

// Passes in a chain need no copies, and are added in their order.
func TestPassChain(t *testing.T) {
	ex := tensor.NewExec()
	tree, want := newSumTree(tensor.New(tensor.FP32, 1)), float32(0)
	for i := range 8 {
		x := 1 + float32(i)/3
		to, adds := tree.next(ex, 1, true)
		if !adds {
			to.F32()[0] = 0
		}
		to.F32()[0] += x
		tree.push(ex, true)
		want += x
	}
	if got := tree.sums[0].F32()[0]; got != want || len(tree.copies()) > 0 {
		t.Errorf("%v with %d copies, want %v", got, len(tree.copies()), want)
	}
}

// balanced is the sum of x as a balanced tree.
func balanced(x []float32) float32 {
	if len(x) == 1 {
		return x[0]
	}
	half := 1
	for 2*half < len(x) {
		half *= 2
	}
	return balanced(x[:half]) + balanced(x[half:])
}
