package projection

// Questions of effects.py to the formula.

import "fmt"

// Question is a run whose throughput is asked for.
type Question struct {
	ID  string             `json:"id"`
	Run Run                `json:"run"`
	Set map[string]float64 `json:"set,omitempty"` // parameters by name; others have the file's values
	// a run with its published tokens/s, whose residual this run inherits
	From   *Run    `json:"from,omitempty"`
	Tokens float64 `json:"tokens,omitempty"`
}

// Answer is the formula's answer.
type Answer struct {
	ID     string             `json:"id"`
	Tokens float64            `json:"tokens"` // per second and GPU
	MFU    float64            `json:"mfu"`    // of the dense BF16 peak, causal attention
	Memory float64            `json:"memory"` // GB on the fullest GPU
	Terms  map[string]float64 `json:"terms"`  // ms per token
	Traits
}

// Answer computes the throughput. It does not ask whether the run fits in memory.
func (q Question) Answer() (a Answer, err error) {
	set := Central()
	for name, value := range q.Set {
		i, err := parameterIndex(name)
		if err != nil {
			return a, err
		}
		set[i] = value
	}
	if q.From != nil {
		if q.Run.Residual, err = Calibrate(*q.From, q.Tokens, set); err != nil {
			return a, err
		}
	}
	e, err := newEstimator(q.Run, set)
	if err != nil {
		return a, err
	}
	c := e.total()
	tokens := 1e3 / c.sum()
	a = Answer{
		ID: q.ID, Tokens: tokens, MFU: tokens * e.model.TrainFLOPs(q.Run.Seq, true) / 1e12 / e.gpu.BF16.Value,
		Memory: q.Run.memory(e.model).Total(), Terms: map[string]float64{}, Traits: q.Run.Traits(),
	}
	for s, ms := range c {
		if ms != 0 {
			a.Terms[Symbol(s).String()] = ms
		}
	}
	return a, nil
}

func parameterIndex(name string) (int, error) {
	var known []string
	for i, p := range Parameters() {
		if p.Name == name {
			return i, nil
		}
		known = append(known, p.Name)
	}
	return 0, fmt.Errorf("parameter: %w", oneOf("name", name, known))
}
