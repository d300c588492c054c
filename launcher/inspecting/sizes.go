package inspecting

import (
	"encoding/json"

	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/estimate"
	"spmoe/launcher/trainer/events"
	"spmoe/moe"
)

// Sizes is the JSON output of inspect: counts of parameters, bytes and FLOPs.
type Sizes struct {
	Flavor     string `json:"flavor"`
	Precision  string `json:"precision"`
	Ranks      int    `json:"ranks"`
	Batch      int    `json:"batch"`
	Seq        int    `json:"seq"`
	PassTokens int    `json:"pass_tokens"` // per rank
	// Model is the configuration under the names of Hugging Face's config.json.
	Model      json.RawMessage `json:"model"`
	Parameters moe.Counts      `json:"parameters"`
	FLOPs      float64         `json:"flops_per_token"`
	Memory     MemorySizes     `json:"memory"` // per rank
	Heap       int64           `json:"heap_bytes"`
	Vault      int64           `json:"vault_bytes"`
	Cache      int64           `json:"kv_cache_bytes"` // per token
	Parts      []PartSizes     `json:"parts"`
}

// MemorySizes is an estimate of a rank's memory with its sum.
type MemorySizes struct {
	events.Memory
	All int64 `json:"all"`
}

// PartSizes are the sizes of one component. FLOPs are per token.
type PartSizes struct {
	Part   string        `json:"part"`
	MTP    bool          `json:"mtp"`
	Params int64         `json:"parameters"`
	Active int64         `json:"active"`
	FLOPs  moe.FLOPs     `json:"flops"`
	Memory events.Memory `json:"memory"` // per rank
}

func newSizes(cfg config.Config, ranks int) Sizes {
	memory := estimate.Memory(cfg, ranks)
	s := Sizes{
		Flavor: cfg.Flavor, Precision: cfg.Precision, Ranks: ranks,
		Batch: cfg.Batch, Seq: cfg.Seq, PassTokens: estimate.PassTokens(cfg, ranks),
		Parameters: cfg.Model.Count(), FLOPs: cfg.Model.FLOPsPerToken(cfg.Seq),
		Memory: MemorySizes{
			memory,
			memory.Total(),
		}, Heap: estimate.Heap(cfg, ranks), Vault: estimate.Vault(cfg, ranks),
	}
	for _, p := range estimate.Plan(cfg, ranks) {
		part := PartSizes{string(p.Part), p.Ahead, p.Params, p.Active, p.FLOPs, p.Memory}
		s.Parts = append(s.Parts, part)
	}
	size := int64(4)
	if dtype, err := cfg.DType(); err == nil {
		size = int64(dtype.Size())
	}
	s.Model, _ = cfg.Model.MarshalHF() // fails only for numbers that JSON lacks, which Validate refuses
	s.Cache = size * cfg.Model.KVCache()
	return s
}

// rows returns the components that the model has, with the MTP module as one row, and their total.
// The total includes the MTP module's parameters and memory, but neither its costs nor its active
// parameters.
func (s Sizes) rows() (rows []PartSizes, total PartSizes) {
	mtp := PartSizes{Part: "MTP module", MTP: true}
	total.Part = "all"
	for _, p := range s.Parts {
		switch {
		case p.MTP:
			mtp = mtp.Plus(p)
			p.Active, p.FLOPs = 0, moe.FLOPs{}
		case p.Params > 0 || p.FLOPs.Total() > 0:
			rows = append(rows, p)
		}
		total = total.Plus(p)
	}
	if mtp.Params > 0 {
		rows = append(rows, mtp)
	}
	return rows, total
}

// process returns the part that holds the memory of the process besides the model.
func (s Sizes) process() PartSizes { return s.Parts[len(s.Parts)-1] }

// Plus adds two parts.
func (p PartSizes) Plus(o PartSizes) PartSizes {
	p.Params, p.Active, p.Memory = p.Params+o.Params, p.Active+o.Active, p.Memory.Plus(o.Memory)
	p.FLOPs = p.FLOPs.Plus(o.FLOPs)
	return p
}
