// Package profile measures how the time of a step divides into families of work. A [Timer] is in
// exactly one family at any moment. The times of all families therefore add up to the time of the
// step.
package profile

import "time"

// Family is a kind of work. Matrix products of a layer have families of their own, see [Product].
type Family uint8

// The families.
const (
	Rest      Family = iota // work of no other family
	Data                    // reading the batch
	Rows                    // norms, activations, residuals, rotary embedding, embedding
	Attention               // scores, softmax and values, including their products
	Router                  // scores and choice of the experts, without the products
	// Quantize is the conversion of activations, gradients and weights to block formats. It
	// excludes conversions that are part of an optimizer update.
	Quantize
	Loss        // cross-entropy, without the products
	Exchange    // dispatch and combine: packing and copying rows
	Collectives // all-gathers and sums over the ranks: copying and adding
	// Optimizer is the update of the weights, and of data derived from them while they are in
	// cache.
	Optimizer
	Guards    // checksums of weights and of the optimizer state
	Recompute // activations computed a second time, in every family
	Helping   // work for other ranks instead of waiting for them
	Waiting   // waiting for other ranks, in every family but Messages
	// Messages is the time for activations and gradients between the stages of a pipeline: waiting
	// for them, and copying them.
	Messages
	products
)

var names = [products]string{
	"rest", "data loading", "row operations", "attention", "router", "quantize", "loss", "exchange", "collectives", "optimizer", "guards", "recompute", "helping", "waiting", "messages",
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

// Product returns the family of a matrix product. grouped products have one weight per group of
// rows.
func Product(format Format, grouped bool, pass Pass) Family {
	i := Family(format)
	i *= 2
	if grouped {
		i++
	}
	return products + 3*i + Family(pass)
}

// String returns the name of the family, such as "optimizer" or "bf16 grouped wgrad".
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

// Total returns the sum over all families.
func (t *Times) Total() (sum time.Duration) {
	for _, d := range t {
		sum += d
	}
	return sum
}

// Add adds other to t, family by family.
func (t *Times) Add(other *Times) {
	for f, d := range other {
		t[f] += d
	}
}

// Context is what a Timer counts time for. The zero Context is the family Rest.
type Context struct {
	family    Family
	work      Work
	recompute bool
}

// A Timer measures how one goroutine spends its time. All methods of a nil Timer do nothing.
type Timer struct {
	// Trace is called for each interval of a single family, in order. from and to are times of the
	// timer's clock. The interval includes any waiting within it. Trace may be nil.
	Trace func(f Family, w Work, from, to time.Duration)

	now, waited func() time.Duration
	family      Family        // family of the time since at
	work        Work          // of that time; complete only while Trace is set
	recompute   bool          // that time counts as Recompute instead
	at          time.Duration // last switch, by now
	waits       time.Duration // value of waited at that switch
	times       Times
}

// NewTimer returns a Timer. now is its clock. waited returns the time for which the goroutine has
// waited for others. Both may count from any moment.
func NewTimer(now, waited func() time.Duration) *Timer { return &Timer{now: now, waited: waited} }

// Start clears the times and starts to measure in family Rest.
func (t *Timer) Start() {
	if t == nil {
		return
	}
	t.family, t.recompute, t.at, t.waits, t.times = Rest, false, t.now(), t.waited(), Times{}
	t.work = Work{}
}

// Stop returns the times since Start.
func (t *Timer) Stop() Times {
	if t == nil {
		return Times{}
	}
	t.Switch(Rest)
	return t.times
}

// Switch changes the current family to f and returns the previous one. A function whose
// work belongs to one family begins with
//
//	defer t.Switch(t.Switch(profile.Attention))
//
// The caller's family then continues after it. A product within a product counts for the
// outer one, such as the product of one group within the product of all groups. A product
// within attention counts for attention.
func (t *Timer) Switch(f Family) (before Family) {
	if t == nil {
		return Rest
	}
	if f >= products && (t.family >= products || t.family == Attention) {
		f = t.family
	}
	counted := t.family
	if t.recompute {
		counted = Recompute
	}
	now, waits := t.now(), t.waited()
	t.times[counted] += now - t.at - (waits - t.waits)
	t.times[Waiting] += waits - t.waits
	if t.Trace != nil && now > t.at {
		t.Trace(counted, t.work, t.at, now)
	}
	if f != t.family {
		t.work = Work{Layer: t.work.Layer}
	}
	before, t.family, t.at, t.waits = t.family, f, now, waits
	return before
}

// Resume changes the context, and returns the previous one. Tasks that take turns have one
// each.
func (t *Timer) Resume(next Context) (before Context) {
	if t == nil {
		return next
	}
	t.Switch(t.family)
	before = Context{t.family, t.work, t.recompute}
	t.family, t.work, t.recompute = next.family, next.work, next.recompute
	return before
}

// SetRecompute sets whether the following work is a second computation for the backward pass. Such
// work counts as Recompute, in every family.
func (t *Timer) SetRecompute(on bool) {
	if t == nil {
		return
	}
	t.Switch(t.family)
	t.recompute = on
}
