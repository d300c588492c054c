package tensor

import (
	"fmt"
	"math"
	"slices"
	"testing"
)

// cached is the operands and the result of one CachedAttention.
type cached struct {
	heads, values int
	scale         float32
	q, o          region
	sequences     []CachedRows
}

// newCached makes sequences of so many positions, the last of which are new.
func newCached(g *generator, heads, keys, values int, positions, added []int) *cached {
	c := &cached{heads: heads, values: values, scale: 0.4}
	tokens := 0
	for i, n := range positions {
		c.sequences = append(c.sequences, CachedRows{g.matrix(n, keys).Matrix, added[i]})
		tokens += added[i]
	}
	c.q, c.o = g.matrix(tokens*heads, keys), g.matrix(tokens*heads, values)
	return c
}

func (c *cached) run(ex *Exec) {
	CachedAttention(ex, c.o.Matrix, c.q.Matrix, c.heads, c.scale, c.sequences)
}

// only is c without all sequences but one.
func (c *cached) only(i int) *cached {
	before := 0
	for _, s := range c.sequences[:i] {
		before += s.Tokens * c.heads
	}
	end := before + c.sequences[i].Tokens*c.heads
	one := *c
	one.sequences = c.sequences[i : i+1]
	one.q.Matrix, one.o.Matrix = c.q.RowSlice(before, end), c.o.RowSlice(before, end)
	return &one
}

// naive computes the result from the definition, and the sums of the absolute values of its terms.
func (c *cached) naive() (o, mag dense) {
	o, mag = zeros(c.q.Rows, c.values), zeros(c.q.Rows, c.values)
	row := 0
	for _, s := range c.sequences {
		keys := values(s.Rows)
		for i := range s.Tokens * c.heads {
			seen := s.Rows.Rows - s.Tokens + i/c.heads + 1
			scores := make([]float64, seen)
			for j := range scores {
				scores[j] = float64(c.scale) * inner(values(c.q.RowSlice(row, row+1)), part(keys, j, 0, keys.cols))
			}
			for j, p := range softmax(scores) {
				for d := range c.values {
					*o.at(row, d) += p * *keys.at(j, d)
					*mag.at(row, d) += math.Abs(p * *keys.at(j, d))
				}
			}
			row++
		}
	}
	return o, mag
}

// shapesOfCached are numbers of heads, widths, and sequences about the blocks of 16 and of 64 query
// rows.
var shapesOfCached = []struct {
	heads, keys, values int
	positions, added    []int
}{
	{1, 3, 3, []int{1}, []int{1}},
	{3, 9, 5, []int{7, 1, 4}, []int{1, 1, 1}},
	{5, 24, 16, []int{70, 13}, []int{13, 13}},
	{17, 12, 8, []int{40, 9, 30}, []int{1, 9, 5}},
	{40, 16, 10, []int{65, 2}, []int{1, 1}},
}

func TestCachedAttention(t *testing.T) {
	eachLayout(t, func(t *testing.T, g *generator) {
		for _, s := range shapesOfCached {
			t.Run(fmt.Sprintf("%d heads, %v of %v", s.heads, s.added, s.positions), func(t *testing.T) {
				c, ex := newCached(g, s.heads, s.keys, s.values, s.positions, s.added), NewExec()
				want, mag := c.naive()
				c.run(ex)
				if ex.Mark() != (Mark{}) {
					t.Error("scratch memory was not released")
				}
				slack := 2e-5
				if g.dtype == BF16 {
					slack = 4 * unit(BF16)
				}
				near(t, "o", c.o.Matrix, want, scaled(mag, slack))
				c.o.intact(t)
			})
		}
	})
}

// A sequence's bits depend neither on the others nor on the number of threads.
func TestCachedAttentionIsSeparate(t *testing.T) {
	for _, dtype := range floats {
		c := newCached(newGenerator(dtype, 0), 20, 24, 16, []int{900, 3, 700, 50}, []int{1, 1, 30, 50})
		c.run(NewExec())
		all := values(c.o.Matrix)
		row := 0
		for i, s := range c.sequences {
			one := c.only(i)
			one.run(NewExec())
			rows := s.Tokens * c.heads
			if !slices.Equal(values(one.o.Matrix).v, all.v[row*c.values:(row+rows)*c.values]) {
				t.Errorf("%v: sequence %d has other bits among others", dtype, i)
			}
			row += rows
		}
		for threads := 2; threads <= 3; threads++ {
			ex := NewParallelExec(threads)
			c.run(ex)
			ex.Close()
			same(t, fmt.Sprintf("%d threads", threads), c.o.Matrix, all)
		}
	}
}

func TestCachedAttentionPanics(t *testing.T) {
	for want, change := range map[string]func(c *cached){
		"0 new tokens":            func(c *cached) { c.sequences[0].Tokens = 0 },
		"8 new tokens among rows": func(c *cached) { c.sequences[0].Tokens = 8 },
		"queries of 9 columns":    func(c *cached) { c.sequences[1].Rows = c.sequences[1].Rows.ColSlice(0, 4) },
		"for 12 rows":             func(c *cached) { c.sequences[0].Tokens = 2 },
		"into o [9, 5] of bf16":   func(c *cached) { c.o = newRegion(BF16, 9, 5, 0) },
	} {
		c := newCached(newGenerator(FP32, 0), 3, 9, 5, []int{7, 1, 4}, []int{1, 1, 1})
		change(c)
		mustPanic(t, want, func() { c.run(NewExec()) })
	}
}
