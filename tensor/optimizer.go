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

// AdamWState holds the FP32 master weights that AdamW updates, and the two moments of their
// gradients, both in FP32 or both in BF16. All have one length.
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
// writes the new master weights to work, in FP32 or BF16. All tensors have one length. It adds the
// checksums of what it reads and writes to sums.
//
// The arithmetic is FP32. Moments in BF16 are widened, and the weights are updated by the new
// moments before these are rounded to nearest even.
//
// AdamW panics if a tensor of dst overlaps another tensor of dst. It also panics if one partly
// overlaps an input. A large dst other than src is fastest if its tensors begin at multiples of
// Alignment.
func AdamW(ex *Exec, dst, src AdamWState, work, grad Tensor, step AdamWStep, sums *UpdateSums) {
	job := adamWJob{dst: dst.flat(), src: src.flat(), work: flat(work), grad: grad, step: step, sums: sums}
	job.check()
	job.streams = dst != src && dst.bytes() > streamedBytes
	forRows(ex, runs(grad.Len()), grad.Len(), job, adamWRuns)
	if job.streams {
		Convert(ex, job.work.Mat(), job.dst.Master.Mat())
	}
}

// flat returns a tensor in one dimension.
func flat(x Tensor) Tensor { return x.Reshape(x.Len()) }

func (s AdamWState) flat() AdamWState {
	return AdamWState{flat(s.Master), flat(s.ExpAvg), flat(s.ExpAvgSq)}
}

func (s AdamWState) bytes() (n int) {
	for _, x := range [...]Tensor{s.Master, s.ExpAvg, s.ExpAvgSq} {
		n += x.Len() * x.dtype.Size()
	}
	return n
}

func (s AdamWState) f32() vec.AdamWState {
	return vec.AdamWState{Master: s.Master.F32(), ExpAvg: s.ExpAvg.F32(), ExpAvgSq: s.ExpAvgSq.F32()}
}

func (s AdamWState) bf16() vec.AdamWStateBF16 {
	return vec.AdamWStateBF16{Master: s.Master.F32(), ExpAvg: s.ExpAvg.Mat().bf16Row(0), ExpAvgSq: s.ExpAvgSq.Mat().bf16Row(0)}
}

// adamWJob holds the arguments of AdamW.
type adamWJob struct {
	dst, src   AdamWState
	work, grad Tensor
	step       AdamWStep
	streams    bool // dst is written past the caches
	sums       *UpdateSums
}

// check panics if lengths or types differ. It also panics if the memory written for one element may
// be read or written for another.
func (u *adamWJob) check() {
	moments := u.src.ExpAvg.dtype
	all := [...]struct {
		name  string
		x     Tensor
		dtype DType
	}{
		{"dst.Master", u.dst.Master, FP32}, {"dst.ExpAvg", u.dst.ExpAvg, moments}, {"dst.ExpAvgSq", u.dst.ExpAvgSq, moments},
		{"src.Master", u.src.Master, FP32}, {"src.ExpAvg", u.src.ExpAvg, moments}, {"src.ExpAvgSq", u.src.ExpAvgSq, moments},
		{"grad", u.grad, FP32},
	}
	const written = 3
	if moments != FP32 && moments != BF16 {
		panic(fmt.Sprintf("tensor: AdamW with moments in %v", moments))
	}
	for _, a := range all {
		if a.x.Len() != u.grad.Len() {
			panic(fmt.Sprintf("tensor: AdamW with a %s of %d elements and a gradient of %d", a.name, a.x.Len(), u.grad.Len()))
		}
		if a.x.dtype != a.dtype {
			panic(fmt.Sprintf("tensor: AdamW with a %s in %v, want %v", a.name, a.x.dtype, a.dtype))
		}
	}
	if u.work.Len() != u.grad.Len() {
		panic(fmt.Sprintf("tensor: AdamW with %d working weights and a gradient of %d", u.work.Len(), u.grad.Len()))
	}
	for i, a := range all[:written] {
		for j := i + 1; j < len(all); j++ {
			b := all[j]
			sameElements := a.x.data == b.x.data && a.dtype == b.dtype
			if overlap(a.x.Bytes(), b.x.Bytes()) && (j < written || !sameElements) {
				panic(fmt.Sprintf("tensor: AdamW with %s overlapping %s", a.name, b.name))
			}
		}
	}
}

// overlap reports whether two slices share memory.
func overlap(x, y []byte) bool {
	a, b := uintptr(unsafe.Pointer(unsafe.SliceData(x))), uintptr(unsafe.Pointer(unsafe.SliceData(y)))
	return a < b+uintptr(len(y)) && b < a+uintptr(len(x))
}

// roundedRuns is the number of runs to update before their weights are rounded. They are then still
// in the first-level cache.
const roundedRuns = 2

func adamWRuns(_ *Exec, u adamWJob, lo, hi int) {
	n := u.grad.Len()
	first, last := min(lo*runLen, n), min(hi*runLen, n)
	dst, src := u.dst.Slice(first, last), u.src.Slice(first, last)
	work, grad := u.work.Slice(first, last), u.grad.F32()[first:last]
	sums := kernelSums.Get().(*vec.AdamWSums)
	*sums = vec.AdamWSums{}
	switch narrow := src.ExpAvg.dtype == BF16; {
	case narrow && u.streams:
		vec.AdamWStreamingBF16(dst.bf16(), src.bf16(), grad, u.step, sums)
	case u.streams:
		vec.AdamWStreaming(dst.f32(), src.f32(), grad, u.step, sums)
	case narrow:
		updateRounded(vec.AdamWBF16, dst.bf16(), src.bf16(), dst.Master.F32(), grad, work, u.step, sums)
	default:
		updateRounded(vec.AdamW, dst.f32(), src.f32(), dst.Master.F32(), grad, work, u.step, sums)
	}
	u.sums.add(sums, work.dtype)
	kernelSums.Put(sums)
}

// vecState is a state of either type in package vec.
type vecState[S any] interface{ Slice(lo, hi int) S }

// updateRounded updates some runs at a time and then rounds their master weights to work.
func updateRounded[S vecState[S]](update func(dst, src S, grad []float32, c AdamWStep, sums *vec.AdamWSums), dst, src S, master, grad []float32, work Tensor, step AdamWStep, sums *vec.AdamWSums) {
	var half []uint16
	if work.dtype == BF16 {
		half = work.Mat().bf16Row(0)
	}
	for lo := 0; lo < len(grad); lo += roundedRuns * runLen {
		hi := min(lo+roundedRuns*runLen, len(grad))
		update(dst.Slice(lo, hi), src.Slice(lo, hi), grad[lo:hi], step, sums)
		if half != nil {
			vec.Round(half[lo:hi], master[lo:hi])
		} else {
			copy(work.F32()[lo:hi], master[lo:hi])
		}
	}
}

// SumSquares divides an FP32 tensor into pieces of piece elements and returns the sum of squares of
// each, in float64. The last piece may be shorter. The result is valid until the next kernel of ex.
func SumSquares(ex *Exec, x Tensor, piece int) []float64 {
	if ex.dry {
		return nil
	}
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
