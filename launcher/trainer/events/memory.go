package events

// Largest returns the name and the size of the largest part.
func (m Memory) Largest() (name string, size int64) {
	names := [...]string{
		"the weights", "the gradients", "the optimizer's state", "activations",
		"the copy that is saved while training continues", "the program with its text and processes",
	}
	for i, part := range m.parts() {
		if *part > size {
			name, size = names[i], *part
		}
	}
	return name, size
}

// parts returns the parts in the order of the fields.
func (m *Memory) parts() [6]*int64 {
	return [...]*int64{&m.Weights, &m.Gradients, &m.Optimizer, &m.Activations, &m.Snapshot, &m.Process}
}

// Memory is an estimate of the memory of one rank, in bytes.
type Memory struct {
	// working weights with their quantized forms: this rank's experts, norms, and its share of the
	// dense weights, which exist once on a host
	Weights   int64 `json:"weights"`
	Gradients int64 `json:"gradients"` // FP32, of the same weights
	// this rank's FP32 master weights and the vectors of its rule
	Optimizer int64 `json:"optimizer"`
	// what a pass saves for its backward pass, and the most scratch memory at once
	Activations int64 `json:"activations"`
	// copy of the optimizer's state that is saved while training continues
	Snapshot int64 `json:"snapshot"`
	// this rank's share of everything else in the process of goroutine ranks: see processBytes
	Process int64 `json:"process"`
}

// Total returns the sum.
func (m Memory) Total() (sum int64) {
	for _, part := range m.parts() {
		sum += *part
	}
	return sum
}

// Plus adds two estimates, part by part. Each sum is capped like its parts.
func (m Memory) Plus(o Memory) Memory {
	for i, part := range m.parts() {
		*part = min(*part+*o.parts()[i], MostBytes)
	}
	return m
}

// MostBytes is beyond any machine, and small enough that sums of estimates do not overflow.
const MostBytes = 1 << 56

// Product multiplies sizes, which users choose. It is capped at mostBytes, so that sums of products
// do not overflow.
func Product(factors ...int64) int64 {
	p, estimate := int64(1), 1.0
	for _, f := range factors {
		p *= f
		estimate *= float64(f)
	}
	if estimate > MostBytes {
		return MostBytes
	}
	return p
}

// Times returns the memory of n ranks.
func (m Memory) Times(n int) Memory {
	for _, part := range m.parts() {
		*part = Product(*part, int64(n))
	}
	return m
}
