package mx

// Quantization to the formats of OCP MX in plain Go. This is the definition: the kernels of every
// tier match it bit for bit.

import (
	"math"

	"spmoe/tensor"
	"spmoe/tensor/format"
)

// quantizePortable quantizes x, the given region of q.x.
func (q *quantizer) quantizePortable(ex *tensor.Exec, x tensor.Matrix, at region) {
	copied := ex.New(tensor.FP32, at.rows, at.cols)
	if ex.Dry() {
		return
	}
	tensor.Convert(ex, copied.Mat(), x)
	if q.rows.requested() {
		q.portableRows(copied.F32(), at)
	}
	if q.cols.requested() {
		q.portableCols(copied.F32(), at)
	}
}

func (q *quantizer) portableRows(values []float32, at region) {
	codes, scales := q.rows.codesAt(at), q.rows.scalesAt(at)
	stride, perRow := q.rows.Cols(), q.rows.Scales.Dim(1)
	for r := range at.rows {
		for c := 0; c < at.cols; c += format.MXBlock {
			n := min(format.MXBlock, at.cols-c)
			scales[r*perRow+c/format.MXBlock] = q.quantizeBlock(codes[r*stride+c:][:n], values[r*at.cols+c:][:n])
		}
	}
}

func (q *quantizer) portableCols(values []float32, at region) {
	codes, scales, stride := q.cols.codesAt(at), q.cols.scalesAt(at), q.cols.Cols()
	var column [format.MXBlock]float32
	var out [format.MXBlock]uint8
	for c := range at.cols {
		for r := range at.rows {
			column[r] = values[r*at.cols+c]
		}
		scales[c] = q.quantizeBlock(out[:at.rows], column[:at.rows])
		for r := range at.rows {
			codes[r*stride+c] = out[r]
		}
	}
}

// quantizeBlock writes the codes of one block and returns its scale.
func (q *quantizer) quantizeBlock(codes []uint8, values []float32) uint8 {
	amax := uint32(0)
	for _, v := range values {
		amax = max(amax, math.Float32bits(v)&^(1<<31))
	}
	scale := q.rule.scale(amax)
	if scale == NaNScale {
		fill(codes, q.element.NaN())
		return scale
	}
	q.element.EncodeScaled(codes, values, math.Float32frombits(powerOfTwo(254-int(scale))))
	return scale
}

func fill(codes []uint8, with uint8) {
	for i := range codes {
		codes[i] = with
	}
}
