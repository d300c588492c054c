package weights

// Writing: a checkpoint's tensors as safetensors, read and rounded part by part while they are
// written.

import (
	"context"
	"encoding/binary"
	"io"
	"math"

	"spmoe/launcher/checkpoint/safetensors"
	"spmoe/tensor"
)

// Options says how to write weights.
type Options struct {
	// FP32 keeps the type of the master weights. Otherwise they become BF16, rounded to nearest
	// even, except selection biases.
	FP32 bool
}

// dtype returns the type that a tensor is written in.
func (o Options) dtype(t Tensor) string {
	switch {
	case isTable(t.Name):
		return safetensors.I64
	case o.FP32 || isBias(t.Name):
		return safetensors.F32
	}
	return safetensors.BF16
}

// bytes returns the size of a tensor as written.
func (o Options) bytes(t Tensor) int64 {
	return t.elements() * map[string]int64{safetensors.I64: 8, safetensors.F32: 4, safetensors.BF16: 2}[o.dtype(t)]
}

// roundTo writes the elements of a tensor as F32 or BF16.
func (e entry) roundTo(ctx context.Context, w io.Writer, dtype string) error {
	total := e.elements()
	values := make([]float32, min(total, chunk))
	rounded := make([]tensor.BFloat16, len(values))
	raw := make([]byte, 0, 8*len(values))
	for at := int64(0); at < total; at += int64(len(values)) {
		if err := ctx.Err(); err != nil {
			return err
		}
		values = values[:min(int64(len(values)), total-at)]
		if err := e.floats(values, at); err != nil {
			return err
		}
		raw = raw[:0]
		switch dtype {
		case safetensors.BF16:
			tensor.Round(rounded[:len(values)], values)
			for _, x := range rounded[:len(values)] {
				raw = binary.LittleEndian.AppendUint16(raw, uint16(x))
			}
		case safetensors.I64:
			for _, x := range values {
				raw = binary.LittleEndian.AppendUint64(raw, uint64(int64(x)))
			}
		default:
			for _, x := range values {
				raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
			}
		}
		if _, err := w.Write(raw); err != nil {
			return err
		}
	}
	return nil
}

func (s *Source) writeFile(ctx context.Context, path string, tensors []Tensor, o Options) error {
	var out []safetensors.Tensor
	for i, named := range s.released(tensors) {
		t := tensors[i]
		dtype := o.dtype(t)
		out = append(out, safetensors.Tensor{Name: named.Name, DType: dtype, Shape: t.Shape, Stream: func(w io.Writer) error {
			return s.entries[t.Name].roundTo(ctx, w, dtype)
		}})
	}
	return safetensors.Write(path, out, map[string]string{"format": "pt"}) // names and shapes are PyTorch's
}
