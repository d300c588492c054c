package moe

// Constants lists the memory that does not change while a model is trained, with a name: slices,
// and pointers to values. It leaves out the elements of parameters and what is derived from them.
func (m *Model) Constants(list func(name string, values ...any)) {
	list("the configuration of the model", &m.Config, &m.precision, &m.stage, &m.output.sizes)
	for _, x := range []*rmsNorm{m.norm, m.mtpNorm} {
		x.constants(list)
	}
	for _, b := range m.blocks {
		b.constants(list)
	}
	cos, sin := m.rope.Elements()
	list("a rotary table", m.rope, cos, sin)
	if m.mtp != nil {
		m.mtp.embedNorm.constants(list)
		m.mtp.hiddenNorm.constants(list)
		m.mtp.block.constants(list)
	}
	for _, g := range m.Groups {
		name := "the shapes of " + g.Name + " parameters"
		list(name, &g.Experts, &g.Shared, &g.Work, &g.Grad)
		for _, p := range g.Params {
			list(name, p)
		}
		for _, w := range g.weights {
			list(name, &w.W, &w.Grad, &w.at, &w.rows, &w.unit)
		}
		for _, l := range g.quantized {
			list("a recipe", &l.mx.Recipe, &l.mx.identity, &l.mx.firstExpert, &l.mx.inference, &l.mx.rows, &l.mx.cols)
		}
	}
}

func (l *rmsNorm) constants(list func(name string, values ...any)) {
	if l != nil {
		list("the epsilon of a norm", &l.eps, &l.heads)
	}
}

func (l *block) constants(list func(name string, values ...any)) {
	list("the configuration of a block", &l.layer)
	l.attention.constants(list)
	l.attnNorm.constants(list)
	l.ffnNorm.constants(list)
	switch f := l.ffn.(type) {
	case *denseFFN:
		list("the configuration of a network", &f.network.inter)
	case *moeLayer:
		list("the configuration of experts", &f.router.cfg, &f.routed.inter)
		if f.shared != nil {
			list("the configuration of experts", &f.shared.network.inter)
		}
		timed, _ := f.exchange.(timedExchange)
		if e, ok := timed.Exchange.(interface{ Constants() []any }); ok {
			list("the settings of the exchange", e.Constants()...)
		}
	}
}
