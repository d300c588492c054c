package reference

import "fmt"

// Forward runs the module.
func (m *Module) Forward(call Call) (*Pass, error) {
	return nil, fmt.Errorf("%s: no formula for %s yet", m.Path, m.Kind)
}

// Backward returns the gradients of the inputs and of the parameters by name, from those of the
// outputs, in the outputs' dimensions. A gradient without Data is zero.
func (p *Pass) Backward(gradOut []Tensor) (in []Tensor, params map[string]Tensor) {
	return nil, nil
}
