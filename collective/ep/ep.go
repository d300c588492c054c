// Package ep is expert parallelism: it moves token rows to the ranks that own the chosen experts,
// and back.
//
// A Mixture-of-Experts layer calls StartDispatch, runs its experts on the received rows, and calls
// Combine. The backward pass calls StartCombineBackward, the experts' backward, and
// DispatchBackward.
// [Standard] does this with an all-to-all of counts and an all-to-all-v of packed rows. [OneSided]
// stores and reads rows directly in the peers' memory.
package ep

import (
	"fmt"
	"strings"

	"spmoe/collective"
	"spmoe/tensor"
)

// Exchange moves token rows between ranks. Its calls are collective: every rank makes them in the
// same order. One exchange serves any number of layers, each with its own [Handle]. It is not safe
// for concurrent use.
//
// Rows may be quantized for transport, see [Options]. Calls that return numbers dequantize them.
//
// Shapes: T tokens of this rank, H hidden, K choices per token, N rows received
// ([Handle.Received]). T may differ between ranks and may be 0; H, K and the element types may not.
// Activations are FP32 or BF16, and mixed types are converted where a row is read or stored. Sums
// are FP32, in slot order 0..K-1, for any number of ranks.
//
// A rank with invalid arguments returns an error before it meets its peers, which then wait until
// it aborts the world.
type Exchange interface {
	// StartDispatch sends row t of x [T, H] to the owner of each expert in topk[t]. topk is [T, K]
	// INT32 of expert ids, or -1 for no choice. It fills h for the later calls, and returns when
	// this rank's own rows are sent, so that other work can run while slower ranks send theirs. The
	// arrival has the rows received, [N, H] of x's type in h's arena, grouped as in h.GroupEnds.
	StartDispatch(ex *tensor.Exec, h *Handle, x, topk tensor.Tensor) (Arrival, error)

	// Combine returns y [N, H], in the order of Dispatch's rows, to the sources of the rows and
	// sets out[t] = Σ_k weights[t,k]·y(t,k), rounded once into out [T, H]. Masked choices count as
	// zero. weights is [T, K] FP32. The handle keeps a copy of the weights, and the returned rows
	// in its arena.
	Combine(ex *tensor.Exec, h *Handle, y, weights, out tensor.Tensor) error

	// StartCombineBackward takes dout [T, H], the gradient of Combine's out. The arrival has the
	// gradient of y: rows weights[t,k]·dout[t], [N, H] of y's type in h's arena, rounded once.
	// After its Wait, dweights[t,k] is <dout[t], y(t,k)>, [T, K] FP32, 0 for masked choices.
	StartCombineBackward(ex *tensor.Exec, h *Handle, dout, dweights tensor.Tensor) (Arrival, error)

	// DispatchBackward takes drows [N, H], the gradient of Dispatch's rows, and sets dx[t] = Σ_k
	// drows(t,k), rounded once into dx [T, H].
	DispatchBackward(ex *tensor.Exec, h *Handle, drows, dx tensor.Tensor) error

	// Replicate says that the ranks of this exchange are one of several groups that each hold all
	// experts. Together the groups are world. Group number i is the i-th run of consecutive ranks
	// of world. [Options.Capacity] then bounds the rows of all copies of an expert together, and
	// [Handle.Whole] counts them. All ranks of world call Replicate before the first Dispatch.
	Replicate(world *collective.Comm) error
}

// Names lists the names that New accepts.
func Names() []string { return []string{"onesided", "standard"} }

// New returns one rank's exchange of the given name over c, for experts experts in total. Only the
// one-sided exchange takes options.
func New(name string, c *collective.Comm, experts int, options Options) (Exchange, error) {
	if err := options.validate(name); err != nil {
		return nil, err
	}
	switch name {
	case "onesided":
		s, err := NewOneSided(c, experts)
		if err != nil {
			return nil, err
		}
		s.Options = options
		return s, nil
	case "standard":
		return NewStandard(c, experts)
	}
	return nil, fmt.Errorf("the exchange is %q: use %s", name, strings.Join(Names(), " or "))
}
