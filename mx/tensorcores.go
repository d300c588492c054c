package mx

// Products as the tensor cores of an H100 or a B200 add them.

import (
	"fmt"
	"unsafe"

	"spmoe/tensor"
	"spmoe/tensor/format"
	"spmoe/tensor/tensorcore"
)

// Plan returns how the GPU of a sum multiplies two formats. The zero Format stands for BF16.
func (s Sum) Plan(a, b Format) (p tensorcore.Plan, err error) {
	blocks := func(f Format) bool { return f.promotes() && f.Element == format.E4M3 && f.Block[1] == 128 }
	eight := func(f Format) bool { return f.isMX() && !f.IsInteger() }
	four := func(f Format) bool {
		return f.Quantizes() && f.Element == format.E2M1 && (f.Scale == ScaleE8M0 && f.Block[1] == 32 || f.Scale == ScaleE4M3 && f.Block[1] == 16)
	}
	whole := func(f Format) bool {
		return f.Scale == ScaleNone && (f.Element == format.E4M3 || f.Element == format.E5M2)
	}
	h100 := s == SumH100 || s == SumH100NoPromotion
	switch {
	case !a.Quantizes() && !b.Quantizes() && h100:
		return tensorcore.H100BF16, nil
	case !a.Quantizes() && !b.Quantizes():
		return tensorcore.B200BF16, nil
	case !a.Quantizes() || !b.Quantizes():
	case s == SumH100NoPromotion && blocks(a) && blocks(b):
		return p, fmt.Errorf("%v cannot multiply %v: a chain cannot cross from one scale to the next: use %v", s, a, SumH100)
	case s == SumH100NoPromotion && whole(a) && whole(b):
		return tensorcore.H100FastFP8, nil
	case h100 && (blocks(a) && blocks(b) || whole(a) && whole(b)):
		return tensorcore.H100FP8, nil
	case h100 && (a.isMX() || a.Scale == ScaleE4M3 || a.Packed):
		return p, fmt.Errorf("%v cannot multiply %v: an H100 has no block scales: use %v", s, a, SumB200)
	case !h100 && four(a) && four(b) && a.Scale == b.Scale:
		return tensorcore.B200FP4, nil
	case !h100 && (eight(a) && eight(b) || whole(a) && whole(b)):
		return tensorcore.B200FP8, nil
	}
	return p, fmt.Errorf("%v cannot multiply %v and %v", s, a, b)
}

// Multiplies returns an error if the GPU of a sum has no product of two formats. The zero Format
// stands for BF16.
func (s Sum) Multiplies(a, b Format) error {
	if !s.OfGPU() {
		return nil
	}
	_, err := s.Plan(a, b)
	return err
}

// Model says whether products of two formats rest on a published model of the GPU, and have not
// been compared with one.
func (s Sum) Model(a, b Format) bool {
	p, err := s.Plan(a, b)
	return err == nil && p.Model
}

// cores multiplies as the GPU of a sum does.
type cores struct{ sum Sum }

func (cores) continues(_, _ Format) bool { return false }

func (cores) decode(ex *tensor.Exec, a, b Tensor) (x, y tensor.Matrix) {
	return coreValues(ex, a), coreValues(ex, b)
}

func (c cores) multiply(p product, to tensor.Matrix, a, b part) { c.gradient(p, to, a, b, 0, false) }

func (c cores) gradient(p product, to tensor.Matrix, a, b part, span int, accumulate bool) {
	plan, err := c.sum.Plan(a.t.Format, b.t.Format)
	if err != nil {
		panic("mx: " + err.Error())
	}
	sum := tensor.CoreSum{Plan: plan, Span: span, Accumulate: accumulate, Alpha: p.alpha(a, b)}
	tensor.CoreMatMul(p.ex, to, a.onCores(), b.onCores(), sum)
}

// coreValues returns the elements of t as tensor cores get them: times block scales only if these
// are powers of two that belong to elements.
func coreValues(ex *tensor.Exec, t Tensor) tensor.Matrix {
	if !t.Format.isMX() || t.Format.Element == format.E2M1 {
		return elementsOf(ex, t)
	}
	return decodedCopy(ex, tensor.FP32, t)
}

// onCores returns a part as tensor cores take it.
func (p part) onCores() tensor.CoreOperand {
	return tensor.CoreOperand{Matrix: p.Matrix, Least: p.t.Format.MinExponent(), Scales: p.coreScales()}
}

// coreScales returns the scales of a part.
func (p part) coreScales() tensorcore.BlockScales {
	if p.t.Format.Scale == ScaleNone {
		return tensorcore.BlockScales{}
	}
	t, first := p.scales()
	s := tensorcore.BlockScales{Type: tensorcore.ScaleE8M0, RowStride: t.Scales.Dim(1), RunStride: 1, Run: t.Format.Block[1], Rows: t.Format.Block[0], First: first}
	switch {
	case t.Format.Scale == ScaleE4M3:
		s.Type = tensorcore.ScaleE4M3
	case t.Format.Scale.dtype() == tensor.FP32:
		s.Type = tensorcore.ScaleFP32
	}
	if t.Blocks == AlongCols {
		s.RowStride, s.RunStride = 1, s.RowStride
	}
	s.Data = unsafe.Pointer(unsafe.SliceData(t.Scales.Bytes()))
	return s
}
