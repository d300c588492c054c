package mx

import (
	"fmt"
	"slices"
	"testing"

	"spmoe/tensor"
)

// TestContinues: gradients of groups go on with the sums of earlier rows exactly if Continues says
// so. The rows of a group are cut after a whole number of blocks, or not at all.
func TestContinues(t *testing.T) {
	const n, k, block = 72, 136, 128
	rows := [][2]int{{block, 5}, {0, 40}, {2 * block, 0}, {block, 2*block + 77}}
	type operands struct {
		dy, x tensor.Tensor
		ends  []int32
	}
	var all operands
	var parts [2]operands
	total := 0
	for _, r := range rows {
		total += r[0] + r[1]
		all.ends = append(all.ends, int32(total))
	}
	ex := tensor.NewExec()
	for _, c := range []struct {
		dtype tensor.DType
		f     Format
		sum   Sum
	}{
		{tensor.FP32, Format{}, SumFP32}, {tensor.BF16, Format{}, SumFP32}, {tensor.BF16, Format{}, SumExact}, {tensor.BF16, Format{}, SumH100},
		{tensor.BF16, E4M3, SumFP32}, {tensor.BF16, E5M2, SumFP32}, {tensor.BF16, INT8, SumFP32}, {tensor.BF16, E2M3, SumFP32}, {tensor.BF16, E3M2, SumFP32}, {tensor.BF16, E2M1, SumFP32}, {tensor.BF16, mxfp4Shrunk(), SumFP32},
		{tensor.BF16, FP8Row, SumFP32}, {tensor.BF16, NVFP4, SumFP32}, {tensor.BF16, E4M3, SumB200}, {tensor.BF16, E4M3, SumExact},
	} {
		all.dy, all.x = filled(1, c.dtype, total, n, normal), filled(2, c.dtype, total, k, normal)
		parts = [2]operands{}
		for i := range parts {
			parts[i] = operands{dy: tensor.New(c.dtype, total, n), x: tensor.New(c.dtype, total, k)}
			from, to := 0, 0
			for _, r := range rows {
				first, count := from, r[0]
				if i == 1 {
					first, count = from+r[0], r[1]
				}
				copy(rowsOf(parts[i].dy, to, count), rowsOf(all.dy, first, count))
				copy(rowsOf(parts[i].x, to, count), rowsOf(all.x, first, count))
				from, to = from+r[0]+r[1], to+count
				parts[i].ends = append(parts[i].ends, int32(to))
			}
			parts[i].dy, parts[i].x = parts[i].dy.Slice(0, to), parts[i].x.Slice(0, to)
		}
		multiply := func(dw tensor.Tensor, o operands, adds bool) {
			if !c.f.Quantizes() {
				c.sum.MultiplyGroupsWgrad(ex, dw, o.dy.Mat(), o.x.Mat(), o.ends, adds)
				return
			}
			q := func(x tensor.Tensor) Tensor {
				t := NewGroupedIn(nil, c.f, AlongCols, x.Dim(1), o.ends)
				if t.Amax.Valid() {
					FindAmax(ex, t, x.Mat())
				}
				Cast{Format: c.f}.Quantize(ex, t, x.Mat(), Draws{})
				return t
			}
			c.sum.GroupedWgrad(ex, dw, q(o.dy), q(o.x), adds)
		}
		one, two := tensor.New(tensor.FP32, len(rows), n, k), tensor.New(tensor.FP32, len(rows), n, k)
		multiply(one, all, false)
		multiply(two, parts[0], false)
		multiply(two, parts[1], true)
		if got, want := slices.Equal(one.F32(), two.F32()), c.sum.Continues(c.f, c.f); got != want {
			t.Errorf("%s: two products have the bits of one: %v, want %v", fmt.Sprint(c.dtype, c.f, c.sum), got, want)
		}
	}
}

func mxfp4Shrunk() Format {
	f := MXFP4
	f.Shrink = true
	return f
}

// rowsOf returns rows of a matrix as bytes.
func rowsOf(t tensor.Tensor, first, n int) []byte {
	size := t.Dim(1) * t.DType().Size()
	return t.Bytes()[first*size:][:n*size]
}
