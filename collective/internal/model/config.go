package model

// What can be checked: the worlds, what befalls them, and the ways to get the protocol wrong.

// Config is a world, what its ranks do, and what befalls them.
type Config struct {
	Ranks     int
	Processes bool   // else goroutines
	Calls     []Call // what every rank calls
	Spins     bool   // who waits may look any number of times before it parks

	Deaths   int         // so many ranks, which are processes, may die at any step; the launcher notices
	Errors   map[int]int // a rank returns an error after so many calls
	Leaves   map[int]int // a rank returns without an error after so many calls
	Outsider bool        // somebody who is not of the communicator declares a failure at any time
	Insists  bool        // a rank whose call has failed makes two more before it returns

	Mutation Mutation
}

// Call is a kind of collective.
type Call int

// The kinds of collectives.
const (
	Gather Call = iota // one meeting, after which slots are read
	Window             // slots are read and buffers used, then a second meeting
)

// Mutation is a way to get the protocol wrong.
type Mutation int

// The mutations.
const (
	Correct              Mutation = iota
	NoSecondLook                  // a waiter does not look again after it has counted itself
	RingBeforeStore               // a ringer looks for waiters before it stores what they wait for
	OneSlot                       // a rank publishes every call in the same place
	AbortableSync                 // goroutines can be released from the second meeting
	LateArrival                   // a rank looks whether all have come before it shows that it has
	StoredDecision                // a decision is stored whatever was decided before
	PublishBeforeRefusal          // a call is published before a failure refuses it
	ClaimedFailure                // who declares a failure first claims the right to
	SilentSecondFailure           // who comes second to declare a failure does not ring
)

var mutationNames = []string{"correct", "no second look", "ring before store", "one slot", "abortable sync", "late arrival", "stored decision",
	"publish before refusal", "claimed failure", "silent second failure"}

// String is what is wrong, in a few words.
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
func (c Config) mayFail() bool { return c.Deaths > 0 || len(c.Errors)+len(c.Leaves) > 0 || c.Outsider }
