package tensor

import (
	"fmt"
	"slices"
	"testing"
)

// TestRowKernelsOnThreads runs every row kernel with several numbers of threads, on matrices with
// gaps between their rows and without, and large enough for all of them.
func TestRowKernelsOnThreads(t *testing.T) {
	for _, dtype := range floats {
		for _, gap := range []int{0, 5} {
			t.Run(fmt.Sprintf("%v/gap=%d", dtype, gap), func(t *testing.T) {
				j := newRowJob(dtype, gap)
				want := j.on(1)
				for _, threads := range []int{2, 5} {
					for name, got := range j.on(threads) {
						if !slices.Equal(got, want[name]) {
							t.Errorf("%d threads: %s has other bits than on one", threads, name)
						}
					}
				}
			})
		}
	}
}

// on returns the bytes of the results of all row kernels.
func (j *rowJob) on(threads int) map[string][]byte {
	ex := NewParallelExec(threads)
	defer ex.Close()
	results := map[string][]byte{}
	for name, run := range j.kernels(ex) {
		j.reset()
		sum := run()
		var all []byte
		for _, x := range j.all() {
			all = append(all, x.Bytes()...)
		}
		results[name] = fmt.Append(all, sum)
	}
	return results
}

// rowJob holds the operands of all row kernels.
type rowJob struct {
	loss            CrossEntropy
	sums            UpdateSums
	half            [5]Tensor // of the tested type
	wide, dtable    Tensor    // FP32
	master, m, v, g Tensor
	work            Tensor // BF16
	w, dw, rstd     Tensor
	seeds           []Tensor // initial values of all tensors
	ids             []int32
	cols            int
	table           *RotaryTable
}

func newRowJob(dtype DType, gap int) *rowJob {
	const rows, cols, vocabulary = 300, 140, 7
	j := &rowJob{cols: cols, table: NewRotaryTable(100, rotaryFrequencies(cols/2), 1)}
	for i := range j.half {
		j.half[i] = random(uint64(i), dtype, rows, cols+gap)
	}
	j.wide, j.dtable = random(6, FP32, rows, cols+gap), random(7, FP32, vocabulary, cols+gap)
	j.work = New(BF16, 100_001)
	j.master, j.m, j.v, j.g = random(8, FP32, 100_001), random(9, FP32, 100_001), New(FP32, 100_001), random(10, FP32, 100_001)
	j.w, j.dw, j.rstd = random(11, FP32, cols), New(FP32, cols), New(FP32, rows)
	for r := range rows {
		j.ids = append(j.ids, int32(r*r%vocabulary))
		j.rstd.F32()[r] = float32(r%5) + 0.5
	}
	for _, x := range j.all() {
		seed := New(x.DType(), x.Dims()...)
		copy(seed.Bytes(), x.Bytes())
		j.seeds = append(j.seeds, seed)
	}
	return j
}

func (j *rowJob) all() []Tensor {
	return append(j.half[:], j.wide, j.dtable, j.master, j.m, j.v, j.work, j.dw, j.rstd)
}

func (j *rowJob) state() AdamWState { return AdamWState{Master: j.master, ExpAvg: j.m, ExpAvgSq: j.v} }

func (j *rowJob) reset() {
	for i, x := range j.all() {
		copy(x.Bytes(), j.seeds[i].Bytes())
	}
}

// kernels are the row kernels by name; those that sum return it.
func (j *rowJob) kernels(ex *Exec) map[string]func() float64 {
	view := func(x Tensor) Matrix { return x.Mat().ColSlice(0, j.cols) }
	a, b, c, d, e := view(j.half[0]), view(j.half[1]), view(j.half[2]), view(j.half[3]), view(j.half[4])
	wide, dtable := view(j.wide), view(j.dtable)
	w, dw, rstd := j.w.F32(), j.dw.F32(), j.rstd.F32()
	quarter := j.cols / 4
	uses := []Embedded{{a, j.ids}, {b, j.ids}}
	silent := func(f func()) func() float64 {
		return func() float64 {
			f()
			return 0
		}
	}
	return map[string]func() float64{
		"Convert":          silent(func() { Convert(ex, a, wide) }),
		"Convert back":     silent(func() { Convert(ex, wide, a) }),
		"Add":              silent(func() { Add(ex, a, b, c) }),
		"SwiGLU":           silent(func() { SwiGLU(ex, a, b, c) }),
		"SwiGLUBackward":   silent(func() { SwiGLUBackward(ex, b, c, a, b, c) }),
		"SumBlocks":        silent(func() { SumBlocks(ex, a.ColSlice(0, quarter), b, 4, quarter) }),
		"Sigmoid":          silent(func() { Sigmoid(ex, wide) }),
		"Softmax":          silent(func() { Softmax(ex, wide) }),
		"RMSNorm":          silent(func() { RMSNorm(ex, a, rstd, b, w, 1e-6) }),
		"RMSNormBackward":  silent(func() { RMSNormBackward(ex, a, dw, b, c, w, rstd, false, 70) }),
		"RMSNormBackward+": silent(func() { RMSNormBackward(ex, d, dw, b, e, w, rstd, true, 70) }),
		"Rotate":           silent(func() { j.table.Rotate(ex, a, 100) }),
		"RotateBack":       silent(func() { j.table.RotateBack(ex, a, 97) }),
		"Embed":            silent(func() { Embed(ex, a, dtable, j.ids) }),
		"EmbedBackward":    silent(func() { EmbedBackward(ex, dtable, 70, uses) }),
		"CrossEntropy":     func() float64 { return wholeCrossEntropy(ex, &j.loss, wide, j.ids, 0.1) },
		"AdamW": silent(func() {
			AdamW(ex, j.state(), j.state(), j.work, j.g, NewAdamWStep(1e-3, 0.9, 0.95, 1e-8, 0.1, 1, 3), &j.sums)
		}),
		"SumSquares": func() float64 { return total(SumSquares(ex, j.master, 1000)) },
		"Words": func() float64 {
			j.sums.Grad.Store(0)
			Words(ex, &j.sums.Grad, j.master)
			return float64(j.sums.Grad.Load())
		},
	}
}

func TestRowKernelsOnThreadsAllocateNothing(t *testing.T) {
	ex := NewParallelExec(2)
	defer ex.Close()
	for name, run := range newRowJob(BF16, 0).kernels(ex) {
		run()
		if n := testing.AllocsPerRun(10, func() { run() }); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
