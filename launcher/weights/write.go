package weights

// Writing: a source's tensors as safetensors, read and rounded part by part while they are written.

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"spmoe/launcher/checkpoint/safetensors"
	"spmoe/tensor"
)

// dtypeOf returns the element type for a user's name of it; empty for an unknown name.
func dtypeOf(name string) string {
	return map[string]string{"bf16": safetensors.BF16, "fp32": safetensors.F32}[name]
}

// Options says how to write weights.
type Options struct {
	// DType is the type for floating-point weights: bf16, rounded to nearest even, or fp32. If it
	// is empty they keep their type, except that FP8 and checkpoints become bf16. If anything
	// changes, selection biases become fp32.
	DType string

	// Shard is the maximum size of a file in bytes, unless a single tensor is larger; 0: one file.
	Shard int64

	// Progress, if not nil, is called after each file with the bytes of tensors written so far and
	// in total.
	Progress func(written, total int64)
}

func (o Options) check() error {
	if o.DType != "" && dtypeOf(o.DType) == "" {
		return fmt.Errorf("the type of weights is %.100q: use bf16 or fp32", o.DType)
	}
	if o.Shard < 0 {
		return fmt.Errorf("files of %d bytes: give 1 or more, or 0 for one file", o.Shard)
	}
	return nil
}

// changes reports whether the written weights differ from the stored ones.
func (s *Source) changes(o Options) bool { return o.DType != "" || s.json == nil || s.fp8 }

// becomes returns the type that a tensor is written in.
func (s *Source) becomes(t Tensor, o Options) string {
	switch {
	case !isFloat(t.DType) || !s.changes(o):
		return t.DType
	case isBias(t.Name):
		return safetensors.F32
	case o.DType != "":
		return dtypeOf(o.DType)
	case s.json == nil || t.DType == safetensors.F8E4M3:
		return safetensors.BF16
	}
	return t.DType
}

// isFloat reports whether elements of a type are weights, which may be rounded.
func isFloat(dtype string) bool {
	switch dtype {
	case safetensors.F8E4M3, safetensors.F16, safetensors.BF16, safetensors.F32, safetensors.F64:
		return true
	}
	return false
}

// output returns the tensor to write.
func (s *Source) output(ctx context.Context, t Tensor, o Options) safetensors.Tensor {
	e, dtype := s.entries[t.Name], s.becomes(t, o)
	out := safetensors.Tensor{Name: t.Name, DType: dtype, Shape: t.Shape}
	if p, ok := e.values.(plain); ok && dtype == t.DType {
		out.Stream = func(w io.Writer) error { return p.copyTo(ctx, w) }
	} else {
		out.Stream = func(w io.Writer) error { return e.roundTo(ctx, w, dtype) }
	}
	return out
}

// copyTo writes the bytes of a tensor unchanged.
func (p plain) copyTo(ctx context.Context, w io.Writer) error {
	buffer := make([]byte, min(p.info.Size, 4*chunk))
	for at := int64(0); at < p.info.Size; at += int64(len(buffer)) {
		if err := ctx.Err(); err != nil {
			return err
		}
		buffer = buffer[:min(int64(len(buffer)), p.info.Size-at)]
		if err := p.file.ReadAt(p.info, buffer, at); err != nil {
			return err
		}
		if _, err := w.Write(buffer); err != nil {
			return err
		}
	}
	return nil
}

// roundTo writes the elements of a tensor as F32 or BF16.
func (e entry) roundTo(ctx context.Context, w io.Writer, dtype string) error {
	total := e.elements()
	values := make([]float32, min(total, chunk))
	rounded := make([]tensor.BFloat16, len(values))
	raw := make([]byte, 0, 4*len(values))
	for at := int64(0); at < total; at += int64(len(values)) {
		if err := ctx.Err(); err != nil {
			return err
		}
		values = values[:min(int64(len(values)), total-at)]
		if err := e.floats(values, at); err != nil {
			return err
		}
		raw = raw[:0]
		if dtype == safetensors.BF16 {
			tensor.Round(rounded[:len(values)], values)
			for _, x := range rounded[:len(values)] {
				raw = binary.LittleEndian.AppendUint16(raw, uint16(x))
			}
		} else {
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

// written returns the bytes of a tensor as written.
func (s *Source) written(t Tensor, o Options) int64 {
	if e, ok := s.entries[t.Name].values.(plain); ok && s.becomes(t, o) == t.DType {
		return e.info.Size
	}
	if s.becomes(t, o) == safetensors.BF16 {
		return 2 * t.elements()
	}
	return 4 * t.elements()
}

// metadata tells readers of the format that names and shapes are PyTorch's.
func metadata() map[string]string { return map[string]string{"format": "pt"} }

func (s *Source) writeFile(ctx context.Context, path string, tensors []Tensor, o Options) error {
	var out []safetensors.Tensor
	for _, t := range tensors {
		out = append(out, s.output(ctx, t, o))
	}
	return safetensors.Write(path, out, metadata())
}
