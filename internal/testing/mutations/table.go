package mutations

// Axes of several names.
const (
	allRanks = "dp_replicate · dp_shard > 1"
	replicas = "dp_replicate · efsdp > 1"
)

// Groups of tensors.
const (
	anyTensor = `.*`
	dense     = `model\.layers\.\d\.(self_attn\.\w+_proj|self_attn\.kv_a_proj_with_mqa|mlp\.\w+_proj|mlp\.shared_experts\.\w+_proj)\.weight`
	experts   = `model\.layers\.1\.mlp\.experts\.\d\.\w+_proj\.weight`
	shared    = `model\.layers\.1\.mlp\.shared_experts\.\w+_proj\.weight`
	router    = `model\.layers\.1\.mlp\.gate\.weight`
	norms     = `model\.(layers\.\d\.(self_attn\.)?\w+)?norm\.weight|` + router
	bias      = `model\.layers\.1\.mlp\.gate\.e_score_correction_bias`
	embedding = `model\.embed_tokens\.weight`
)

// allGradients is what trainer.AllGradients says.
const allGradients = "all gradients, by one factor"

// Table lists the mistakes.
var Table = []Mutation{
	{
		Name: "dense-axis-lost", Text: "at ep > 1, dense gradients leave out the ranks of an ep group except the first",
		File: "moe/host.go", Old: "for r, list := range lists {\n\t\t\tto, adds",
		New:  "for r, list := range lists {\n\t\t\tif r%p.model.mesh.Layout.EP > 0 {\n\t\t\t\tlist = make([][]byte, len(list))\n\t\t\t}\n\t\t\tto, adds",
		Axis: "ep > 1", Layer: "layer [01]", Tensor: dense,
	},
	{
		Name: "dense-replicas-lost", Text: "dense gradients are summed over dp_shard, not over dp_replicate",
		File: "moe/host.go", Old: "for r, list := range lists {\n\t\t\tto, adds",
		New:  "for r, list := range lists {\n\t\t\tif n := p.model.mesh.Layout.DPShard; r/n != l.host.comm.Rank()/n {\n\t\t\t\tlist = make([][]byte, len(list))\n\t\t\t}\n\t\t\tto, adds",
		Axis: "dp_replicate > 1", Layer: "layer [01]", Tensor: dense,
	},
	{
		Name: "dense-own-rows", Text: "dense gradients count the rows of the rank itself, once per rank",
		File: "moe/host.go", Old: "if !w.product(p, to, adds, list[at:at+n], ",
		New:  "list = lists[l.host.comm.Rank()]\n\t\t\tif !w.product(p, to, adds, list[at:at+n], ",
		Axis: allRanks, Layer: "layer [01]", Tensor: dense,
	},
	{
		Name: "expert-sum-missing", Text: "the gradients of experts are not summed over replicas",
		File: "moe/replicas.go", Old: "for r, list := range lists {\n\t\t\tpart", New: "for r, list := range lists[:1] {\n\t\t\tpart",
		Axis: replicas, Layer: "layer 1", Tensor: experts,
	},
	{
		Name: "expert-sum-efsdp", Text: "the gradients of experts are summed over dp_replicate, not over efsdp",
		File: "moe/replicas.go", Old: "for r, list := range lists {\n\t\t\tpart",
		New:  "for r, list := range lists {\n\t\t\tif n := p.model.mesh.Layout.EFSDP(); r%n != l.host.comm.Rank()%n {\n\t\t\t\tcontinue\n\t\t\t}\n\t\t\tpart",
		Axis: "efsdp > 1", Layer: "layer 1", Tensor: experts,
	},
	{
		Name: "rows-rotated", Text: "the rows of replicas follow each other in another order",
		File: "moe/mesh.go", Old: "c.Split(l.ExpertReplicas(c.Rank())[0], c.Rank())", New: "c.Split(l.ExpertReplicas(c.Rank())[0], -c.Rank())",
		Axis: replicas, Layer: "layer 1", Tensor: experts,
	},
	{
		Name: "divisor-mesh", Text: "the loss is divided by the tokens of an ep group",
		File: "launcher/trainer/data.go", Old: "batch: cfg.Batch, separator", New: "batch: cfg.Batch / ranks * cfg.layout(ranks).EP, separator",
		Axis: replicas, Layer: "all layers", Tensor: allGradients,
	},
	{
		Name: "divisor-local", Text: "the loss is divided by the tokens of the rank",
		File: "launcher/trainer/data.go", Old: "batch: cfg.Batch, separator", New: "batch: cfg.Batch / ranks, separator",
		Axis: allRanks, Layer: "all layers", Tensor: allGradients,
	},
	{
		Name: "padding-counted", Text: "the last token of a sequence, which has no second next token, gets the first one of the next sequence",
		File: "moe/mtp.go", Old: "if (i+1)%b.Seq == 0 {", New: "if i+1 == len(shifted) {", Args: "--model.mtp-layers 1",
		Axis: allRanks, Layer: "layer 2", Tensor: anyTensor,
	},
	{
		Name: "ep-rotated", Text: "the ranks of an ep group hold each other's experts",
		File: "moe/block.go", Old: "at.comm.Rank()*perRank,", New: "(at.comm.Rank()+1)%at.comm.Size()*perRank,",
		Axis: "ep > 1", Layer: "layer 1", Tensor: experts + `|` + router,
	},
	{
		Name: "bias-local", Text: "the selection biases follow the loads of the rank itself",
		File: "launcher/trainer/balancer.go", Old: "collective.AllReduce(b.comm, b.loads, collective.Sum)", New: "collective.AllReduce(b.comm, b.loads[:0], collective.Sum)",
		Axis: allRanks, Layer: "layer 1", Tensor: bias,
	},
	{
		Name: "bias-group", Text: "the selection biases follow the loads of an ep group",
		File: "launcher/trainer/rank.go", Old: "newBalancer(c, ex", New: "newBalancer(r.mesh.EP, ex",
		Axis: replicas, Layer: "layer 1", Tensor: bias,
	},
	{
		Name: "norm-one-replica", Text: "the gradient norm leaves out the slices of all replicas of an expert except the first",
		File: "moe/optim/optimizer.go", Old: "for p := range s.parts {\n\t\tadd(s", New: "for p := range s.parts {\n\t\tif s.group.Ranks != nil && s.group.Ranks.Rank() > 0 {\n\t\t\tbreak\n\t\t}\n\t\tadd(s",
		Args: "--optimizer.clip-norm 0.01", Axis: replicas, Layer: "all layers", Tensor: allGradients,
	},
	{
		Name: "norm-twice", Text: "the gradient norm counts the gradients of experts once per replica",
		File: "moe/optim/optimizer.go", Old: "for p := range s.parts {\n\t\tadd(s", New: "for p := range s.parts {\n\t\tfor range s.counts[min(1, len(s.counts)):] {\n\t\t\tadd(s.grad().Slice(p.lo, p.hi))\n\t\t}\n\t\tadd(s",
		Args: "--optimizer.clip-norm 0.01", Axis: replicas, Layer: "all layers", Tensor: allGradients,
	},
	{
		Name: "balance-group", Text: "the balance loss is averaged over the sequences of an ep group",
		File: "moe/layer.go", Old: "p.batch.GlobalSequences)\n", New: "p.batch.GlobalSequences/p.model.mesh.Layout.Replicas())\n",
		Args: "--model.balance-alpha 0.01", Axis: replicas, Layer: "layer 1", Tensor: router,
	},
	{
		Name: "zero-slice", Text: "the update of a ZeRO slice leaves out its last element",
		File: "moe/optim/optimizer.go", Old: "update(o.ex, run(0, s.len(), s.work()))", New: "update(o.ex, run(0, s.len()-1, s.work().Slice(0, s.len()-1)))",
		Args: "--guard.memory 0", Axis: allRanks, Layer: "layer [01]", Tensor: anyTensor,
	},
	{
		Name: "zero-shift", Text: "a ZeRO slice is updated with gradients that begin one element early",
		File: "moe/optim/seals.go", Old: "Grad: s.grad().Slice(begin, end)", New: "Grad: s.group.Grad.Slice(max(s.lo-1, 0)+begin, max(s.lo-1, 0)+end)",
		Axis: allRanks, Layer: "layer [01]", Tensor: anyTensor,
	},
	{
		Name: "wrong-slice", Text: "a ZeRO slice is updated with the gradients of another slice",
		File: "moe/optim/seals.go", Old: "Grad: s.grad().Slice(begin, end)", New: "Grad: s.group.Grad.Slice(s.group.Len()-s.hi+begin, s.group.Len()-s.hi+end)",
		Axis: allRanks, Layer: "layer [01]", Tensor: anyTensor,
	},
	{
		Name: "stale-codes", Text: "the quantized copies of shared weights are not refreshed after an update",
		File: "moe/optim/optimizer.go", Old: "if !updated(s) {", New: "if !updated(s) && (o.steps == 0 || len(s.counts) < 2) {", Args: "--precision mxfp8 --optimizer.lr 0.1",
		Axis: allRanks, Layer: "layer [01]", Tensor: anyTensor,
	},
	{
		Name: "stale-gather", Text: "updated norms and routers are not gathered",
		File: "moe/optim/optimizer.go", Old: "if s.counts != nil {\n\t\t\tif err := o.allGather(s)", New: "if s.counts != nil && (s.group.Shared || o.steps == 0) {\n\t\t\tif err := o.allGather(s)",
		Args: "--guard.memory 0", Axis: allRanks, Layer: "layer [01]", Tensor: anyTensor,
	},
	{
		Name: "norms-not-reduced", Text: "the gradients of norms and routers are not summed over ranks",
		File: "moe/optim/optimizer.go", Old: "if s.counts != nil && !s.group.Shared {", New: "if s.counts != nil && !s.group.Shared && s.group.Name != \"norm\" {",
		Axis: allRanks, Layer: "layer [01]", Tensor: norms,
	},
	{
		Name: "shared-expert-twice", Text: "at ep > 1, the gradients of shared experts are added twice",
		File: "moe/layer.go", Old: "shared = l.shared.network.backward(p, activation{Tensor: dy}, &s.network)\n",
		New:  "shared = l.shared.network.backward(p, activation{Tensor: dy}, &s.network)\n\t\tif p.model.mesh.Layout.EP > 1 {\n\t\t\tl.shared.network.backwardWeight(p, &s.network)\n\t\t}\n",
		Axis: "ep > 1", Layer: "layer 1", Tensor: shared,
	},
	{
		Name: "data-order", Text: "the ranks of an ep group read the same rows",
		File: "launcher/trainer/rank.go", Old: "j.loader(c.Rank())", New: "j.loader(c.Rank() / r.mesh.Layout.EP * r.mesh.Layout.EP)",
		Axis: "ep > 1", Layer: "layer [01]", Tensor: anyTensor,
	},
	{
		Name: "seed-by-rank", Text: "first weights are drawn with a seed of the rank",
		File: "moe/optim/optimizer.go", Old: "p.Offset, seed)", New: "p.Offset, seed+uint64(o.comm.Rank()))",
		Axis: allRanks, Layer: "layer [01]", Tensor: anyTensor,
	},
	{
		Name: "embedding-group", Text: "the gradient of the embedding has the own tokens instead of those of other ep groups",
		File: "moe/host.go", Old: "one, ok := u.of(list[2*i], list[2*i+1])\n",
		New:  "if n := p.model.mesh.Layout.EP; r/n != h.comm.Rank()/n {\n\t\t\t\tlist = peers.lists[h.comm.Rank()]\n\t\t\t}\n\t\t\tone, ok := u.of(list[2*i], list[2*i+1])\n",
		Axis: replicas, Layer: "embed_tokens", Tensor: embedding,
	},
	{
		Name: "capacity-by-replica", Text: "the capacity of an expert bounds the rows of one replica",
		File: "collective/ep/replicas.go", Old: "s.Options.limit(r.all, experts)", New: "s.Options.limit(r.all[r.first*experts:][:len(s.all)], experts)",
		Args: "--ep-capacity 1.1", Axis: replicas, Layer: "layer 1", Tensor: experts,
	},
	{
		Name: "shards-mirrored", Text: "a checkpoint has the pieces of a parameter in reverse order",
		File: "launcher/trainer/save.go", Old: "Offset: int64(p.Offset)}", New: "Offset: int64(p.Param.Len() - p.Offset - len(p.Master))}",
		Axis: allRanks, Layer: "layer [01]", Tensor: dense + `|` + experts,
	},
	{
		Name: "moments-mirrored", Text: "a checkpoint has the moments of another piece of the parameter",
		File: "launcher/trainer/save.go", Old: "\t\tif v.Data.DType() == tensor.BF16 {", New: "\t\tif v.Name == \"exp_avg_sq\" {\n\t\t\tc.Offset = int64(p.Param.Len() - p.Offset - len(p.Master))\n\t\t}\n\t\tif v.Data.DType() == tensor.BF16 {",
		Axis: allRanks, Layer: "layer [01]", Tensor: dense + `|` + experts,
	},
}
