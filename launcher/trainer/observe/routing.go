package observe

// The routing of a run's tokens, for the meter of a job.

import (
	"fmt"

	"spmoe/collective"
	"spmoe/launcher/trainer/events"
	"spmoe/launcher/trainer/state"
	"spmoe/tensor"
)

// RoutingObserver passes a model's routing to a meter.
type RoutingObserver struct {
	meter events.RoutingMeter
	state *state.TrainState
}

// NewRoutingObserver returns nil if create is nil or the model has no experts.
func NewRoutingObserver(create func(events.Routing) (events.RoutingMeter, error), of events.Routing, s *state.TrainState) (*RoutingObserver, error) {
	if create == nil || len(of.Layers) == 0 {
		return nil, nil
	}
	meter, err := create(of)
	return &RoutingObserver{meter, s}, err
}

func (o *RoutingObserver) before() {
	o.state.Observe(func(name string, t tensor.Tensor) {
		if layer, ok := layerOfChoices(name); ok {
			o.meter.Choices(layer, t.I32(), t.Dim(1))
		}
	})
}

func (o *RoutingObserver) after(rows []int32) {
	o.state.Observe(nil)
	o.meter.Step(o.state.Balancer.Loads, rows)
}

// report ends the measurement. It is collective.
func (o *RoutingObserver) report(c *collective.Comm, p events.Profile) error {
	if o == nil {
		return nil
	}
	return o.meter.Report(c, p)
}

// layerOfChoices returns the layer whose expert choices an activation with this name holds:
// [tokens, top-k] INT32.
func layerOfChoices(name string) (layer int, ok bool) {
	n, err := fmt.Sscanf(name, "layer%d_topk_index", &layer)
	return layer, n == 1 && err == nil
}
