package ep

// The rows that a call receives. The last ones may arrive after the call has returned.

import (
	"spmoe/collective"
	"spmoe/mx"
	"spmoe/tensor"
)

// Arrival holds the rows of a StartDispatch or StartCombineBackward. Until Wait, peers may still be
// storing them. This rank may do other work, except collectives on the same communicator. Wait is
// collective: every rank calls it next, even one that has failed meanwhile.
type Arrival struct {
	// MX holds the rows [N, H] as they travelled, with blocks along rows: what quantizing them here
	// would give. It is the zero Tensor for the Plain wire.
	MX mx.Tensor

	call   string
	rows   tensor.Tensor     // [N, H]; from MX, not before Numbers
	room   tensor.Tensor     // that peers store into
	window collective.Window // the zero Window if all rows have arrived
	// the work of this rank on rows of other hosts; nil: none
	rest  func(ex *tensor.Exec) error
	bytes int // moved by this rank
}

// newArrival allocates the rows that this rank receives, of the type and width of like.
func newArrival(ex *tensor.Exec, call string, wire Wire, h *Handle, like tensor.Tensor) Arrival {
	n, hidden := h.Received, like.Dim(1)
	arena := h.arena(ex)
	a := Arrival{call: call, rows: arena.New(like.DType(), n, hidden)}
	if a.room = a.rows; wire == Plain {
		return a
	}
	at, scales := scalesAt(n, hidden), rowScales(hidden)
	a.room = arena.New(tensor.UINT8, at+n*scales)
	a.MX = mx.Tensor{
		Format: wireCast.Format, Blocks: mx.AlongRows,
		Codes:  a.room.Slice(0, n*hidden).Reshape(n, hidden),
		Scales: a.room.Slice(at, at+n*scales).Reshape(n, scales),
	}
	return a
}

// rowScales returns the number of scales per row.
func rowScales(hidden int) int { return wireCast.Format.BlocksIn(hidden) }

// scalesAt returns the offset of the scales of n rows, which follow their codes.
func scalesAt(n, hidden int) int {
	const line = 64
	return (n*hidden + line - 1) / line * line
}

// rowBytes returns the size of a row on the wire.
func (a *Arrival) rowBytes() int {
	if a.MX.Codes.Valid() {
		return a.MX.Cols() + a.MX.Scales.Dim(1)
	}
	return rowBytes(a.rows)
}

// elem returns the size of an element on the wire.
func (a *Arrival) elem() int { return a.room.DType().Size() }

// Wait returns when all rows have arrived.
func (a *Arrival) Wait(ex *tensor.Exec) error {
	if a.window == (collective.Window{}) {
		return nil
	}
	var err error
	if a.rest != nil {
		err = a.rest(ex)
	}
	if err == nil {
		err = a.window.Close(a.bytes)
	}
	a.window = collective.Window{}
	return wrap(a.call, err)
}

// Numbers returns the rows, after Wait, [N, H] of the type that the call specifies: as they
// arrived, or dequantized.
func (a *Arrival) Numbers(ex *tensor.Exec) tensor.Tensor {
	if a.MX.Codes.Valid() {
		mx.Dequantize(ex, a.rows.Mat(), a.MX)
	}
	return a.rows
}

// Receive waits for the rows and returns their numbers.
func (a *Arrival) Receive(ex *tensor.Exec) (tensor.Tensor, error) {
	if err := a.Wait(ex); err != nil {
		return tensor.Tensor{}, err
	}
	return a.Numbers(ex), nil
}
