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

// The loss of two tokens and the gradient of its mean, for a vocabulary in two blocks.
func ExampleCrossEntropy() {
	ex := tensor.NewExec()
	logits := tensor.New(tensor.FP32, 2, 4) // zeros: all four classes are equally likely
	left, right := logits.Mat().ColSlice(0, 2), logits.Mat().ColSlice(2, 4)
	var loss tensor.CrossEntropy
	loss.Reset([]int32{0, 3}, 4)
	loss.Add(ex, left, 0)
	loss.Add(ex, right, 2)
	loss.Gradient(ex, left, left, 0, 0.5) // replaces the logits
	loss.Gradient(ex, right, right, 2, 0.5)
	fmt.Printf("%.4f nats per token\n", loss.Loss(0, 2)/2)
	fmt.Printf("%.3f\n", logits.F32())
	// Output:
	// 1.3863 nats per token
	// [-0.375 0.125 0.125 0.125 0.125 0.125 0.125 -0.375]
}
