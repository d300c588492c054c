package calls

import (
	"fmt"
	"unsafe"

	"spmoe/mx"
	"spmoe/tensor"
	"spmoe/tensor/tensorcore"
)

// MatMul computes out = a·b or, if accumulate is set, out + a·b. The sum of a GPU then goes on from
// out.
//
// a: [M, K], b: [K, N], out: [M, N] FP32 or BF16. Either operand may be transposed.
//
// With parts, K is cut into that many as cuBLAS cuts it. 0 leaves it whole.
//
// With groups, which end at ends, it computes a[rows of g]·b[g] if b is [groups, K, N], and
// a[columns of g]·b[rows of g] if out is [groups, M, N].
func MatMul(out, a, b *Array, groups unsafe.Pointer, sum string, parts int, accumulate bool, threads int32) error {
	p := product{a: a, b: b}
	var err error
	if p.sum, err = mx.ParseSum(sum); err != nil {
		return err
	}
	if p.sum.OfGPU() {
		p.plan, err = planOf(p.sum, a.DType, b.DType)
	}
	if parts != 0 && err == nil {
		err = p.split(parts, out)
	} else if a.DType == FP32 && b.DType == FP32 && p.sum == mx.SumExact {
		err = fmt.Errorf("sum exact of FP32 operands: their products do not fit FP64: give BF16, FP16 or FP8")
	}
	if err != nil {
		return err
	}
	return run(threads, elements(out, a, b), func(ex *tensor.Exec) error {
		p.ex = ex
		p.left, _ = a.operand(ex)
		p.right, p.weights = b.operand(ex)
		switch {
		case b.Groups > 0:
			p.groups(out, ends(groups, b.Groups))
		case out.Groups > 0:
			p.gradients(out, ends(groups, out.Groups))
		default:
			p.multiply(out.matrix(), p.left, p.right, accumulate)
		}
		return nil
	})
}

// split cuts K into parts. BF16 rows of an odd number of elements in memory have a kernel of their
// own in PyTorch, with tiles of 8.
func (p *product) split(parts int, out *Array) error {
	tile, k := 64, int(p.a.Cols)
	if p.a.Transposed != 0 {
		k = int(p.a.Rows)
	}
	switch {
	case p.sum != mx.SumH100 && p.sum != mx.SumH100NoPromotion:
		return fmt.Errorf("parts of K with sum %v: cuBLAS cuts K with the sums h100 and h100-nopromotion", p.sum)
	case p.a.DType.element() != nil:
		tile = 128
	case p.a.DType == BF16 && (p.a.Stride|p.b.Stride|out.Stride)%2 == 1:
		p.plan, tile = tensorcore.H100OddBF16, 8
	}
	p.plan = p.plan.Split(k, parts, tile)
	return nil
}

// product is a product of matrices without scales.
type product struct {
	ex          *tensor.Exec
	sum         mx.Sum
	plan        tensorcore.Plan // if sum is that of a GPU
	a, b        *Array
	left, right tensor.Matrix
	weights     tensor.Tensor // b of groups, as it lies in memory
}

// multiply computes c = a·b, or adds it.
func (p *product) multiply(c, a, b tensor.Matrix, accumulate bool) {
	switch {
	case p.sum.OfGPU():
		left := tensor.CoreOperand{Matrix: a, Least: types[p.a.DType].least}
		right := tensor.CoreOperand{Matrix: b.T(), Least: types[p.b.DType].least}
		tensor.CoreMatMul(p.ex, c, left, right, tensor.CoreSum{Plan: p.plan, Continue: accumulate})
	case accumulate:
		p.sum.MultiplyOn(p.ex, c, a, b)
	default:
		p.sum.Multiply(p.ex, c, a, b)
	}
}

// eachGroup calls f with the range of each group that is not empty.
func eachGroup(ends []int32, f func(g, lo, hi int)) {
	lo := 0
	for g, end := range ends {
		if hi := int(end); hi > lo {
			f(g, lo, hi)
			lo = hi
		}
	}
}

