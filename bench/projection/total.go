package projection

// The whole model from its parts, with the costs of its pipeline, its data parallelism and its
// optimizer.

// blocks holds the costs of the model's parts: a dense layer, one with experts, the head, the MTP
// module.
type blocks struct{ dense, moe, head, mtp costs }

func (e *estimator) blocks() (b blocks) {
	m := e.model
	if m.DenseLayers > 0 {
		b.dense = e.layer(m.denseLayer(), float64(m.DenseInter))
		e.hostBound(&b.dense, m.denseLayer())
	}
	inter := float64((m.TopK + m.SharedExperts) * m.ExpertInter)
	if m.mainMoE() > 0 {
		b.moe = e.layer(m.moeLayer(), inter)
		e.routed(&b.moe)
		e.hostBound(&b.moe, m.moeLayer())
	}
	e.linears(&b.head, m.head())
	// Logits are written, read and replaced by their gradient.
	touches := 6.0
	if e.stack.FusedLoss {
		touches = 2
	}
	b.head[Rowwise] += millis(touches*float64(m.Vocab), e.set[rowwiseShare]*e.hbm())
	if m.MTPLayers > 0 {
		b.mtp = e.layer(m.mtp(), inter)
		e.routed(&b.mtp)
		e.hostBound(&b.mtp, m.mtp())
		b.mtp.add(costs{Rowwise: b.head[Rowwise]}, 1)
	}
	return b
}

// total adds up the model and the costs of its pipeline, its data parallelism and its optimizer.
// The residual is framework time and lies within the pipeline.
func (e *estimator) total() costs {
	b := e.blocks()
	var c costs
	c.add(b.dense, float64(e.model.DenseLayers))
	c.add(b.moe, float64(e.model.mainMoE()))
	c.add(b.head, 1)
	c.add(b.mtp, 1)
	c[Residual] = e.run.Residual
	c[Pipeline] = c.sum() * (e.pipelineFactor(b) - 1)
	c[DataComm], c[Update] = e.dataParallel()
	return c
}

// pipelineFactor returns the time of a pipeline over that of GPUs that are all busy: uneven stages
// times bubble.
func (e *estimator) pipelineFactor(b blocks) float64 {
	if e.run.PP == 1 {
		return 1
	}
	var list []float64
	for range e.model.DenseLayers {
		list = append(list, b.dense.sum())
	}
	for range e.model.mainMoE() {
		list = append(list, b.moe.sum())
	}
	list = append(list, b.head.sum())
	if e.model.MTPLayers > 0 {
		list = append(list, b.mtp.sum())
	}
	return cut(list, e.run.stages()) * (1 + e.run.bubble())
}

// dataParallel returns the time of the gradients' reduce-scatter (FP32) and the weights' all-gather
// (BF16) that is not hidden, and of the update.
func (e *estimator) dataParallel() (comm, update float64) {
	r, m := e.run, e.model
	c := m.Count(r.Seq)
	routed := float64(m.mainMoE()*m.Experts) * 3 * float64(m.Dim) * float64(m.ExpertInter)
	dense := c.Total - routed
	bytes := func(params float64, group, spanned int) float64 { // seconds
		if group <= 1 {
			return 0
		}
		rate := e.gpu.NVLinkCollective.Value * e.gpu.NVLink.Value * 1e9
		if float64(spanned) > e.gpu.Domain.Value {
			rate = e.set[nicCollective] * e.nic()
		}
		return params * 6 * float64(group-1) / float64(group) / rate
	}
	perStage := 1 / float64(r.PP)
	seconds := bytes(dense*perStage/float64(r.TP), r.dp(), r.dp()*r.TP) + bytes(routed*perStage/float64(r.EP), r.GPUs/(r.EP*r.PP), r.GPUs/r.PP)
	if r.PP == 1 && e.stack.FSDP { // weights are gathered once more for the backward pass
		seconds *= 4.0 / 3
	}
	n := r.tokensPerGPU()
	comm = 1e3 * seconds * (1 - e.stack.DPHidden) / n
	update = millis((dense+routed)/float64(r.GPUs)*e.set[optimizerBytes], e.set[rowwiseShare]*e.hbm()) / n
	return comm, update
}
