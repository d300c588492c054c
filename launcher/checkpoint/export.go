// Exporting: weights of a checkpoint, whoever saved which part of them, as one safetensors file.
package checkpoint

import (
	"fmt"
	"io"
	"slices"

	"spmoe/launcher/checkpoint/safetensors"
	"spmoe/tensor"
)

// Weight is a tensor of a checkpoint and what it becomes in an exported file.
type Weight struct {
	Tensor string // in the checkpoint
	Name   string // in the file
	DType  string // [safetensors.F32], or [safetensors.BF16], rounded to nearest even
}

// exportElements is how many elements are held in memory at a time.
const exportElements = 1 << 18

// Export writes weights to the file path, which appears when it is complete. It is durable when Export returns.
func (r *Reader) Export(path string, weights []Weight) error {
	var tensors []safetensors.Tensor
	values := make([]float32, exportElements)
	rounded := make([]tensor.BFloat16, exportElements)
	for _, w := range weights {
		shape, ok := r.manifest.Tensors[w.Tensor]
		if !ok {
			return fmt.Errorf("checkpoint %s: no tensor %q among its %d", r.path, w.Tensor, len(r.manifest.Tensors))
		}
		if w.DType != safetensors.F32 && w.DType != safetensors.BF16 {
			return fmt.Errorf("exporting %q as %q: use %s or %s", w.Tensor, w.DType, safetensors.F32, safetensors.BF16)
		}
		tensors = append(tensors, safetensors.Tensor{Name: w.Name, DType: w.DType, Shape: slices.Clone(shape), Stream: func(out io.Writer) error {
			return r.stream(w.Tensor, shape, func(part []float32) error {
				if w.DType == safetensors.F32 {
					_, err := out.Write(bytesOf(part))
					return err
				}
				tensor.Round(rounded[:len(part)], part)
				_, err := out.Write(bytesOf(rounded[:len(part)]))
				return err
			}, values)
		}})
	}
	return safetensors.Write(path, tensors, map[string]string{"format": "pt"})
}

// stream calls use with all elements of a tensor, part by part, through the buffer values.
func (r *Reader) stream(name string, shape []int, use func([]float32) error, values []float32) error {
	total, err := elements(shape)
	if err != nil {
		return err
	}
	for at := int64(0); at < total; at += int64(len(values)) {
		p := Piece{Name: name, Shape: shape, Offset: at, Data: values[:min(int64(len(values)), total-at)]}
		if err := r.ReadInto(p); err != nil {
			return err
		}
		if err := use(p.Data); err != nil {
			return err
		}
	}
	return nil
}
