package weights

// DeepSeek-V4's tensors go by three sets of names: those of released files, those that transformers
// saves, and those of its modules, with the experts of a layer as one tensor. A source has the
// modules' names, with an expert each. Files are written with the released ones.

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"spmoe/launcher/checkpoint/safetensors"
	"spmoe/moe/v4names"
)

const v4Family = "deepseek_v4"

// renameV4 gives the tensors of a DeepSeek-V4 model their modules' names, and each expert its own.
func (s *Source) renameV4() error {
	all := s.entries
	s.entries = map[string]entry{}
	for name, e := range all {
		for _, e := range e.experts(v4names.Module(name)) {
			if _, twice := s.entries[e.Name]; twice {
				return fmt.Errorf("tensor %q is there under several names: remove all but one", e.Name)
			}
			s.entries[e.Name] = e
		}
	}
	return nil
}

// experts returns the tensors of experts of one that holds those of a whole layer, or the tensor
// itself, under its new name.
func (e entry) experts(name string) []entry {
	e.Name = name
	before, which, ok := strings.Cut(name, ".mlp.experts.")
	parts, known := map[string][]string{"gate_up_proj": {"gate_proj", "up_proj"}, "down_proj": {"down_proj"}}[which]
	if !ok || !known || len(e.Shape) != 3 || e.Shape[1]%len(parts) != 0 {
		return []entry{e}
	}
	shape := []int{e.Shape[1] / len(parts), e.Shape[2]}
	var all []entry
	for i := range e.Shape[0] * len(parts) {
		own := fmt.Sprintf("%s.mlp.experts.%d.%s.weight", before, i/len(parts), parts[i%len(parts)])
		first := int64(i) * int64(shape[0]) * int64(shape[1])
		all = append(all, entry{Tensor{own, e.DType, shape}, func(dst []float32, offset int64) error {
			return e.floats(dst, first+offset)
		}})
	}
	return all
}

// isTable reports whether a tensor is the table of a hash layer, whose elements are integers.
func isTable(name string) bool { return strings.HasSuffix(name, ".tid2eid") }

// readTable fills dst with elements of a table.
func readTable(file *safetensors.File, info safetensors.Info, dst []float32, offset int64) error {
	raw := make([]byte, 8*len(dst))
	if err := file.ReadAt(info, raw, 8*offset); err != nil {
		return err
	}
	for i := range dst {
		dst[i] = float32(int64(binary.LittleEndian.Uint64(raw[8*i:])))
	}
	return nil
}

// released gives tensors to write their released names, if their family is DeepSeek-V4.
func (s *Source) released(all []Tensor) []Tensor {
	if s.config.HFModelType() != v4Family {
		return all
	}
	all = slices.Clone(all)
	for i := range all {
		all[i].Name = v4names.Released(all[i].Name)
	}
	return all
}
