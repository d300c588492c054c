package ep

// Checks of the tensors that callers pass.

import (
	"fmt"

	"spmoe/tensor"
)

func checkDispatch(x, topk tensor.Tensor) error {
	if err := activation("x", x); err != nil {
		return err
	}
	if topk.NDim() != 2 || topk.DType() != tensor.INT32 || topk.Dim(0) != x.Dim(0) {
		return fmt.Errorf("topk is %s: want int32 [%d, slots], one row per row of x", describe(topk), x.Dim(0))
	}
	return nil
}

// checkOneSided is checkDispatch for the one-sided exchange.
func checkOneSided(x, topk tensor.Tensor) error {
	if err := checkDispatch(x, topk); err != nil {
		return err
	}
	if slots := topk.Dim(1); slots > mostSlots {
		return fmt.Errorf("topk is %s: at most %d slots are supported, use the standard exchange", describe(topk), mostSlots)
	}
	return nil
}

func checkCombine(h *Handle, y, weights, out tensor.Tensor) error {
	if err := h.dispatched(); err != nil {
		return err
	}
	if err := activation("y", y); err != nil {
		return err
	}
	if y.Dim(0) != h.Received {
		return fmt.Errorf("y is %s: Dispatch returned %d rows", describe(y), h.Received)
	}
	if err := slotsOf(h, "weights", weights); err != nil {
		return err
	}
	return rowsOf("out", out, h.tokens, y.Dim(1))
}

func checkCombineBackward(h *Handle, dout, dweights tensor.Tensor) error {
	if err := h.dispatched(); err != nil {
		return err
	}
	if !h.y.Valid() {
		return fmt.Errorf("the handle has no rows of Combine: call that with it first")
	}
	if err := slotsOf(h, "dweights", dweights); err != nil {
		return err
	}
	return rowsOf("dout", dout, h.tokens, h.y.Dim(1))
}

func checkDispatchBackward(h *Handle, drows, dx tensor.Tensor) error {
	if err := h.dispatched(); err != nil {
		return err
	}
	if err := activation("drows", drows); err != nil {
		return err
	}
	if drows.Dim(0) != h.Received {
		return fmt.Errorf("drows is %s: Dispatch returned %d rows", describe(drows), h.Received)
	}
	return rowsOf("dx", dx, h.tokens, drows.Dim(1))
}

// activation checks that t is a matrix of a type that this package computes with.
func activation(name string, t tensor.Tensor) error {
	if t.NDim() != 2 || t.DType() != tensor.FP32 && t.DType() != tensor.BF16 {
		return fmt.Errorf("%s is %s: want fp32 or bf16 [rows, hidden]", name, describe(t))
	}
	return nil
}

func rowsOf(name string, t tensor.Tensor, rows, hidden int) error {
	if err := activation(name, t); err != nil {
		return err
	}
	if t.Dim(0) != rows || t.Dim(1) != hidden {
		return fmt.Errorf("%s is %s: want [%d, %d]", name, describe(t), rows, hidden)
	}
	return nil
}

// slotsOf checks that t has one FP32 number per dispatched choice.
func slotsOf(h *Handle, name string, t tensor.Tensor) error {
	if t.NDim() != 2 || t.DType() != tensor.FP32 || t.Dim(0) != h.tokens || t.Dim(1) != h.slots {
		return fmt.Errorf("%s is %s: want fp32 [%d, %d], as topk was in Dispatch", name, describe(t), h.tokens, h.slots)
	}
	return nil
}

func describe(t tensor.Tensor) string { return fmt.Sprintf("%v %v", t.DType(), t.Dims()) }
