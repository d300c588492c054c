package moe

import "spmoe/tensor"

// tableName ends the name of a hash layer's table in checkpoints.
const tableName = "tid2eid"

// hashTable returns a table of distinct experts for each token, at random. Those of a published
// model are part of its checkpoint.
func (b *builder) hashTable(cfg Config, layer int) tensor.Tensor {
	if b.dry != nil {
		return tensor.NewDry(tensor.FP32, cfg.Vocab, cfg.TopK)
	}
	table := tensor.New(tensor.FP32, cfg.Vocab, cfg.TopK)
	experts := make([]int, cfg.Experts)
	for e := range experts {
		experts[e] = e
	}
	for token := range cfg.Vocab {
		row := table.Index(token).F32()
		random := mix(uint64(layer)<<32 + uint64(token))
		for k := range row { // the first steps of a shuffle
			random = mix(random)
			other := k + int(random%uint64(len(experts)-k))
			experts[k], experts[other] = experts[other], experts[k]
			row[k] = float32(experts[k])
		}
	}
	return table
}
