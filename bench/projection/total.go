package projection

// The whole model from its parts, with the costs of its pipeline, its data parallelism and its
// optimizer.

// part is a number of layers that cost the same, the head, or an MTP module.
type part struct {
	layers int
	costs  costs
}

// parts returns the costs of the model's layers, of its head, and of its MTP module.
func (e *estimator) parts() (all []part) {
	for _, b := range e.model.Blocks() {
		all = append(all, part{b.Layers, e.block(b)})
	}
	var head costs
	e.linears(&head, e.model.head())
	// Logits are written, read and replaced by their gradient.
	touches := 6.0
	if e.stack.FusedLoss {
		touches = 2
	}
	logits := costs{Rowwise: millis(touches*float64(e.model.Vocab), e.set[rowwiseShare]*e.hbm())}
	head.add(logits, 1)
	all = append(all, part{1, head})
	for _, b := range e.model.mtp() {
		c := e.block(b)
		c.add(logits, 1)
		all = append(all, part{b.Layers, c})
	}
	return all
}

// total adds up the model and the costs of its pipeline, its data parallelism and its optimizer.
// The residual is framework time and lies within the pipeline.
func (e *estimator) total() costs {
	var c costs
	all := e.parts()
	for _, p := range all {
		c.add(p.costs, float64(p.layers))
	}
	c[Residual] = e.run.Residual
	c[Pipeline] = c.sum() * (e.pipelineFactor(all) - 1)
	c[DataComm], c[Update] = e.dataParallel()
	return c
}

// pipelineFactor returns the time of a pipeline over that of GPUs that are all busy: uneven stages
// times bubble. Layers of several kinds alternate, unless they are dense ones before the others.
func (e *estimator) pipelineFactor(all []part) float64 {
	if e.run.PP == 1 {
		return 1
	}
	var list []float64
	alternate, mean := e.model.Mamba != nil || e.model.Delta != nil, 0.0
	for _, p := range all {
		for range p.layers {
			list = append(list, p.costs.sum())
		}
	}
	if alternate {
		layers := list[:e.model.Layers]
		for _, ms := range layers {
			mean += ms / float64(len(layers))
		}
		for i := range layers {
			layers[i] = mean
		}
	}
	return cut(list, e.run.stages()) * (1 + e.run.bubble())
}

// dataParallel returns the time of the gradients' reduce-scatter (FP32) and the weights' all-gather
// (BF16) that is not hidden, and of the update.
func (e *estimator) dataParallel() (comm, update float64) {
	r, m := e.run, e.model
	c := m.Count(r.Seq)
	routed := m.routedParams()
	dense := c.Total - routed
	seconds := func(params, each float64, group, spanned int) float64 {
		if group <= 1 {
			return 0
		}
		rate := e.gpu.NVLinkCollective.Value * e.gpu.NVLink.Value * 1e9
		if float64(spanned) > e.gpu.Domain.Value {
			rate = e.set[nicCollective] * e.nic()
		}
		return params * each * float64(group-1) / float64(group) / rate
	}
	n, each := r.tokensPerGPU(), 6.0
	sharded := r.PP == 1 && e.stack.FSDP // weights are gathered for both passes
	if sharded {
		each = 8
	}
	held, mine := dense/float64(r.PP*r.TP), routed/float64(r.PP*r.EP)
	moved := seconds(held, each, r.dp()*r.cp(), r.GPUs/r.PP) + seconds(mine, each, r.GPUs/(r.EP*r.PP), r.GPUs/r.PP)
	comm = 1e3 * moved * (1 - e.stack.DPHidden) / n
	if sharded && e.stack.Copies {
		comm += r.microBatches() / n * millis((held+mine)*e.set[shardBytes], e.set[rowwiseShare]*e.hbm())
	}
	update = millis((dense+routed)/float64(r.GPUs)*e.set[optimizerBytes], e.set[rowwiseShare]*e.hbm()) / n
	return comm, update
}
