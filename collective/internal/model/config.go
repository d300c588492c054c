package model

// What can be checked: worlds, events, and mutations of the protocol.

// Config is a world, the calls of its ranks, and the events.
type Config struct {
	Ranks     int
	Processes bool   // otherwise goroutines
	Calls     []Call // what every rank calls
	Spins     bool   // a waiter may look any number of times before it parks

	// number of rank processes that may die at any step; the launcher notices
	Deaths int
	Errors map[int]int // a rank returns an error after this number of calls
	Leaves map[int]int // a rank returns without an error after this number of calls
	Panics map[int]int // a rank fails in the window with this number, in which it has used buffers
	// an actor outside the communicator declares a failure at any time
	Outsider bool
	Insists  bool // a rank whose call has failed makes two more calls before it returns

	Mutation Mutation
}

// Call is a kind of collective.
type Call int

// The kinds of collectives.
const (
	Gather Call = iota // one meeting, after which slots are read
	Window             // slots are read and buffers used, then a second meeting
)

// Mutation is a mistake in the protocol.
type Mutation int

// The mutations.
const (
	Correct              Mutation = iota
	NoSecondLook                  // a waiter does not look again after it has counted itself
	RingBeforeStore               // a ringer looks for waiters before it stores what they wait for
	OneSlot                       // a rank publishes every call in the same slot
	AbortableSync                 // goroutines can be released from the second meeting
	EndlessSync                   // goroutines wait in it for a rank that has ended
	LateArrival                   // a rank checks whether all have arrived before it shows its own arrival
	StoredDecision                // a decision is stored regardless of an earlier one
	PublishBeforeRefusal          // a call is published before a failure refuses it
	ClaimedFailure                // a failure is claimed in one step and declared in the next
	SilentSecondFailure           // the second to declare a failure does not ring
)

var mutationNames = []string{"correct", "no second look", "ring before store", "one slot", "abortable sync", "endless sync", "late arrival", "stored decision",
	"publish before refusal", "claimed failure", "silent second failure"}

// String describes the mistake in a few words.
func (m Mutation) String() string { return mutationNames[m] }

func newSystem(c Config) *system {
	m := &system{Config: c}
	for r := range c.Ranks {
		p := &program{system: m, me: r}
		p.run()
		m.programs = append(m.programs, p)
	}
	if c.Deaths > 0 || c.Outsider {
		p := &program{system: m, me: c.Ranks}
		p.outsider()
		m.programs = append(m.programs, p)
	}
	return m
}

// mayFail reports whether anything can go wrong.
func (c Config) mayFail() bool {
	return c.Deaths > 0 || len(c.Errors)+len(c.Leaves)+len(c.Panics) > 0 || c.Outsider
}
