package tensor_test

import (
	"fmt"

	"spmoe/tensor"
)

// A linear layer y = x·Wᵀ in BF16. The sums are FP32 and are rounded once when they are stored.
func ExampleMatMul() {
	ex := tensor.NewExec()
	x, w, y := tensor.New(tensor.BF16, 1, 64), tensor.New(tensor.BF16, 2, 64), tensor.New(tensor.BF16, 1, 2)
	for i := range x.BF16() {
		x.BF16()[i] = tensor.ToBFloat16(1.5)
	}
	for i := range w.BF16() {
		w.BF16()[i] = tensor.ToBFloat16(-0.25)
	}
	tensor.MatMul(ex, y.Mat(), x.Mat(), w.Mat().T())
	for _, v := range y.BF16() {
		fmt.Println(v.Float32())
	}
	// Output:
	// -24
	// -24
}