// groups computes out[rows of g] = a[rows of g]·b[g].
func (p *product) groups(out *Array, ends []int32) {
	switch c := out.matrix(); {
	case p.sum.OfGPU():
		eachGroup(ends, func(g, lo, hi int) {
			b := p.weights.Index(g).Mat()
			if p.b.Transposed != 0 {
				b = b.T()
			}
			p.multiply(c.RowSlice(lo, hi), p.left.RowSlice(lo, hi), b, false)
		})
	case p.b.Transposed != 0:
		p.sum.MultiplyGroups(p.ex, c, p.left, p.weights, ends)
	default:
		p.sum.MultiplyGroupsDgrad(p.ex, c, p.left, p.weights, ends)
	}
}

// gradients computes out[g] = a[columns of g]·b[rows of g].
func (p *product) gradients(out *Array, ends []int32) {
	dw := out.tensor()
	if !p.sum.OfGPU() {
		p.sum.MultiplyGroupsWgrad(p.ex, dw, p.left.T(), p.right, ends, false)
		return
	}
	tensor.ZeroEmptyGroups(p.ex, dw, ends)
	eachGroup(ends, func(g, lo, hi int) {
		p.multiply(dw.Index(g).Mat(), p.left.ColSlice(lo, hi), p.right.RowSlice(lo, hi), false)
	})
}

// planOf returns how a GPU multiplies operands without block scales. FP16 is added as BF16 is.
func planOf(s mx.Sum, a, b DType) (p tensorcore.Plan, err error) {
	if a.element() != nil && b.element() != nil {
		left, right := mx.FP8Tensor, mx.FP8Tensor // with one scale, which is 1
		left.Element, right.Element = a.element(), b.element()
		return s.Plan(left, right)
	} else if a != b || a == FP32 {
		return p, fmt.Errorf("sum %v: a GPU multiplies BF16 by BF16, FP16 by FP16 and FP8 by FP8: convert the operands", s)
	}
	return s.Plan(mx.Format{}, mx.Format{})
}

// MatMulQuantized computes out = a·b. Both operands have their blocks along the dimension that the
// product sums over.
//
// In memory, the operands are a [M, K] and b [N, K], with b transposed; or a [M, K] and b [K, N].
// Or they are a [K, M] and b [K, N], with a transposed, for an FP32 out. With n groups, b has
// groups of rows in the first two cases, and out is [n, M, N] in the last one.
func MatMulQuantized(out *Array, a, b *Quantized, groups unsafe.Pointer, n int64, sum string, threads int32) error {
	s, err := mx.ParseSum(sum)
	if err != nil {
		return err
	}
	return run(threads, a.Rows*a.Cols+b.Rows*b.Cols+elements(out), func(ex *tensor.Exec) error {
		x, err := a.tensor()
		if err != nil {
			return err
		}
		w, err := b.tensor()
		if err != nil {
			return err
		}
		if err := s.Multiplies(x.Format, w.Format); err != nil {
			return err
		}
		wgrad := a.Transposed != 0
		forward := b.Transposed != 0
		ends := ends(groups, n)
		switch {
		case wgrad && forward:
			return fmt.Errorf("a product of two transposed matrices: quantize b along its first dimension instead")
		case wgrad && n > 0:
			s.GroupedWgrad(ex, out.tensor(), directed(x, mx.AlongCols), directed(w, mx.AlongCols), false)
		case wgrad:
			s.Wgrad(ex, out.matrix(), directed(x, mx.AlongCols), directed(w, mx.AlongCols), 0, false)
		case forward && n > 0:
			s.GroupedMatMul(ex, out.matrix(), directed(x, mx.AlongRows), directed(w, mx.AlongRows), ends)
		case forward:
			s.MatMul(ex, out.matrix(), directed(x, mx.AlongRows), directed(w, mx.AlongRows))
		case n > 0:
			s.GroupedDgrad(ex, out.matrix(), directed(x, mx.AlongRows), directed(w, mx.AlongCols), ends)
		default:
			s.Dgrad(ex, out.matrix(), directed(x, mx.AlongRows), directed(w, mx.AlongCols))
		}
		return nil
	})
}

// directed returns t with its blocks in direction d, if they are squares. The products panic on
// other blocks in the wrong direction.
func directed(t mx.Tensor, d mx.Direction) mx.Tensor {
	if t.Blocks != d && t.Format.Block[0] == t.Format.Block[1] {
		return t.WithBlocks(d)
	}
	return t
}
