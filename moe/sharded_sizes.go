package moe

// DenseUnit is dense weights that a host gathers together if they are sharded over hosts: see
// [Mesh.FSDP].
type DenseUnit struct {
	Params    int64
	Quantized int64 // of these, those of linear layers, which may have a recipe
	Gathers   int   // per pass
}

// DenseUnits lists the units: the embedding, the blocks, the head and the MTP module. Blocks are
// gathered for the forward and for the backward pass. The MTP module looks up embeddings too.
func (c Config) DenseUnits() []DenseUnit {
	var of [2]map[Part]int64 // parameters of a layer, by part: of the model, and of the MTP module
	of[0], of[1] = map[Part]int64{}, map[Part]int64{}
	for _, l := range c.Linears() {
		if i := 0; l.Part.Class() == Linear {
			if l.MTP {
				i = 1
			}
			of[i][l.Part] += l.Params() * int64(l.Held)
		}
	}
	matrix := int64(c.Vocab) * int64(c.Dim)
	all := []DenseUnit{{Params: matrix, Gathers: 1 + min(c.MTPLayers, 1)}}
	for i := range c.Layers {
		n := of[0][Projections]
		if c.IsDense(i) {
			n += of[0][Dense]
		} else {
			n += of[0][Shared]
		}
		all = append(all, DenseUnit{n, n, 2})
	}
	all = append(all, DenseUnit{Params: matrix, Gathers: 1})
	if c.MTPLayers > 0 {
		n := of[1][Projections] + of[1][Joint] + of[1][Shared]
		all = append(all, DenseUnit{n, n, 2})
	}
	return all
}
