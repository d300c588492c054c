// Package profile says where the time of a step goes. A Timer is in one family of work at any
// moment, so the families' times add up to the step's.
package profile

import "time"

// Family is a kind of work. Products of a layer have families of their own, see [Product].
type Family uint8

// The families.
const (
	Rest        Family = iota // what no other family claims
	Data                      // reading the batch
	Rows                      // norms, activations, residuals, rotary embedding, embedding
	Attention                 // scores, softmax and values, their products included
	Router                    // scores of the experts and their choice, the products aside
	Quantize                  // to block formats, of activations, gradients and weights, unless an update does that on its way
	Loss                      // cross-entropy, the products aside
	Exchange                  // dispatch and combine: packing and copying rows
	Collectives               // sums and gathers over the ranks: copying and adding
	Optimizer                 // the update of the weights, and of what is derived from them where caches still hold them
	Guards                    // checksums of weights and of the optimizer's state
	Recompute                 // activations that are made anew for the backward pass, in whatever family
	Helping                   // other ranks, instead of waiting for them
	Waiting                   // for other ranks, in whatever family
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

// Product returns the family of a product, or of one for each of several groups of rows.
func Product(format Format, grouped bool, pass Pass) Family {
	i := Family(format)
	i *= 2
	if grouped {
		i++
	}
	return products + 3*i + Family(pass)
}

// String names the family, such as "optimizer" or "bf16 grouped wgrad".
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

// Times has the time of each family, by its number.
type Times [Families]time.Duration

// Total returns the time of all families together.
func (t *Times) Total() (sum time.Duration) {
	for _, d := range t {
		sum += d
	}
	return sum
}

// Add adds other's times.
func (t *Times) Add(other *Times) {
	for f, d := range other {
		t[f] += d
	}
}

// A Timer measures where one goroutine's time goes. All methods of a nil Timer do nothing.
type Timer struct {
	// Trace, unless it is nil, is told of every stretch of time that was all of one family, in
	// order; times are by the timer's clock, and what was waited in between is part of it.
	Trace func(f Family, from, to time.Duration)

	now, waited func() time.Duration
	family      Family        // that the time since at counts for,
	again       bool          // unless it counts for Recompute
	at          time.Duration // by now
	waits       time.Duration // by waited, at that time
	times       Times
}

// NewTimer returns a Timer by a clock and by the time that the goroutine has waited for others,
// both since any moment.
func NewTimer(now, waited func() time.Duration) *Timer { return &Timer{now: now, waited: waited} }

// Start begins to measure, in family Rest, and forgets what was measured before.
func (t *Timer) Start() {
	if t == nil {
		return
	}
	t.family, t.again, t.at, t.waits, t.times = Rest, false, t.now(), t.waited(), Times{}
}

// Stop returns the times since Start.
func (t *Timer) Stop() Times {
	if t == nil {
		return Times{}
	}
	t.Switch(Rest)
	return t.times
}

// Switch says that what follows is work of family f, and returns the family of what was before, to
// return to. A function that is of one family says so, and that its caller's goes on after it, by
//
//	defer t.Switch(t.Switch(profile.Attention))
//
// A product within a product, such as one group's within that of all, counts for the outer one, as
// one within attention does.
func (t *Timer) Switch(f Family) (before Family) {
	if t == nil {
		return Rest
	}
	if f >= products && (t.family >= products || t.family == Attention) {
		f = t.family
	}
	counted := t.family
	if t.again {
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

// Again says whether the work that follows is made anew for the backward pass: it counts for
// Recompute, whatever its family.
func (t *Timer) Again(on bool) {
	if t == nil {
		return
	}
	t.Switch(t.family)
	t.again = on
}
