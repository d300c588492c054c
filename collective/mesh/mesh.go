// Package mesh arranges ranks in a mesh of named axes. It is arithmetic: it moves no data.
//
// The names and the rules are those of TorchTitan (torchtitan/distributed/parallel_dims.py):
//
//	world       = pp · dp_replicate · dp_shard · cp · tp
//	efsdp       = dp_shard · cp · tp / ep
//	dense mesh  = [pp, dp_replicate, dp_shard, cp, tp]
//	sparse mesh = [pp, dp_replicate, efsdp, ep]
//
// Both meshes number the same ranks in row-major order, so ep is the fastest axis of the sparse
// mesh. The ranks of an ep group are neighbors, and so are those of a dp_shard group.
//
// The routed experts are sharded over ep. Ranks with the same coordinate in ep hold the same
// experts: they are expert replicas, one for each place in dp_replicate × efsdp. A rank's share of
// a batch is that of its place in dp_replicate × dp_shard. The ranks of cp × tp share each of its
// sequences: those of a cp group attention (context parallelism), and those of a tp group also the
// products of dense layers (tensor parallelism).
//
// The ranks of a stage are neighbors, and form a layout of their own: see [Layout.Stage].
package mesh

import (
	"fmt"
	"strconv"
)

// Axis is the name of an axis of the dense or of the sparse mesh.
type Axis string

const (
	PP          Axis = "pp"           // stages of a pipeline; both meshes
	DPReplicate Axis = "dp_replicate" // copies of the whole model; both meshes
	DPShard     Axis = "dp_shard"     // shards of dense weights; dense mesh
	CP          Axis = "cp"           // parts of a sequence; dense mesh
	TP          Axis = "tp"           // parts of the products of dense layers; dense mesh
	EFSDP       Axis = "efsdp"        // expert replicas inside dp_shard · cp · tp; sparse mesh
	EP          Axis = "ep"           // shards of the experts; sparse mesh
)

// Dense and Sparse list the axes of the two meshes, the slowest first.
var (
	Dense  = [...]Axis{PP, DPReplicate, DPShard, CP, TP}
	Sparse = [...]Axis{PP, DPReplicate, EFSDP, EP}
)

// Layout holds the degree of each axis. [Resolve] and [Sharing] return legal ones.
type Layout struct {
	World       int `json:"world"`
	PP          int `json:"pp"`
	DPReplicate int `json:"dp_replicate"`
	DPShard     int `json:"dp_shard"`
	CP          int `json:"cp,omitempty"` // 0: as 1
	TP          int `json:"tp,omitempty"` // 0: as 1
	EP          int `json:"ep"`
}

// Default returns the layout that shards the experts over all ranks.
func Default(world int) Layout {
	return Layout{World: world, PP: 1, DPReplicate: 1, DPShard: world, EP: world}
}

// Context returns the number of parts of a sequence that cp makes.
func (l Layout) Context() int { return max(l.CP, 1) }

// Tensor returns the number of ranks that share the products of dense layers.
func (l Layout) Tensor() int { return max(l.TP, 1) }

// Sharers returns the number of ranks that share a sequence.
func (l Layout) Sharers() int { return l.Context() * l.Tensor() }

// SharersName names the degrees whose product is Sharers: "cp", "tp" or "cp · tp".
func (l Layout) SharersName() string {
	switch {
	case l.Tensor() == 1:
		return string(CP)
	case l.Context() == 1:
		return string(TP)
	}
	return "cp · tp"
}

// Shards returns the number of ranks that hold one copy of the model, over which ep is formed.
func (l Layout) Shards() int { return l.DPShard * l.Sharers() }

// EFSDP returns the number of expert replicas that these ranks hold.
func (l Layout) EFSDP() int { return l.Shards() / l.EP }

// Replicas returns the number of ranks that hold the same experts.
func (l Layout) Replicas() int { return l.DPReplicate * l.EFSDP() }

// Batch returns the number of ranks that read different sequences.
func (l Layout) Batch() int { return l.DPReplicate * l.DPShard }

// StageRanks returns the number of ranks of one stage.
func (l Layout) StageRanks() int { return l.Batch() * l.Sharers() }

// Stage returns the layout of the ranks of one stage.
func (l Layout) Stage() Layout {
	l.World, l.PP = l.StageRanks(), 1
	return l
}

// String returns the degrees in words: "dp_replicate 2, dp_shard 4, ep 2".
func (l Layout) String() string {
	text := fmt.Sprintf("dp_replicate %d, dp_shard %d, ", l.DPReplicate, l.DPShard)
	if l.CP > 1 {
		text += fmt.Sprintf("cp %d, ", l.CP)
	}
	if l.TP > 1 {
		text += fmt.Sprintf("tp %d, ", l.TP)
	}
	text += fmt.Sprintf("ep %d", l.EP)
	if l.PP > 1 {
		text = fmt.Sprintf("pp %d, %s", l.PP, text)
	}
	return text
}

// Name returns a short name that is stable and fit for a folder: "dp2x4-ep2" is dp_replicate 2,
// dp_shard 4 and ep 2. No two layouts have the same name.
func (l Layout) Name() string {
	name := "dp" + strconv.Itoa(l.DPReplicate) + "x" + strconv.Itoa(l.DPShard)
	if l.CP > 1 {
		name += "-cp" + strconv.Itoa(l.CP)
	}
	if l.TP > 1 {
		name += "-tp" + strconv.Itoa(l.TP)
	}
	name += "-ep" + strconv.Itoa(l.EP)
	if l.PP > 1 {
		name = "pp" + strconv.Itoa(l.PP) + "-" + name
	}
	return name
}
