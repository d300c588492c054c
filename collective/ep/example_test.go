package ep_test

import (
	"fmt"

	"spmoe/collective"
	"spmoe/collective/ep"
	"spmoe/tensor"
)

// Two ranks have one expert each. Rank 0 has two tokens, the second of which chooses both experts.
// Expert e multiplies its rows by e+1, and Combine adds the weighted results.
func ExampleOneSided() {
	out := make([][]float32, 2)
	err := collective.NewWorld(2).Run(func(c *collective.Comm) error {
		exchange, err := ep.NewOneSided(c, 2)
		if err != nil {
			return err
		}
		ex := tensor.NewExec()
		defer ex.Close()
		tokens := 2 - 2*c.Rank()
		x, topk := tensor.New(tensor.FP32, tokens, 4), tensor.New(tensor.INT32, tokens, 2)
		weights, sum := tensor.New(tensor.FP32, tokens, 2), tensor.New(tensor.FP32, tokens, 4)
		if c.Rank() == 0 {
			copy(x.F32(), []float32{1, 2, 3, 4, 10, 20, 30, 40})
			copy(topk.I32(), []int32{1, -1, 0, 1})
			copy(weights.F32(), []float32{1, 0, 0.5, 0.5})
		}
		var h ep.Handle
		arrival, err := exchange.StartDispatch(ex, &h, x, topk)
		if err != nil {
			return err
		}
		rows, err := arrival.Receive(ex)
		if err != nil {
			return err
		}
		for i := range rows.F32() {
			rows.F32()[i] *= float32(c.Rank() + 1)
		}
		if err := exchange.Combine(ex, &h, rows, weights, sum); err != nil {
			return err
		}
		out[c.Rank()] = sum.F32()
		return nil
	})
	fmt.Println(out[0], err)
	// Output: [2 4 6 8 15 30 45 60] <nil>
}
