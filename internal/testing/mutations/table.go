package mutations

// Axes of several names.
const (
	ranks    = "dp_replicate · dp_shard > 1"
	replicas = "dp_replicate · efsdp > 1"
	shares   = "cp > 1"
	divides  = "tp > 1"
)

// Regular expressions for weights of the test's model.
const (
	attention = `model\.layers\.\d\.self_attn\.\w+(_proj|_mqa)\.weight`
	expert    = `model\.layers\.1\.mlp\.experts\.\d+\.\w+\.weight`
	shared    = `model\.layers\.1\.mlp\.shared_experts\.\w+\.weight`
	network   = `model\.layers\.0\.mlp\.\w+\.weight`
	gate      = `model\.layers\.1\.mlp\.gate\.weight`
	bias      = `model\.layers\.\d\.self_attn\.[qkv]_proj\.bias`
	heads     = `model\.layers\.\d\.self_attn\.[qk]_norm\.weight`
	norm      = `model\.(layers\.\d\.(self_attn\.)?\w+)?norm\.weight`
)

// groupedQueries are flags of a model with grouped-query attention.
const groupedQueries = "--set model.heads=4 --set model.kv_heads=2 --set model.kv_rank=0 --set model.qk_norm=true --set model.qkv_bias=true"

// contexts are flags of runs in which ranks share sequences, or not.
const contexts = "--cp 1,2 --seq 128"

// products are flags of runs in which ranks divide products, or not.
const products = "--tp 1,2 --seq 128"

var (
	anyWeight     = Tensor{"any weight", `layer [01]`, `.*`}
	denseWeight   = Tensor{"a dense weight", `layer [01]`, attention + `|` + shared + `|` + network}
	matrix        = Tensor{"a dense weight or an expert", `layer [01]`, attention + `|` + shared + `|` + network + `|` + expert}
	anExpert      = Tensor{"an expert", `layer 1`, expert}
	expertOrGate  = Tensor{"an expert or the router", `layer 1`, expert + `|` + gate}
	sharedExpert  = Tensor{"the shared expert", `layer 1`, shared}
	router        = Tensor{"the router", `layer 1`, gate}
	selectionBias = Tensor{"the selection bias", `layer 1`, `model\.layers\.1\.mlp\.gate\.e_score_correction_bias`}
	aNorm         = Tensor{"a norm", `layer [01]`, norm}
	normOrGate    = Tensor{"a norm or the router", `layer [01]`, norm + `|` + gate}
	attentionBias = Tensor{"a bias of attention", `layer [01]`, bias}
	headNorm      = Tensor{"a norm of heads", `layer [01]`, heads}
	embedding     = Tensor{"the embedding", `embed_tokens`, `model\.embed_tokens\.weight`}
	mtpWeight     = Tensor{"a weight of the MTP module", `layer 2`, `model\.layers\.2\..*`}
	allGradients  = Tensor{"all gradients, by one factor", `all layers`, `all gradients, by one factor`}
)

