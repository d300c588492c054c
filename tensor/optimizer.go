package tensor

import (
	"fmt"
	"unsafe"

	"spmoe/tensor/internal/vec"
)

// AdamWStep holds the constants of one optimizer step; see NewAdamWStep.
type AdamWStep = vec.AdamWStep

// NewAdamWStep prepares step number step, counted from 1, of AdamW with decoupled weight
// decay, in the form of torch.optim.AdamW. Gradients are multiplied by gradScale first.
func NewAdamWStep(lr, beta1, beta2, eps, weightDecay, gradScale float64, step int) AdamWStep {
	return vec.NewAdamWStep(lr, beta1, beta2, eps, weightDecay, gradScale, step)
}

// AdamWState is the FP32 master weights that AdamW updates and both moments of their gradients, all
// of one length.
type AdamWState struct{ Master, ExpAvg, ExpAvgSq Tensor }

// Slice returns elements [lo, hi).
func (s AdamWState) Slice(lo, hi int) AdamWState {
	return AdamWState{s.Master.Slice(lo, hi), s.ExpAvg.Slice(lo, hi), s.ExpAvgSq.Slice(lo, hi)}
}

// streamedBytes is how much AdamW must write elsewhere to write it past the caches: whoever reads
// it next would find little of it there, and a store that allocates a line reads it first.
const streamedBytes = 8 << 20

// AdamW sets dst to what src becomes by the FP32 gradient, and work, FP32 or BF16, to the new
// master weights. All tensors are of one length. dst may be src. A tensor of dst that overlaps
// another of dst, or one that is read without being that very memory, panics. A large dst that is
// not src is fastest when its tensors begin at multiples of Alignment.
func AdamW(ex *Exec, dst, src AdamWState, work, grad Tensor, step AdamWStep) {
	job := update{dst: dst.f32(), src: src.f32(), work: work, grad: grad.F32(), step: step}
	job.check()
	job.streams = dst != src && 3*4*grad.Len() > streamedBytes
	rowParts(ex, runs(len(job.grad)), len(job.grad), job, updateRuns)
	if job.streams {
		Convert(ex, work.Mat(), dst.Master.Mat())
	}
}

func (s AdamWState) f32() vec.AdamWState {
	return vec.AdamWState{Master: s.Master.F32(), ExpAvg: s.ExpAvg.F32(), ExpAvgSq: s.ExpAvgSq.F32()}
}

// update is the arguments of AdamW.
type update struct {
	dst, src vec.AdamWState
	work     Tensor
	grad     []float32
	step     AdamWStep
	streams  bool // what is written is not in the caches afterwards
}

// check panics if lengths differ, or if what is written for one element may be read or written for
// another.
func (u *update) check() {
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
		panic(fmt.Sprintf("tensor: AdamW with %d weights to work with and a gradient of %d", u.work.Len(), len(u.grad)))
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

// overlap says whether two slices of one length have memory in common.
func overlap(x, y []float32) bool {
	if len(x) == 0 {
		return false
	}
	a, b := uintptr(unsafe.Pointer(&x[0])), uintptr(unsafe.Pointer(&y[0]))
	return max(a, b)-min(a, b) < 4*uintptr(len(x))
}

// roundedRuns is how many runs are updated before their weights are rounded: they are still in the
// first-level cache.
const roundedRuns = 2

func updateRuns(ex *Exec, u update, lo, hi int) {
	if u.streams {
		vec.AdamWStreaming(stateRuns(u.dst, lo, hi), stateRuns(u.src, lo, hi), ofRuns(u.grad, lo, hi), u.step)
		return
	}
	for ; lo < hi; lo += roundedRuns {
		end := min(lo+roundedRuns, hi)
		dst := stateRuns(u.dst, lo, end)
		vec.AdamW(dst, stateRuns(u.src, lo, end), ofRuns(u.grad, lo, end), u.step)
		if u.work.DType() == BF16 {
			vec.Round(ofRuns(u.work.Mat().bf16Row(0), lo, end), dst.Master)
		} else {
			copy(ofRuns(u.work.F32(), lo, end), dst.Master)
		}
	}
}

func stateRuns(s vec.AdamWState, lo, hi int) vec.AdamWState {
	return vec.AdamWState{Master: ofRuns(s.Master, lo, hi), ExpAvg: ofRuns(s.ExpAvg, lo, hi), ExpAvgSq: ofRuns(s.ExpAvgSq, lo, hi)}
}

// SumSquares returns the sums of squares, in float64, of all pieces of that many elements of an
// FP32 tensor, the last of which may be shorter. The result is valid until the next kernel of ex.
func SumSquares(ex *Exec, x Tensor, piece int) []float64 {
	v := x.F32()
	job := squares{x: v, piece: piece, sums: ex.scratchSums((len(v) + piece - 1) / piece)}
	rowParts(ex, len(job.sums), len(v), job, sumSquaresPieces)
	return job.sums
}

// squares is the arguments of SumSquares, and the sum of each piece.
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
