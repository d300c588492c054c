// Package profile measures where the time of a step goes. A Timer is in exactly one family of work
// at any moment, so the times of the families add up to the time of the step.
package profile

import "time"

// Family is a kind of work. The products of a layer have their own families, see [Product].
type Family uint8

// The families.
const (
	Rest        Family = iota // work outside all other families
	Data                      // reading the batch
	Rows                      // norms, activations, residuals, rotary embedding and embedding
	Attention                 // scores, softmax and values with their products
	Router                    // scores and choice of the experts without the products
	Quantize                  // activations, gradients and weights to block formats, unless an update does that on its way
	Loss                      // cross-entropy without the products
	Exchange                  // dispatch and combine: packing and copying rows
	Collectives               // sums and gathers over the ranks: copying and adding
	Optimizer                 // the update of the weights and of what is derived from them while in cache
	Guards                    // checksums of weights and of the optimizer state
	Recompute                 // recomputation of activations for the backward pass, in any family
	Helping                   // doing the work of other ranks instead of waiting for them
	Waiting                   // for other ranks, in any family
	products
)

var names = [products]string{
	"rest", "data loading", "row operations", "attention", "router", "quantize", "loss", "exchange", "collectives", "optimizer", "guards", "recompute", "helping", "waiting",
}

// Format is a number format of products.
type Format uint8

// The formats.
const (
	FP32 Format = iota
	BF16
	MX
)

// Pass is one of the three products of a layer.
type Pass uint8

// The passes: y = x·Wᵀ, dx = dy·W and dW += dyᵀ·x.
const (
	Forward Pass = iota
	Dgrad
	Wgrad
)

// Families is the number of families.
const Families = int(products) + 3*2*3

// Product returns the family of a product. Grouped products have one product for each group of
// rows.
func Product(format Format, grouped bool, pass Pass) Family {
	i := Family(format)
	i *= 2
	if grouped {
		i++
	}
	return products + 3*i + Family(pass)
}

// String returns the name, such as "optimizer" or "bf16 grouped wgrad".
func (f Family) String() string {
	if f < products {
		return names[f]
	}
	i := f - products
	name := [...]string{"fp32 ", "bf16 ", "mx "}[i/6]
	if i/3%2 == 1 {
		name += "grouped "
	}
	return name + [...]string{"forward", "dgrad", "wgrad"}[i%3]
}

// Times holds the time of each family, indexed by Family.
type Times [Families]time.Duration

// Total returns the time of all families together.
func (t *Times) Total() (sum time.Duration) {
	for _, d := range t {
		sum += d
	}
	return sum
}

// Add adds the times of other.
func (t *Times) Add(other *Times) {
	for f, d := range other {
		t[f] += d
	}
}

// A Timer measures where the time of one goroutine goes. All methods of a nil Timer do nothing.
type Timer struct {
	// Trace, if it is set, is called for every stretch of time in one family, in order. Times are
	// those of the timer's clock, and a stretch includes the waiting within it.
	Trace func(f Family, from, to time.Duration)

	now, waited func() time.Duration
	family      Family        // that gets the time since at
	recomputing bool          // the work counts as Recompute
	at          time.Duration // the time of the last switch
	waits       time.Duration // the time spent waiting until then
	times       Times
}

// NewTimer returns a Timer. It takes a clock and a function that returns the time that the
// goroutine has spent waiting for others, both since any moment.
func NewTimer(now, waited func() time.Duration) *Timer { return &Timer{now: now, waited: waited} }

// Start starts to measure in family Rest and discards earlier times.
func (t *Timer) Start() {
	if t == nil {
		return
	}
	t.family, t.recomputing, t.at, t.waits, t.times = Rest, false, t.now(), t.waited(), Times{}
}

// Stop returns the times since Start.
func (t *Timer) Stop() Times {
	if t == nil {
		return Times{}
	}
	t.Switch(Rest)
	return t.times
}

// Switch announces work of family f. It returns the family of the work before, which the caller
// restores at its end:
//
//	defer t.Switch(t.Switch(profile.Attention))
//
// A product within a product counts as the outer one, such as that of one group within a grouped
// product. Products within attention count as attention.
func (t *Timer) Switch(f Family) (before Family) {
	if t == nil {
		return Rest
	}
	if f >= products && (t.family >= products || t.family == Attention) {
		f = t.family
	}
	counted := t.family
	if t.recomputing {
		counted = Recompute
	}
	now, waits := t.now(), t.waited()
	t.times[counted] += now - t.at - (waits - t.waits)
	t.times[Waiting] += waits - t.waits
	if t.Trace != nil && now > t.at {
		t.Trace(counted, t.at, now)
	}
	before, t.family, t.at, t.waits = t.family, f, now, waits
	return before
}

// SetRecompute starts or ends the recomputation of activations for the backward pass. Its work
// counts as Recompute, whatever its family.
func (t *Timer) SetRecompute(on bool) {
	if t == nil {
		return
	}
	t.Switch(t.family)
	t.recomputing = on
}
