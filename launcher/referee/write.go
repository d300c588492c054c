package referee

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"

	"spmoe/launcher/checkpoint/safetensors"
	"spmoe/launcher/step"
	"spmoe/moe/reference"
)

// Write runs the whole model of a folder, from its weights and its batch alone, and writes the
// reference's own activations and gradients as a step folder.
func Write(from, to string) error {
	return writeRounded(from, to, reference.Rounding{}, safetensors.F32)
}

// writeRounded writes what a program would record that rounds in one way, as tensors of a type.
func writeRounded(from, to string, way reference.Rounding, dtype string) error {
	folder, err := step.Open(from)
	if err != nil {
		return err
	}
	defer folder.Close()
	j := &judge{folder: folder}
	j.prepare()
	repeats := folder.Repeats()
	if len(repeats) == 0 {
		repeats = []step.Repeat{{}}
	}
	if len(repeats) > 1 {
		return fmt.Errorf("it holds %d forward passes: the reference writes folders of one", len(repeats))
	}
	c, err := j.newChain(repeats[0])
	if err != nil {
		return err
	}
	c.call.Rounding = way
	if err := c.run(folder.Info.LossScale); err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	weights, err := filepath.Abs(from)
	if err != nil {
		return err
	}
	about, err := json.MarshalIndent(map[string]any{
		"format": "step-1", "framework": "spmoe reference", "weights": weights, "reduction": c.call.Batch.Reduction,
		"labels_shifted": c.call.Batch.LabelsShifted, "loss_scale": folder.Info.LossScale,
	}, "", " ")
	if err != nil {
		return err
	}
	for name, data := range map[string][]byte{"config.json": folder.Config, "step.json": about} {
		if err := os.WriteFile(filepath.Join(to, name), data, 0o644); err != nil {
			return err
		}
	}
	for name, tensors := range map[string][]safetensors.Tensor{
		"batch": batchTensors(c.call.Batch), "activations": encoded(c.values, dtype), "gradients": encoded(c.gradient, dtype),
	} {
		if err := safetensors.Write(filepath.Join(to, name+".safetensors"), tensors, nil); err != nil {
			return err
		}
	}
	return nil
}

func batchTensors(b *reference.Batch) (all []safetensors.Tensor) {
	shape := []int{b.Batch, b.Seq}
	for name, x := range map[string][]int32{"input_ids": b.IDs, "labels": b.Labels, "attention_mask": b.Mask, "position_ids": b.Positions, "document_ids": b.Documents} {
		if x != nil {
			all = append(all, integers(name, shape, x))
		}
	}
	return all
}

func integers(name string, shape []int, x []int32) safetensors.Tensor {
	data := make([]byte, 0, 4*len(x))
	for _, v := range x {
		data = binary.LittleEndian.AppendUint32(data, uint32(v))
	}
	return safetensors.Tensor{Name: name, DType: safetensors.I32, Shape: shape, Data: data}
}

// encoded returns tensors in a type: F32 or BF16, but choices as integers.
func encoded(values map[string]reference.Tensor, dtype string) (all []safetensors.Tensor) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		v := values[name]
		if len(v.Data) == 0 {
			continue
		}
		if filepath.Ext(name) == ".indices" {
			whole := make([]int32, len(v.Data))
			for i, x := range v.Data {
				whole[i] = int32(x)
			}
			all = append(all, integers(name, v.Dims, whole))
			continue
		}
		var data []byte
		for _, x := range v.Data {
			bits := math.Float32bits(float32(x))
			if dtype == safetensors.BF16 {
				data = binary.LittleEndian.AppendUint16(data, uint16(math.Float32bits(float32(roundBF16(x)))>>16))
			} else {
				data = binary.LittleEndian.AppendUint32(data, bits)
			}
		}
		all = append(all, safetensors.Tensor{Name: name, DType: dtype, Shape: v.Dims, Data: data})
	}
	return all
}