// Table lists the mistakes.
var Table = []Mutation{
	{
		Name: "dense-ep-lost", Text: "at ep > 1, a dense gradient has the tokens of one rank per `ep` group",
		File: "moe/sum_host.go", Old: `for _, list := range lists {
			to, adds := sum.next()`,
		New: `for r, list := range lists {
			if r%p.mesh.Layout.EP > 0 { list = make([][]byte, len(list)) }; to, adds := sum.next()`,
		Axis: "ep > 1", Tensor: denseWeight,
	},
	{
		Name: "dense-replicate-lost", Text: "dense gradients are summed over `dp_shard` only",
		File: "moe/sum_host.go", Old: `for _, list := range lists {
			to, adds := sum.next()`,
		New: `for r, list := range lists {
			if n := p.mesh.Layout.DPShard; r/n != l.owner.(*host).comm.Rank()/n { list = make([][]byte, len(list)) }; to, adds := sum.next()`,
		Axis: "dp_replicate > 1", Tensor: denseWeight,
	},
	{
		Name: "dense-own-rows", Text: "a dense gradient has the rank's own tokens, once per rank",
		File: "moe/sum_host.go", Old: `w.product(p, to, own, adds,`, New: `list = lists[l.owner.(*host).comm.Rank()]; w.product(p, to, own, adds,`,
		Axis: ranks, Tensor: denseWeight,
	},
	{
		Name: "embedding-group", Text: "the embedding's gradient has own tokens instead of those of other `ep` groups",
		File: "moe/embedded.go", Old: `batches[r] = append(batches[r], u.of(`,
		New:  `if n := p.mesh.Layout.EP; r/n != h.comm.Rank()/n { list = peers.lists[h.comm.Rank()] }; batches[r] = append(batches[r], u.of(`,
		Axis: replicas, Tensor: embedding,
	},
	{
		Name: "norms-not-reduced", Text: "the gradients of norms and routers are not summed over ranks",
		File: "moe/optim/optimizer.go", Old: `if err := g.SumGrad(o.ex); err != nil {`, New: `if g.Name == "norm" { continue }; if err := g.SumGrad(o.ex); err != nil {`,
		Axis: ranks, Tensor: normOrGate,
	},
	{
		Name: "shared-expert-twice", Text: "at ep > 1, the gradient of a shared expert is added twice",
		File: "moe/layer.go", Old: `shared = l.shared.network.backward(p, activation{Tensor: dy}, &s.network)`,
		New: `shared = l.shared.network.backward(p, activation{Tensor: dy}, &s.network)
			if p.mesh.Layout.EP > 1 { l.shared.network.backwardWeight(p, &s.network) }`,
		Axis: "ep > 1", Tensor: sharedExpert,
	},
	{
		Name: "expert-sum-missing", Text: "the gradients of experts are not summed over replicas",
		File: "moe/replicas.go", Old: `range lists {
			parts =`, New: `range lists[:1] {
			parts =`,
		Axis: replicas, Tensor: anExpert,
	},
	{
		Name: "expert-sum-efsdp", Text: "the gradients of experts are summed over `dp_replicate` only",
		File: "moe/replicas.go", Old: `for _, list := range lists {
			parts =`,
		New: `for r, list := range lists {
			if n := p.mesh.Layout.EFSDP(); r%n != l.owner.(*rowSums).peers.comm.Rank()%n { continue }
			parts =`,
		Axis: "efsdp > 1", Tensor: anExpert,
	},
	{
		Name: "replicas-rotated", Text: "the rows of replicas follow each other in another order",
		File: "moe/mesh.go", Old: `sub(&m.Replicas, c, replicas)`, New: `if err == nil { m.Replicas, err = c.Split(replicas[0], -c.Rank()) }`,
		Axis: replicas, Tensor: anExpert,
	},
	{
		Name: "ep-rotated", Text: "the ranks of an `ep` group hold the experts of their neighbors",
		File: "moe/layer.go", Old: `at.comm.Rank()*perRank,`, New: `(at.comm.Rank()+1)%at.comm.Size()*perRank,`,
		Axis: "ep > 1", Tensor: expertOrGate,
	},
	{
		Name: "divisor-mesh", Text: "the loss is divided by the tokens of an `ep` group",
		File: "launcher/trainer/state/data.go", Old: `Batch: cfg.Batch, separator`, New: `Batch: cfg.Batch / ranks * cfg.LayoutOrDefault(ranks).EP, separator`,
		Axis: replicas, Tensor: allGradients,
	},
	{
		Name: "divisor-local", Text: "the loss is divided by the tokens of the rank",
		File: "launcher/trainer/state/data.go", Old: `Batch: cfg.Batch, separator`, New: `Batch: cfg.Batch / ranks, separator`,
		Axis: ranks, Tensor: allGradients,
	},
	{
		Name: "padding-counted", Text: "MTP counts the last token of a sequence, which has no target, unless it is the rank's last one",
		File: "moe/join.go", Old: `if (i+1)%b.Seq == 0 {`, New: `if i+1 == len(shifted) {`, Args: "--set model.mtp_layers=1",
		Axis: ranks, Tensor: mtpWeight,
	},
	{
		Name: "balance-group", Text: "the balance loss is averaged over the sequences of an `ep` group",
		File: "moe/balance.go", Old: `float64(p.batch.GlobalSequences)}`, New: `float64(p.batch.GlobalSequences / p.mesh.Layout.Replicas())}`,
		Args: "--set model.balance_alpha=0.01", Axis: replicas, Tensor: router,
	},
	{
		Name: "bias-local", Text: "selection biases follow the loads of the rank",
		File: "launcher/trainer/state/balancer.go", Old: `AllReduce(b.comm, b.Loads,`, New: `AllReduce(b.comm, b.Loads[:0],`,
		Axis: ranks, Tensor: selectionBias,
	},
	{
		Name: "bias-group", Text: "selection biases follow the loads of an `ep` group",
		File: "launcher/trainer/rank.go", Old: `NewBalancer(c, ex`, New: `NewBalancer(r.mesh.EP, ex`,
		Axis: replicas, Tensor: selectionBias,
	},
	{
		Name: "capacity-by-replica", Text: "the capacity of an expert bounds the rows of one replica",
		File: "collective/ep/onesided.go", Old: `all, err := s.replicas.count(s.chosen, s.Options)`,
		New:  `all, err := s.replicas.count(s.chosen, Options{}); s.Options.limit(all[:len(s.all)], s.layout.Experts)`,
		Args: "--set ep_capacity=1.1", Axis: replicas, Tensor: anExpert,
	},
	{
		Name: "norm-one-replica", Text: "the gradient norm has the slices of the first replica of an expert only",
		File: "moe/optim/optimizer.go", Old: `squares.Add(x)`,
		New:  `if !s.group.Experts || s.group.Ranks == nil || s.group.Ranks.Rank() == 0 { squares.Add(x) }`,
		Args: "--set optimizer.clip_norm=0.01", Axis: replicas, Tensor: allGradients,
	},
	{
		Name: "norm-twice", Text: "the gradient norm counts an expert once per replica",
		File: "moe/optim/optimizer.go", Old: `squares.Add(x)`,
		New:  `n := 1; if s.group.Experts && s.group.Ranks != nil { n = s.group.Ranks.Size() }; for range n { squares.Add(x) }`,
		Args: "--set optimizer.clip_norm=0.01", Axis: replicas, Tensor: allGradients,
	},
	{
		Name: "zero-slice", Text: "the update of a ZeRO slice leaves out its last element",
		File: "moe/optim/optimizer.go", Old: `update(o.ex, run(0, s.len(), s.work()))`, New: `n := max(s.len()-1, 0); update(o.ex, run(0, n, s.work().Slice(0, n)))`,
		Args: "--set guard.every=0", Axis: ranks, Tensor: anyWeight,
	},
	{
		Name: "zero-shift", Text: "a ZeRO slice is updated with gradients that begin one element early",
		File: "moe/optim/optimizer.go", Old: `Grad: grad.Slice(lo, hi)`, New: `Grad: s.group.Grad.Slice(max(s.lo-1, 0)+lo, max(s.lo-1, 0)+hi+0*grad.Len())`,
		Axis: ranks, Tensor: anyWeight,
	},
	{
		Name: "wrong-slice", Text: "a ZeRO slice is updated with the gradients of another slice",
		File: "moe/optim/optimizer.go", Old: `Grad: grad.Slice(lo, hi)`, New: `Grad: s.group.Grad.Slice(s.group.Len()-s.hi+lo, s.group.Len()-s.hi+hi+0*grad.Len())`,
		Axis: ranks, Tensor: anyWeight,
	},
	{
		Name: "bias-rows", Text: "the gradient of attention's biases sums the rows of a rank without its sequences' tree",
		File: "moe/sums.go", Old: `max(dy.Dim(0)/max(len(p.sequences), 1), 1), adds`, New: `max(dy.Dim(0), 1), adds`,
		Args: groupedQueries, Axis: ranks, Tensor: attentionBias,
	},
	{
		Name: "head-norm-rows", Text: "the gradient of the norms of heads sums the rows of a rank without its sequences' tree",
		File: "moe/norm.go", Old: `max(seq*l.heads/max(l.tokens, 1), 1)`, New: `max(seq*l.heads/max(l.tokens, 1), (l.heads-1)<<30)`,
		Args: groupedQueries, Axis: ranks, Tensor: headNorm,
	},
	{
		Name: "stale-codes", Text: "the quantized copies of weights that several ranks have stay those of the first step",
		File: "moe/optim/optimizer.go", Old: `if s.last && !updated(s) {`, New: `if s.last && !updated(s) && (o.steps == 0 || !s.group.Shared) {`,
		Args: "--precision mxfp8 --optimizer.lr 0.1", Axis: ranks, Tensor: anyWeight,
	},
	{
		Name: "stale-gather", Text: "updated norms and routers are not gathered",
		File: "moe/optim/optimizer.go", Old: `if s.peers != nil {
		if err := s.publish()`, New: `if s.peers != nil && (s.group.Shared || o.steps == 0) {
		if err := s.publish()`,
		Args: "--set guard.every=0", Axis: ranks, Tensor: anyWeight,
	},
	{
		Name: "data-order", Text: "the ranks of an `ep` group read the same rows",
		File: "launcher/trainer/rank.go", Old: `j.loader(r.mesh.World.Rank() /`, New: `j.loader(r.mesh.World.Rank() / r.mesh.Layout.EP * r.mesh.Layout.EP /`,
		Axis: "ep > 1", Tensor: anyWeight,
	},
	{
		Name: "passes-by-rank", Text: "the passes of a rank divide its own rows, not those of a pass of all ranks",
		File: "launcher/trainer/job.go", Old: `Passes: j.cfg.PassSizes(j.ranks)`, New: `Passes: nil`,
		Args: "--micro-batch 1", Axis: ranks, Tensor: anyWeight,
	},
	{
		Name: "last-pass-summed", Text: "of several passes, only the last one's gradients of norms and routers are summed over ranks",
		File: "moe/slice_sum.go", Old: `err := s.reduce(to)`, New: `err := error(nil); tensor.Convert(p.ex, to.Mat(), s.own.Mat())`,
		Args: "--micro-batch 1", Axis: ranks, Tensor: normOrGate,
	},
	{
		Name: "seed-by-rank", Text: "ranks draw first weights with seeds of their own",
		File: "moe/optim/optimizer.go", Old: `p.Offset+first, seed)`, New: `p.Offset+first, seed+uint64(o.comm.Rank()))`,
		Axis: ranks, Tensor: anyWeight,
	},
	{
		Name: "shards-mirrored", Text: "a checkpoint has the pieces of a parameter in reverse order",
		File: "launcher/trainer/state/rank.go", Old: `Offset: int64(p.Offset)}`, New: `Offset: int64(p.Param.Len() - p.Offset - len(p.Master))}`,
		Axis: ranks, Tensor: matrix,
	},
	{
		Name: "moments-mirrored", Text: "a checkpoint has the moments of another piece of the parameter",
		File: "launcher/trainer/state/rank.go", Old: `if v.Data.DType() == tensor.BF16 {`,
		New: `if v.Name == "exp_avg_sq" { c.Offset = int64(p.Param.Len() - p.Offset - len(p.Master)) }
			if v.Data.DType() == tensor.BF16 {`,
		Axis: ranks, Tensor: matrix,
	},
	{
		Name: "context-norm-lost", Text: "with shared sequences, the gradient of a norm has the rank's own part of the sequence",
		File: "moe/contextparallel.go", Old: `dw[lo:hi], all)`, New: `dw[lo:hi], all[c.rank:c.rank+1])`,
		Args: contexts, Axis: shares, Tensor: aNorm,
	},
	{
		Name: "context-dense-lost", Text: "a dense gradient has the first part of each shared sequence only",
		File: "moe/sum_host.go", Old: `some := lists[first : first+parts]`, New: `some := lists[first : first+1]`,
		Args: contexts, Axis: shares, Tensor: denseWeight,
	},
	{
		Name: "context-dense-twice", Text: "a dense gradient has the first part of each shared sequence twice",
		File: "moe/sum_host.go", Old: `some := lists[first : first+parts]`, New: `some := append(lists[first:first+parts:first+parts], lists[first])`,
		Args: contexts, Axis: shares, Tensor: denseWeight,
	},
	{
		Name: "context-router-all", Text: "all ranks that share a sequence count the router's gradient",
		File: "moe/contextparallel.go", Old: `if p.cp.rank != reader {`, New: `if p.cp.rank < 0 && reader >= 0 {`,
		Args: contexts, Axis: shares, Tensor: router,
	},
	{
		Name: "context-embedding", Text: "with shared sequences, the embedding's gradient has the tokens of the first ranks only",
		File: "moe/embedded.go", Old: `p.batch.Seq, p.cp.parts(), batches)`, New: `p.batch.Seq, p.cp.parts(), batches[:len(batches)/p.cp.parts()])`,
		Args: contexts, Axis: shares, Tensor: embedding,
	},
	{
		Name: "context-positions", Text: "rotary positions begin at 0 in each part of a sequence",
		File: "moe/contextparallel.go", Old: `return table.From(p.cp.first()), p.cp.tokens`, New: `return table.From(0), p.cp.tokens`,
		Args: contexts, Axis: shares, Tensor: anyWeight,
	},
	{
		Name: "context-heads", Text: "a rank that shares a sequence computes the heads of its neighbor",
		File: "moe/contextparallel.go", Old: `from.ColSlice(c.rank*cols, (c.rank+1)*cols)`, New: `from.ColSlice((c.ranks-1-c.rank)*cols, (c.ranks-c.rank)*cols)`,
		Args: contexts, Axis: shares, Tensor: anyWeight,
	},
	{
		Name: "context-balance", Text: "the balance loss counts the choices in the rank's part of a sequence",
		File: "moe/balance.go", Old: `range of.I32()`, New: `range counts.I32()`,
		Args: contexts + " --set model.balance_alpha=0.01", Axis: shares, Tensor: router,
	},
	{
		Name: "context-mask", Text: "a token of a shared sequence attends to its own part only",
		File: "moe/attention.go", Old: `	s.score(p, top)
	s.o`,
		New: `	if p.cp != nil { s.shape.Seq, s.shape.Batch = p.cp.tokens, p.cp.ranks }; s.score(p, top)
	s.o`,
		Args: contexts, Axis: shares, Tensor: anyWeight,
	},
	{
		Name: "tensor-gather", Text: "with divided products, a rank multiplies its own rows in place of those of others",
		File: "moe/tensorparallel.go", Old: `if c.lo == c.hi {`,
		New: `for i := range lists { // results go where they belong
			lists[i] = append(lists[i][:1:1], mine[1:]...)
		}
		if c.lo == c.hi {`,
		Args: products, Axis: divides, Tensor: anyWeight,
	},
	{
		Name: "tensor-columns", Text: "a rank stores its columns of a product in the place of those of another rank",
		File: "moe/tensorparallel.go", Old: `to = to.ColSlice(c.lo, c.hi)`, New: `to = to.ColSlice(c.y.Dim(1)-c.hi, c.y.Dim(1)-c.lo)`,
		Args: products, Axis: divides, Tensor: anyWeight,
	},
	{
		Name: "tensor-outputs", Text: "the gradient of an input is the sum over the rank's outputs only",
		File: "moe/tensorparallel.go", Old: `l.sum.Multiply(p.ex, to, dy.Mat(), w)`,
		New: `n := dy.Dim(1) / p.cp.tensor.comm.Size()
			first := n * p.cp.tensor.comm.Rank()
			l.sum.Multiply(p.ex, to, dy.Mat().ColSlice(first, first+n), w.RowSlice(first, first+n))`,
		Args: products, Axis: divides, Tensor: anyWeight,
	},
	{
		Name: "tensor-doubled", Text: "with divided products, the gradient of an input is doubled",
		File: "moe/tensorparallel.go", Old: `l.sum.Multiply(p.ex, to, dy.Mat(), w)`,
		New:  `l.sum.Multiply(p.ex, to, dy.Mat(), w); tensor.Add(p.ex, to, to, to)`,
		Args: products, Axis: divides, Tensor: anyWeight,
	},
	{
		Name: "tensor-weight-all", Text: "a dense gradient has each sequence once per rank that divides its products",
		File: "moe/sum_host.go", Old: `sum := l.gradientTree(p, own, len(lists)/parts, false)`,
		New: `all := lists; lists = nil
	for i := 0; i < len(all); i += parts {
		for range p.mesh.Layout.Tensor() { lists = append(lists, all[i:i+parts]...) }
	}
	sum := l.gradientTree(p, own, len(lists)/parts, false)`,
		Args: products, Axis: divides, Tensor: denseWeight,
	},
	{
		Name: "tensor-norm", Text: "the gradient norm lacks the experts of every second rank that divides products",
		File: "moe/optim/optimizer.go", Old: `squares.Add(x)`, New: `if !s.group.Experts || o.comm.Rank()%2 == 0 { squares.Add(x) }`,
		Args: "--tp 2 --seq 128 --set optimizer.clip_norm=0.01", Axis: divides, Tensor: allGradients,
	},
	{
		Name: "tensor-expert-scale", Text: "with divided products, the gradients of experts without replicas are divided by `tp`",
		File: "moe/pass.go", Old: `g.completeGrad(w)`,
		New: `if g.Experts && m.mesh.Replicas == nil && !ex.Dry() {
				for i := range g.Grad.F32() { g.Grad.F32()[i] /= float32(m.mesh.Layout.Tensor()) }
			}
			g.completeGrad(w)`,
		Args: products + " --set guard.every=0 --set guard.replay=0", Axis: divides, Tensor: anExpert,
	},
	{
		Name: "tensor-expert-sum", Text: "at ep 1, the gradients of experts are not summed over ranks that divide products",
		File: "moe/replicas.go", Old: `for _, list := range lists {
			parts =`,
		New: `for r, list := range lists {
			if n := p.mesh.Layout.Tensor(); p.mesh.Layout.EP == 1 && r%n != l.owner.(*rowSums).peers.comm.Rank()%n { continue }
			parts =`,
		Args: products, Axis: divides, Tensor: anExpert,
	},
	{
		Name: "tensor-router-part", Text: "at ep 1, the router's gradient has the tokens of one rank of those that divide products",
		File: "moe/contextparallel.go", Old: `left := tensor.MatrixFromBytes(list[0], dy.DType()`,
		New:  `if l := p.mesh.Layout; l.TP > 1 && l.EP == 1 && r > 0 { continue }; left := tensor.MatrixFromBytes(list[0], dy.DType()`,
		Args: products, Axis: divides, Tensor: router,
	},
	{
		Name: "router-detached", Text: "the router has no gradient of choices whose expert another rank has",
		File: "moe/layer.go", Old: `routed := r.backward(p, dweights, s.dscores, &s.router)`,
		New: `for i, e := range s.router.experts.I32() {
		if !ex.Dry() && int(e)/(r.cfg.Experts/p.mesh.Layout.EP) != p.mesh.EP.Rank() { dweights.F32()[i] = 0 }
	}
	routed := r.backward(p, dweights, s.dscores, &s.router)`,
		Axis: "ep > 1", Tensor: router,
	},
	{
		Name: "router-times-ep", Text: "the router's gradient through the choices counts `ep` times",
		File: "moe/layer.go", Old: `routed := r.backward(p, dweights, s.dscores, &s.router)`,
		New: `for i := range dweights.F32() { if ex.Dry() { break }; dweights.F32()[i] *= float32(p.mesh.Layout.EP) }
	routed := r.backward(p, dweights, s.dscores, &s.router)`,
		Axis: "ep > 1", Tensor: router,
	},
	{
		Name: "expert-twice", Text: "at ep > 1, the gradient of an expert is added twice",
		File: "moe/layer.go", Old: `drows = l.routed.backward(p, activation{Tensor: drows, rows: arrival.MX}, &s.routed)`,
		New: `drows = l.routed.backward(p, activation{Tensor: drows, rows: arrival.MX}, &s.routed)
	if p.mesh.Layout.EP > 1 { l.routed.backwardWeight(p, &s.routed) }`,
		Axis: "ep > 1", Tensor: anExpert,
	},
	{
		Name: "expert-without-rows", Text: "at ep > 1, an expert without tokens keeps the gradient of the step before",
		File: "moe/linear.go", Old: `l.sum.MultiplyGroupsWgrad(p.ex, l.byGroups(to), dy.Mat(), x.Mat(), x.ends, adds)`,
		New: `var before []float32
		if !p.ex.Dry() && p.mesh.Layout.EP > 1 { before = append(before, to.F32()...) }
		l.sum.MultiplyGroupsWgrad(p.ex, l.byGroups(to), dy.Mat(), x.Mat(), x.ends, adds)
		for g, n := 0, len(before)/len(x.ends); n > 0 && g < len(x.ends); g++ {
			if x.ends[g] == 0 || g > 0 && x.ends[g] == x.ends[g-1] { copy(to.F32()[g*n:(g+1)*n], before[g*n:]) }
		}`,
		Args: "--set model.experts=128 --seq 32 --batch 4", Axis: "ep > 1", Tensor: anExpert,
	},
}
