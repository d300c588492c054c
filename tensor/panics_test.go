package tensor

import "testing"

// TestPanics: shapes, types and positions that do not fit panic before memory is touched.
func TestPanics(t *testing.T) {
	ex := NewExec()
	m := func(dtype DType, rows, cols int) Matrix { return New(dtype, rows, cols).Mat() }
	n, table, y := New(FP32, 4, 2), m(FP32, 4, 3), m(FP32, 2, 3)
	codes := Scaled{m(UINT8, 4, 96), m(UINT8, 4, 3), nil}
	shape := attentionShapes[5]
	shape.First = []int32{0, 0, 3, 3, 3}
	for want, f := range map[string]func(){
		"bf16 elements":             func() { n.BF16() },
		"5 dimensions":              func() { New(FP32, 1, 1, 1, 1, 1) },
		"slice [3, 5)":              func() { n.Slice(3, 5) },
		"reshape":                   func() { n.Reshape(3, 3) },
		"rows [-1, 1)":              func() { n.Mat().ColSlice(-1, 1) },
		"product of [2, 3]":         func() { MatMul(ex, m(FP32, 2, 5), m(FP32, 2, 3), m(FP32, 4, 5)) },
		"product of fp32 and bf16":  func() { MatMul(ex, m(FP32, 2, 5), m(FP32, 2, 3), m(BF16, 3, 5)) },
		"in FP32 only":              func() { MatMulAdd(ex, m(BF16, 2, 5), m(BF16, 2, 3), m(BF16, 3, 5)) },
		"transposed":                func() { MatMul(ex, m(FP32, 5, 2).T(), m(FP32, 2, 3), m(FP32, 3, 5)) },
		"before it begins":          func() { GroupedMatMul(ex, m(FP32, 4, 3), m(FP32, 4, 2), New(FP32, 2, 3, 2), []int32{3, 2}) },
		"matrix of 4 rows":          func() { GroupedMatMul(ex, m(FP32, 4, 3), m(FP32, 4, 2), New(FP32, 2, 3, 2), []int32{1, 5}) },
		"spans of 0 rows":           func() { Wgrad(ex, m(FP32, 3, 3), table, table, 0, false) },
		"spans of 48":               func() { MatMulScaledSpans(ex, m(FP32, 4, 4), codes, codes, 48, false) },
		"scales [4, 2]":             func() { MatMulScaled(ex, m(FP32, 4, 4), codes, Scaled{codes.Codes, m(UINT8, 4, 2), nil}) },
		"rows [4, 5)":               func() { Embed(ex, y, table, []int32{0, 4}) },
		"rows [-1, 0)":              func() { EmbedBackward(ex, table, 1, []Embedded{{y, []int32{0, -1}}}) },
		"4 targets":                 func() { wholeCrossEntropy(ex, new(CrossEntropy), table.RowSlice(0, 3), []int32{0, 1, 2, 2}, 1) },
		"vocabulary of 4":           func() { wholeCrossEntropy(ex, new(CrossEntropy), m(FP32, 1, 4), []int32{4}, 1) },
		"rotating 6 columns":        func() { NewRotaryTable(3, []float64{1, 0.5}, 1).Rotate(ex, m(BF16, 3, 6), 3) },
		"in sequences of 4":         func() { NewRotaryTable(3, []float64{1, 0.5}, 1).Rotate(ex, m(FP32, 4, 4), 4) },
		"row 2 of sequence 0":       newAttention(newGenerator(FP32, 0), shape).forward,
		"a symmetric product":       func() { MatMulSymmetric(ex, y, y, y) },
		"StreamCopy of bf16 [2 3] ": func() { StreamCopy(nil, New(BF16, 3, 2), New(BF16, 2, 3)) },
	} {
		mustPanic(t, want, f)
	}
}
