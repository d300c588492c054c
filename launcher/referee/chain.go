package referee

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"spmoe/launcher/checkpoint/safetensors"
	"spmoe/launcher/step"
	"spmoe/moe/reference"
)

// The whole model as a chain, from the batch and the weights alone. It judges the gradients that no
// recorded output gradient leads to, and is what --write writes.

// chain runs the whole model for a repeat, with the recorded choices as far as there are any.
func (j *judge) chain(r step.Repeat, way reference.Rounding, lossGradient float64) (*reference.Chain, error) {
	batch, err := j.folder.Batch(r)
	if err != nil {
		return nil, err
	}
	choices, err := j.choices(r)
	if err != nil {
		return nil, err
	}
	param := func(name string) (reference.Tensor, error) {
		v, err := j.folder.Weight(name)
		return v.Tensor, err
	}
	call := reference.Call{Batch: batch, Choices: maps.Clone(choices), Param: param, Rounding: way, Fast: way.Format == reference.BF16}
	c := &reference.Chain{Config: j.folder.Model, Call: call, Losses: map[string]float64{"loss": lossGradient}}
	return c, c.Run()
}

// chainBound is wholeBound for gradients that are compared end to end: their rounding is that of
// all layers, and one flipped choice changes more than rounding does.
const chainBound = 4

// endToEnd judges the gradients that no module could, by passes through the whole model.
func (j *judge) endToEnd() error {
	left := map[string]bool{}
	for _, m := range j.modules {
		for _, name := range m.Params {
			if _, ok := j.folder.DType(step.Gradients, name); ok && !j.finished[name] {
				left[name] = true
			}
		}
	}
	if len(left) == 0 || j.incomplete() || len(j.folder.Info.Auxiliary) > 0 || len(j.repeats) == 0 {
		return nil
	}
	ways, _ := j.roundings(j.byPath["model.embed_tokens"], j.repeats[0])
	runs := make([]map[string][]float64, 1+len(ways))
	for i, way := range append([]reference.Rounding{{}}, ways...) {
		runs[i] = map[string][]float64{}
		for _, r := range j.repeats {
			c, err := j.chain(r, way, j.folder.Info.LossScale/float64(len(j.repeats)))
			if err != nil {
				return err
			}
			for name, g := range c.Gradients {
				if before, ok := runs[i][name]; ok {
					g.Data = added(before, g.Data)
				}
				runs[i][name] = g.Data
			}
		}
	}
	line := &ModuleLine{Path: "gradients end to end", Kind: "chain", Layer: -1, Precision: formatNames[ways[0].Format]}
	for _, name := range slices.Sorted(maps.Keys(left)) {
		var noise [][]float64
		for _, run := range runs[1:] {
			noise = append(noise, run[name])
		}
		c, err := j.gradient(name, runs[0][name], noise, nil)
		if err != nil {
			return err
		}
		c.Strain *= wholeBound / chainBound
		c.Resolution *= chainBound / wholeBound
		c.Scaled = c.Scaled && c.Wrong()
		line.Comparisons = append(line.Comparisons, *c)
	}
	j.print(line)
	return nil
}

// Write runs the reference's whole model from the weights and the batch of a folder, and writes its
// own activations and gradients to another, under the names of a step folder.
func Write(from, to string) error {
	folder, err := step.Open(from)
	if err != nil {
		return err
	}
	defer folder.Close()
	j := &judge{folder: folder}
	j.prepare()
	if len(j.repeats) > 1 {
		return fmt.Errorf("it holds %d forward passes: the reference writes those of a step of one", len(j.repeats))
	}
	c, err := j.chain(append(j.repeats, step.Repeat{})[0], reference.Rounding{}, folder.Info.LossScale)
	if err != nil {
		return err
	}
	for name, chosen := range c.Call.Choices {
		c.Values[name] = chosen
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	for name, values := range map[string]map[string]reference.Tensor{"activations": c.Values, "gradients": c.Gradients} {
		var tensors []safetensors.Tensor
		for _, name := range slices.Sorted(maps.Keys(values)) {
			v := values[name]
			if dims, ok := folder.Model.ParamDims(name); ok {
				v.Dims = dims
			}
			if len(v.Data) > 0 {
				tensors = append(tensors, encoded(name, v))
			}
		}
		if err := safetensors.Write(filepath.Join(to, name+".safetensors"), tensors, nil); err != nil {
			return err
		}
	}
	return nil
}

// encoded returns a tensor as FP32, or as integers if it is a choice.
func encoded(name string, v reference.Tensor) safetensors.Tensor {
	t := safetensors.Tensor{Name: name, DType: safetensors.F32, Shape: v.Dims}
	for _, x := range v.Data {
		bits := math.Float32bits(float32(x))
		if strings.HasSuffix(name, ".indices") {
			t.DType, bits = safetensors.I32, uint32(x)
		}
		t.Data = binary.LittleEndian.AppendUint32(t.Data, bits)
	}
	return t
}
