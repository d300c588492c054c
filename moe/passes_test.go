package moe

// A step gives one result, however it is divided into passes and ranks.

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"spmoe/tensor"
)

// passesModel gives each expert 32 rows of every sequence, enough for the kernels of many rows.
func passesModel(seq int) Config {
	return with(quantizable(64, 64), func(c *Config) {
		c.MTPLayers, c.BalanceAlpha, c.QRank, c.MaxPositions = 1, 0.1, 32, seq
		c.TopK, c.ForceBalance = 4, true
	})
}

func TestOneResultForAllPasses(t *testing.T) {
	const sequences = 8
	for i, name := range []string{"fp32", "bf16", "mxfp8", "mxfp8-wgrad-bf16", "mxint8", "mxfp6-e2m3", "bf16 by h100", "mxfp4", "fp8-block", "mxfp4-e2m1"} {
		t.Run(name, func(t *testing.T) {
			seq := 64
			if name == "fp8-block" {
				seq = 128 // whole blocks
			}
			cfg := passesModel(seq)
			b := batchOf(17, sequences, seq, cfg.Vocab)
			want := trainedBy(t, cfg, name, "onesided", b, 1, 1)
			cases := [][3]int{{2, 1, 4}, {1, 1, 8}, {1, 1, 2}, {1, 1, 4}, {2, 2, 2}, {2, 2, 4}, {4, 4, 2}, {4, 2, 2}}
			if slow := i > 4; slow {
				cases = cases[:1+i%2]
			}
			for _, c := range cases {
				got := trainedWith(t, cfg, defaultOutputSizes(), name, "onesided", b, c[0], c[1], 1, c[2])
				got.equals(t, fmt.Sprintf("np %d, ep %d, %d passes", c[0], c[1], c[2]), want)
			}
		})
	}
}

// The head's gradient is a tree over sequences in all passes, also if it holds the gradients of a
// part of a sequence at a time.
func TestOneResultForAllPassesInBlocks(t *testing.T) {
	const sequences, seq = 4, 41
	cfg := headModel(1)
	b := batchOf(18, sequences, seq, cfg.Vocab)
	for _, rows := range []int{4 * seq, 2 * seq, 16} {
		want := trainedWith(t, cfg, smallSizes(rows), "fp32", "onesided", b, 1, 1, 1, 1)
		for _, c := range [][2]int{{1, 2}, {1, 4}, {2, 2}} {
			got := trainedWith(t, cfg, smallSizes(rows), "fp32", "onesided", b, c[0], c[0], 1, c[1])
			got.equals(t, fmt.Sprintf("%d rows, np %d, %d passes", rows, c[0], c[1]), want)
		}
	}
}

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
			to, adds := tree.next(ex, i == passes-1)
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

// Passes in a chain need no copies, and are added in their order.
func TestPassChain(t *testing.T) {
	ex := tensor.NewExec()
	tree, want := newSumTree(tensor.New(tensor.FP32, 1)), float32(0)
	for i := range 8 {
		x := 1 + float32(i)/3
		to, adds := tree.next(ex, true)
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
