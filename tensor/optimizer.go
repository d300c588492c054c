package tensor

import (
	"fmt"
	"unsafe"

	"spmoe/tensor/internal/vec"
)

// AdamWStep holds the constants of one optimizer step. See NewAdamWStep.
type AdamWStep = vec.AdamWStep

// NewAdamWStep computes the constants of step number step, counted from 1, of AdamW with decoupled
// weight decay in the form of torch.optim.AdamW. Gradients are multiplied by gradScale first.
func NewAdamWStep(lr, beta1, beta2, eps, weightDecay, gradScale float64, step int) AdamWStep {
	return vec.NewAdamWStep(lr, beta1, beta2, eps, weightDecay, gradScale, step)
}

// AdamWState holds the FP32 master weights that AdamW updates and the two moments of their
// gradients. All have one length.
type AdamWState struct{ Master, ExpAvg, ExpAvgSq Tensor }

// Slice returns elements [lo, hi).
func (s AdamWState) Slice(lo, hi int) AdamWState {
	return AdamWState{s.Master.Slice(lo, hi), s.ExpAvg.Slice(lo, hi), s.ExpAvgSq.Slice(lo, hi)}
}

// streamedBytes is the number of bytes from which AdamW writes its results past the caches. The
// next reader would find little of that much data in a cache. An ordinary store also reads the
// cache line first.
const streamedBytes = 8 << 20

// AdamW updates src by the FP32 gradient and writes the result to dst, which may be src. It also
// writes the new master weights to work, in FP32 or BF16. All tensors have one length.
//
// AdamW panics if a tensor of dst overlaps another tensor of dst. It also panics if one partly
// overlaps an input. A large dst other than src is fastest if its tensors begin at multiples of
// Alignment.
func AdamW(ex *Exec, dst, src AdamWState, work, grad Tensor, step AdamWStep) {
	job := adamWJob{dst: dst.f32(), src: src.f32(), work: work, grad: grad.F32(), step: step}
	job.check()
	job.streams = dst != src && 3*4*grad.Len() > streamedBytes
	forRows(ex, runs(len(job.grad)), len(job.grad), job, adamWRuns)
	if job.streams {
		Convert(ex, work.Mat(), dst.Master.Mat())
	}
}

func (s AdamWState) f32() vec.AdamWState {
	return vec.AdamWState{Master: s.Master.F32(), ExpAvg: s.ExpAvg.F32(), ExpAvgSq: s.ExpAvgSq.F32()}
}

// adamWJob holds the arguments of AdamW.
type adamWJob struct {
	dst, src vec.AdamWState
	work     Tensor
	grad     []float32
	step     AdamWStep
	streams  bool // dst is written past the caches
}

// check panics if lengths differ. It also panics if the memory written for one element may be read
// or written for another.
func (u *adamWJob) check() {
	all := [...]struct {
		name string
		x    []float32
	}{
		{"dst.Master", u.dst.Master}, {"dst.ExpAvg", u.dst.ExpAvg}, {"dst.ExpAvgSq", u.dst.ExpAvgSq},
		{"src.Master", u.src.Master}, {"src.ExpAvg", u.src.ExpAvg}, {"src.ExpAvgSq", u.src.ExpAvgSq}, {"grad", u.grad},
	}
	const written = 3
	for _, a := range all {
		if len(a.x) != len(u.grad) {
			panic(fmt.Sprintf("tensor: AdamW with a %s of %d elements and a gradient of %d", a.name, len(a.x), len(u.grad)))
		}
	}
	if u.work.Len() != len(u.grad) {
		panic(fmt.Sprintf("tensor: AdamW with %d working weights and a gradient of %d", u.work.Len(), len(u.grad)))
	}
	for i, a := range all[:written] {
		for j := i + 1; j < len(all); j++ {
			b := all[j]
			if overlap(a.x, b.x) && (j < written || &a.x[0] != &b.x[0]) {
				panic(fmt.Sprintf("tensor: AdamW with %s overlapping %s", a.name, b.name))
			}
		}
	}
}

// overlap reports whether two slices of one length share memory.
func overlap(x, y []float32) bool {
	if len(x) == 0 {
		return false
	}
	a, b := uintptr(unsafe.Pointer(&x[0])), uintptr(unsafe.Pointer(&y[0]))
	return max(a, b)-min(a, b) < 4*uintptr(len(x))
}

// roundedRuns is the number of runs to update before their weights are rounded. They are then still
// in the first-level cache.
const roundedRuns = 2

func adamWRuns(ex *Exec, u adamWJob, lo, hi int) {
	if u.streams {
		vec.AdamWStreaming(stateRuns(u.dst, lo, hi), stateRuns(u.src, lo, hi), runSlice(u.grad, lo, hi), u.step)
		return
	}
	for ; lo < hi; lo += roundedRuns {
		end := min(lo+roundedRuns, hi)
		dst := stateRuns(u.dst, lo, end)
		vec.AdamW(dst, stateRuns(u.src, lo, end), runSlice(u.grad, lo, end), u.step)
		if u.work.DType() == BF16 {
			vec.Round(runSlice(u.work.Mat().bf16Row(0), lo, end), dst.Master)
		} else {
			copy(runSlice(u.work.F32(), lo, end), dst.Master)
		}
	}
}

func stateRuns(s vec.AdamWState, lo, hi int) vec.AdamWState {
	return vec.AdamWState{Master: runSlice(s.Master, lo, hi), ExpAvg: runSlice(s.ExpAvg, lo, hi), ExpAvgSq: runSlice(s.ExpAvgSq, lo, hi)}
}

// SumSquares divides an FP32 tensor into pieces of piece elements and returns the sum of squares of
// each, in float64. The last piece may be shorter. The result is valid until the next kernel of ex.
func SumSquares(ex *Exec, x Tensor, piece int) []float64 {
	v := x.F32()
	job := squares{x: v, piece: piece, sums: ex.scratchSums((len(v) + piece - 1) / piece)}
	forRows(ex, len(job.sums), len(v), job, sumSquaresPieces)
	return job.sums
}

// squares holds the arguments of SumSquares and the sum of each piece.
type squares struct {
	x     []float32
	piece int
	sums  []float64
}

func sumSquaresPieces(_ *Exec, s squares, lo, hi int) {
	for p := lo; p < hi; p++ {
		s.sums[p] = vec.SumSquares(s.x[p*s.piece : min((p+1)*s.piece, len(s.x))])
	}
}
