package trainer

// The routing of a run's tokens, for the meter of a job.

import (
	"spmoe/collective"
	"spmoe/tensor"
)

// A RoutingMeter counts the destinations of one rank's tokens.
type RoutingMeter interface {
	// Choices counts topk, [tokens, slots] expert ids of this rank's tokens in a layer. -1 means no
	// expert.
	Choices(layer int, topk []int32, slots int)

	// Step counts a step: loads, [layers, experts], of all ranks' tokens, and this rank's
	// sequences, [n, seq+1].
	Step(loads []int64, rows []int32)

	// Report ends the measurement, with the profile of the run. It is collective.
	Report(c *collective.Comm, p Profile) error
}

// Routing describes the run to a RoutingMeter.
type Routing struct {
	Layers    []int // that have experts
	Ranks     int   // that exchange tokens with each other
	Cores     int   // of all ranks
	Separator int32 // the token between documents; -1: none
}

// routingObserver passes a model's routing to a meter. It is an [observer].
type routingObserver struct {
	meter RoutingMeter
	state *trainState
}

// newRoutingObserver returns nil if create is nil or the model has no experts.
func newRoutingObserver(create func(Routing) (RoutingMeter, error), of Routing, s *trainState) (*routingObserver, error) {
	if create == nil || len(of.Layers) == 0 {
		return nil, nil
	}
	meter, err := create(of)
	return &routingObserver{meter, s}, err
}

// Before implements [observer].
func (o *routingObserver) Before(int) {
	o.state.observe(func(name string, t tensor.Tensor) {
		if layer, ok := layerOfChoices(name); ok {
			o.meter.Choices(layer, t.I32(), t.Dim(1))
		}
	})
}

// After implements [observer].
func (o *routingObserver) After(s finishedStep) error {
	o.state.observe(nil)
	o.meter.Step(o.state.balancer.loads, s.rows)
	return nil
}

// report ends the measurement. It is collective.
func (o *routingObserver) report(c *collective.Comm, p Profile) error {
	if o == nil {
		return nil
	}
	return o.meter.Report(c, p)
}
