package tensor

import (
	"slices"
	"testing"
)

// sums is an argument of Parallel: out[i] becomes the sum of the first i+1 of in.
type sums struct{ in, out []float32 }

func (s sums) fill(ex *Exec, lo, hi int) {
	copied := ex.New(FP32, len(s.in)).F32() // of the thread's own arena
	copy(copied, s.in)
	for i := lo; i < hi; i++ {
		s.out[i] = 0
		for _, v := range copied[:i+1] {
			s.out[i] += v
		}
	}
}

func fillSums(ex *Exec, s sums, lo, hi int) { s.fill(ex, lo, hi) }

// TestParallel runs parts on 1 to 4 threads, with enough work and with too little to wake any, and
// wants the same results, nothing allocated when warm, and the arenas as they were.
func TestParallel(t *testing.T) {
	in := make([]float32, 50)
	for i := range in {
		in[i] = 1 / float32(i+1)
	}
	want := sums{in, make([]float32, len(in))}
	want.fill(NewExec(), 0, len(in))
	for threads := 1; threads <= 4; threads++ {
		ex := NewParallelExec(threads)
		defer ex.Close()
		for _, work := range []int{0, leastWork} {
			for _, n := range []int{0, 1, 2, 3, 50} {
				s := sums{in, make([]float32, len(in))}
				step := func() { Parallel(ex, n, work, s, fillSums) }
				step()
				if !slices.Equal(s.out[:n], want.out[:n]) || !slices.Equal(s.out[n:], make([]float32, len(in)-n)) {
					t.Errorf("%d threads, work %d: %d items gave %v", threads, work, n, s.out)
				}
				if n := testing.AllocsPerRun(40, step); n != 0 {
					t.Errorf("%d threads, work %d: %v allocations", threads, work, n)
				}
			}
		}
		if ex.used() != 0 {
			t.Errorf("%d threads: the arena still holds %d bytes", threads, ex.used())
		}
	}
}

// TestParallelOfManyTypes: calls with arguments of different types, nested ones too, do not mix
// them up.
func TestParallelOfManyTypes(t *testing.T) {
	ex := NewParallelExec(3)
	defer ex.Close()
	var got [4][3]int
	for range 3 {
		Parallel(ex, 3, leastWork, &got, func(ex *Exec, out *[4][3]int, lo, hi int) {
			for i := lo; i < hi; i++ {
				out[0][i]++
				Parallel(ex, 3, leastWork, out[1:], func(_ *Exec, out [][3]int, lo, hi int) {
					for j := lo; j < hi; j++ {
						out[i][j]++
					}
				})
			}
		})
	}
	if want := [4][3]int{{3, 3, 3}, {3, 3, 3}, {3, 3, 3}, {3, 3, 3}}; got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if n := len(ex.queue.tasks); n != 1 {
		t.Errorf("%d tasks are kept, want that of the outer calls only", n)
	}
}
