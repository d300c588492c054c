package ep

// The work of a one-sided CombineBackward: a token's gradient goes to each of its choices times
// that choice's weight, quantized on the way for the MXFP8 wire.

import (
	"spmoe/mx"
	"spmoe/tensor"
)

// putScaled sets the rows at each token's places to its row times their weights, and computes the
// gradients of the weights.
func putScaled(ex *tensor.Exec, t transfer, lo, hi int) {
	wide := ex.New(tensor.FP32, 1, t.here.Dim(1))
	scratch := ex.New(tensor.FP32, 1, t.here.Dim(1))
	out := newRowSender(ex, &t)
	if lo == hi { // in a dry run, for the memory of the kernel
		out.n = min(out.rows.Dim(0), t.h.Sent)
		out.quantize(ex)
		return
	}
	clear(t.dweights[lo*t.h.slots : hi*t.h.slots])
	row := scratch.F32()
	for token := lo; token < hi; token++ {
		d := load(wide, t.here, token)
		t.eachChoice(token, func(i int, rank, place int32) {
			y := row
			if t.y.dtype == tensor.BF16 {
				tensor.Widen(y, t.y.bf16(rank, place))
			} else {
				y = t.y.f32(rank, place)
			}
			t.dweights[i] = tensor.Dot(d, y)
			out.add(ex, rank, place, t.weights[i], d)
		})
	}
	out.send(ex)
	out.stored.close()
}

// rowSender collects rows to send, in the type of y. It collects several if they are to be
// quantized.
type rowSender struct {
	rows   tensor.Tensor // [1 or mostBatched, H]
	codes  mx.Tensor     // of rows; zero for the plain wire
	stored sender
	to     [mostBatched]struct{ rank, place int32 }
	n      int
}

func newRowSender(ex *tensor.Exec, t *transfer) rowSender {
	hidden, dtype := t.y.hidden, t.y.dtype
	if t.scales.hidden == 0 {
		rows := ex.New(dtype, 1, hidden)
		return rowSender{rows: rows, stored: newSender(t, rows, tensor.Tensor{})}
	}
	codes := mx.New(ex, wireCast.Format, mx.AlongRows, mostBatched, hidden)
	return rowSender{rows: ex.New(dtype, mostBatched, hidden), codes: codes, stored: newSender(t, codes.Codes, codes.Scales)}
}

// add appends weight·d, rounded to the type of rows, for a place of a rank.
func (o *rowSender) add(ex *tensor.Exec, rank, place int32, weight float32, d []float32) {
	if at := o.n * len(d); o.rows.DType() == tensor.BF16 {
		tensor.ScaleBF16(o.rows.BF16()[at:][:len(d)], weight, d)
	} else {
		tensor.Scale(o.rows.F32()[at:][:len(d)], weight, d)
	}
	o.to[o.n].rank, o.to[o.n].place = rank, place
	if o.n++; o.n == o.rows.Dim(0) {
		o.send(ex)
	}
}

// quantize sets the codes of the collected rows, if they travel as codes.
func (o *rowSender) quantize(ex *tensor.Exec) {
	if o.codes.Codes.Valid() && o.n > 0 {
		mx.Quantize(ex, o.codes.RowSlice(0, o.n), o.rows.Mat().RowSlice(0, o.n), wireCast.Mode)
	}
}

// send stores the collected rows.
func (o *rowSender) send(ex *tensor.Exec) {
	o.quantize(ex)
	for i, to := range o.to[:o.n] {
		o.stored.store(i, to.rank, to.place)
	}
	o.n = 0
}
