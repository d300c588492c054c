package tensor

// Checksums of training state. The checksum of a tensor is the sum of its words modulo 2^32: of the
// bits of its elements, or of every four bytes of codes. A change of one word always changes it,
// and the checksums of two parts add up to that of both. Kernels of the optimizer take checksums of
// what they read and write anyway.

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"spmoe/tensor/internal/vec"
)

// Sum is a checksum that several threads add to.
type Sum = atomic.Uint32

// MostVectors is the maximum number of vectors of an optimizer's state, with the master weights.
const MostVectors = 4

// UpdateSums are the checksums of what an update of weights reads and writes. Vectors are those of
// the state, the master weights first. Work is that of the new weights in the type of the working
// weights.
type UpdateSums struct {
	Read, Wrote [MostVectors]Sum
	Grad, Work  Sum
}

// Words adds the checksum of x to sum.
func Words(ex *Exec, sum *Sum, x Tensor) {
	forRows(ex, runs(x.Len()), x.Len(), wordsJob{flat(x), sum}, wordsRuns)
}

// wordsJob holds the arguments of Words.
type wordsJob struct {
	x   Tensor
	sum *Sum
}

func wordsRuns(_ *Exec, job wordsJob, lo, hi int) {
	addWords(job.sum, job.x.Slice(lo*runLen, min(hi*runLen, job.x.Len())))
}

// kernelSums has memory for the sums of kernel calls. Kernels are called through tables, so the
// sums would leave the stack.
var kernelSums = sync.Pool{New: func() any { return new(vec.AdamWSums) }}

// addWords adds the checksum of x, in one dimension, to sum. A nil sum needs none.
func addWords(sum *Sum, x Tensor) {
	if sum == nil || x.Len() == 0 {
		return
	}
	sums := kernelSums.Get().(*vec.AdamWSums)
	lanes := &sums.ReadMaster
	*lanes = vec.Lanes{}
	switch x.dtype {
	case BF16:
		vec.WordsBF16(x.Mat().bf16Row(0), lanes)
	case FP32:
		vec.Words(x.F32(), lanes)
	default:
		b := x.Bytes()
		whole := len(b) / 4
		for i, last := range b[4*whole:] {
			lanes[0] += uint32(last) << (8 * i)
		}
		vec.Words(unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), whole), lanes)
	}
	sum.Add(lanes.Sum())
	kernelSums.Put(sums)
}

// add adds the sums of a call of AdamW. work is in FP32 or BF16.
func (s *UpdateSums) add(sums *vec.AdamWSums, work DType) {
	for i, lanes := range [...]*vec.Lanes{&sums.ReadMaster, &sums.ReadExpAvg, &sums.ReadExpAvgSq} {
		s.Read[i].Add(lanes.Sum())
	}
	for i, lanes := range [...]*vec.Lanes{&sums.WroteMaster, &sums.WroteExpAvg, &sums.WroteExpAvgSq} {
		s.Wrote[i].Add(lanes.Sum())
	}
	s.Grad.Add(sums.ReadGrad.Sum())
	if work == BF16 {
		s.Work.Add(sums.WroteWork.Sum())
	} else {
		s.Work.Add(sums.WroteMaster.Sum())
	}
}

// RoundWeights rounds FP32 master weights to the working weights, in FP32 or BF16. It adds the
// checksum of either to a sum.
func RoundWeights(ex *Exec, work, master Tensor, ofWork, ofMaster *Sum) {
	job := roundJob{flat(work), flat(master), ofWork, ofMaster}
	forRows(ex, runs(master.Len()), master.Len(), job, roundRuns)
}

// roundJob holds the arguments of RoundWeights.
type roundJob struct {
	work, master     Tensor
	ofWork, ofMaster *Sum
}

// roundRuns rounds run by run: the sums find both in the first-level cache.
func roundRuns(_ *Exec, job roundJob, lo, hi int) {
	for ; lo < hi; lo++ {
		first, last := lo*runLen, min((lo+1)*runLen, job.master.Len())
		work, master := job.work.Slice(first, last), job.master.Slice(first, last)
		if work.dtype == BF16 {
			vec.Round(work.Mat().bf16Row(0), master.F32())
		} else {
			copy(work.F32(), master.F32())
		}
		addWords(job.ofWork, work)
		addWords(job.ofMaster, master)
	}
}
