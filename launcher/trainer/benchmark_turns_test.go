package trainer

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"spmoe/launcher/spmd"
	"spmoe/launcher/trainer/config"
)

// Jobs take their turns in order, whoever leaves, in its turn or out of it.
func TestTurns(t *testing.T) {
	for _, test := range []struct {
		turns []int // that each job takes
		want  string
	}{
		{[]int{3}, "0.0 0.1 0.2"},
		{[]int{2, 2, 2}, "0.0 1.0 2.0 0.1 1.1 2.1"},
		{[]int{1, 3, 2}, "0.0 1.0 2.0 1.1 2.1 1.2"},
		{[]int{2, 0, 1}, "0.0 2.0 0.1"},
	} {
		all := NewTurns(len(test.turns))
		var took []string
		var jobs sync.WaitGroup
		for job, n := range test.turns {
			turn := all.Of(job)
			if n == 0 {
				turn.Leave()
				continue
			}
			jobs.Go(func() {
				turn.Begin()
				defer turn.Leave()
				for i := range n {
					if i > 0 {
						turn.pass()
						turn.await(i)
					}
					took = append(took, fmt.Sprintf("%d.%d", job, i))
				}
			})
		}
		jobs.Wait()
		if got := strings.Join(took, " "); got != test.want {
			t.Errorf("%v turns: %s, want %s", test.turns, got, test.want)
		}
	}
}

// A job that takes turns with others makes the steps that it makes alone.
func TestBenchmarkInTurns(t *testing.T) {
	t.Parallel()
	losses := func(turns *Turns) []float64 {
		all := make([]float64, 2)
		var jobs sync.WaitGroup
		for i, p := range []string{"bf16", "mxfp8"} {
			run := func() {
				turn := (*Turn)(nil)
				if turns != nil {
					turn = turns.Of(i)
				}
				turn.Begin()
				defer turn.Leave()
				job, err := Prepare(tiny(t, func(c *config.Config) { c.Precision = p }), 2, "", &reports{})
				if err != nil {
					t.Error(err)
					return
				}
				b, err := job.Benchmark(t.Context(), spmd.Goroutines{N: 2}, 1, 3, turn)
				if err != nil || len(b.Steps) != 3 {
					t.Errorf("%d steps, %v", len(b.Steps), err)
				}
				all[i] = b.Loss
			}
			if turns == nil {
				run()
			} else {
				jobs.Go(run)
			}
		}
		jobs.Wait()
		return all
	}
	if alone, together := losses(nil), losses(NewTurns(2)); !slices.Equal(alone, together) {
		t.Errorf("the last losses are %v alone and %v in turns", alone, together)
	}
}
