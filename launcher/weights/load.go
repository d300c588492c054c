package weights

// Loading: a rank reads its part of a model, and nothing else.

import (
	"fmt"

	"spmoe/moe"
	"spmoe/moe/optim"
	"spmoe/tensor"
	"spmoe/tensor/profile"
)

// Load fills the working weights and selection biases of this rank's part of a model, rounded once
// to their types, and updates what is derived from them. A router whose bias the source lacks gets
// zeros. Load is collective.
func (s *Source) Load(ex *tensor.Exec, m *moe.Model) error {
	buffer := make([]float32, chunk)
	for _, g := range m.Groups {
		if err := s.fillGroup(ex, g, buffer); err != nil {
			return err
		}
		if err := g.Refresh(ex); err != nil {
			return err
		}
	}
	return s.loadBiases(m.Routings())
}

// fillGroup sets the working weights of a group, through buffer. Ranks that share it read one
// parameter each, in turns.
func (s *Source) fillGroup(ex *tensor.Exec, g *moe.Group, buffer []float32) error {
	rank, ranks := 0, 1
	if g.Shared {
		rank, ranks = g.Host().Rank(), g.Host().Size()
	}
	for i := rank; i < len(g.Params); i += ranks {
		if err := s.fill(ex, g.Params[i], buffer); err != nil {
			return err
		}
	}
	if g.Shared {
		return g.Host().Barrier()
	}
	return nil
}

// Init sets the master weights and the selection biases of this rank to those of the source, and
// publishes them, as the start of a run. Indexers that the source lacks get the initial weights of
// a seed. It is collective.
func (s *Source) Init(ex *tensor.Exec, o *optim.Optimizer, routers []moe.Routing, seed uint64) error {
	for p := range o.Pieces {
		if s.config.IndexHeads == 0 && moe.IsIndexer(p.Param.Name) {
			p.Param.Fill(p.Master, p.Offset, seed)
			continue
		}
		if err := s.read(ex, p.Param, p.Offset, p.Master); err != nil {
			return err
		}
	}
	if err := s.loadBiases(routers); err != nil {
		return err
	}
	return o.Publish()
}

// loadBiases sets the selection biases of routers, and the tables of hash layers. A router whose
// bias the source lacks gets zeros.
func (s *Source) loadBiases(routers []moe.Routing) error {
	for _, route := range routers {
		bias := route.Bias.F32()
		if _, ok := s.entries[route.Name]; !ok && !route.IsTable() {
			clear(bias)
			continue
		}
		if err := s.readFinite(route.Name, route.Bias.Dims(), 0, bias); err != nil {
			return err
		}
		if err := route.CheckTable(); err != nil {
			return fmt.Errorf("%s: %w", s.path, err)
		}
	}
	return nil
}

// read fills dst with elements of a parameter, from number offset on, part by part, so that the
// rank's progress shows that it is not hung.
func (s *Source) read(ex *tensor.Exec, p *moe.Param, offset int, dst []float32) error {
	for at := 0; at < len(dst); at += chunk {
		ex.Enter(ex.Enter(profile.Data))
		if err := s.readFinite(p.Name, p.Dims, int64(offset+at), dst[at:min(at+chunk, len(dst))]); err != nil {
			return err
		}
	}
	return nil
}

// readFinite is ReadInto for weights to train or to use: it returns an error if one is NaN or
// infinite.
func (s *Source) readFinite(name string, shape []int, offset int64, dst []float32) error {
	if err := s.ReadInto(name, shape, offset, dst); err != nil {
		return err
	}
	for i, v := range dst {
		if v-v != 0 {
			return fmt.Errorf("%s: tensor %q is unusable: element %d is %v: use other weights, such as an earlier checkpoint", s.path, name, offset+int64(i), v)
		}
	}
	return nil
}

// fill sets the working weights of a parameter, through buffer.
func (s *Source) fill(ex *tensor.Exec, p *moe.Param, buffer []float32) error {
	if p.Work.DType() == tensor.FP32 {
		return s.read(ex, p, 0, p.Work.F32())
	}
	work := p.Work.BF16()
	for at := 0; at < len(work); at += len(buffer) {
		part := buffer[:min(len(buffer), len(work)-at)]
		if err := s.read(ex, p, at, part); err != nil {
			return err
		}
		tensor.Round(work[at:at+len(part)], part)
	}
	return nil
}
