package fault

// Place is a place in the code where a fault can be injected.
type Place uint8

// traits are the properties of a place.
type traits uint8

const (
	often traits = 1 << iota // passed in every step
	leads                    // only rank 0 passes it
	heals                    // passed only after a failure
	data                     // passed with data that can be changed
	fails                    // passed by operations that can fail, such as on files
	sums                     // its data are terms of sums, which may round a change away
)

// The places, roughly in the order in which a step passes them.
var (
	BeforeMeeting   = place("collective/meet/before", often)
	InMeeting       = place("collective/meet/inside", often) // this rank has arrived, others may have
	AfterMeeting    = place("collective/meet/after", often)
	BeforeReduction = place("collective/reduce/before", often)
	InReduction     = place("collective/reduce/inside", often) // part of the result is written
	AfterReduction  = place("collective/reduce/after", often)
	InGather        = place("collective/gather/inside", often)
	BeforePut       = place("ep/put/before", often)
	InPut           = place("ep/put/inside", often)            // some rows are stored at their owners
	InMessage       = place("ep/put/message", often|data|sums) // data: a row that has just been stored there
	AfterPut        = place("ep/put/after", often)
	BeforeGet       = place("ep/get/before", often)
	InGet           = place("ep/get/inside", often)
	AfterGet        = place("ep/get/after", often)
	BeforeStep      = place("trainer/step/before", often)
	InWeights       = place("trainer/step/weights", often|data)       // data: weights and router biases of this rank, between two steps
	InState         = place("trainer/step/state", often|data)         // data: master weights and moments, between two steps
	InGradient      = place("trainer/step/gradient", often|data|sums) // data: of this rank, not yet summed
	BetweenPasses   = place("trainer/step/inside", often)             // forward and backward are done, the update is not
	InUpdate        = place("optim/update/inside", often)             // some of the new state is written
	InPublishing    = place("optim/publish/inside", often)
	AfterStep       = place("trainer/step/after", often)
	BeforeRecord    = place("record/push/before", often|leads)
	AfterRecord     = place("record/push/after", often|leads)
	BeforeKeep      = place("trainer/keep/before", often)
	InKeep          = place("trainer/keep/inside", often) // the state is written, but not declared
	AfterKeep       = place("trainer/keep/after", often)
	InEvaluation    = place("trainer/evaluate/inside", 0)
	InSnapshot      = place("trainer/snapshot/inside", 0)
	InCreate        = place("checkpoint/create", 0)
	InWrite         = place("checkpoint/write", data|fails) // data: the second half of a write, whose first half is in the file
	InSync          = place("checkpoint/sync", 0)
	InRename        = place("checkpoint/rename/before", leads)
	AfterRename     = place("checkpoint/rename/after", leads)
	InManifest      = place("checkpoint/manifest", leads)
	InPrune         = place("checkpoint/prune", leads)
	BeforeJoin      = place("spmd/join/before", 0)
	AfterJoin       = place("spmd/join/after", 0)
	InStart         = place("trainer/start", 0)
	BeforePark      = place("spmd/park/before", heals)
	AfterPark       = place("spmd/park/after", heals)
	BeforeBack      = place("trainer/back/before", heals)
	InBack          = place("trainer/back/inside", heals) // the notes are read, the state is unchanged
	AfterBack       = place("trainer/back/after", heals)
	BeforeLeave     = place("spmd/leave/before", 0)
	InLeave         = place("spmd/leave/inside", 0) // the rank has finished, others may not have
	AfterLeave      = place("spmd/leave/after", 0)
)

// places has the name and the traits of each place.
var places []struct {
	name string
	traits
}

const mostPlaces = 64

// place adds a place to the table.
func place(name string, t traits) Place {
	places = append(places, struct {
		name string
		traits
	}{name, t})
	return Place(len(places) - 1)
}

// String returns the place's name, such as "collective/meet/inside".
func (p Place) String() string { return places[p].name }

func (p Place) has(t traits) bool { return places[p].traits&t != 0 }

// Often reports whether every step passes the place.
func (p Place) Often() bool { return p.has(often) }

// Leads reports whether only rank 0 passes the place.
func (p Place) Leads() bool { return p.has(leads) }

// Heals reports whether the place is passed only after a failure.
func (p Place) Heals() bool { return p.has(heals) }

// Data reports whether the place is passed with data that can be changed.
func (p Place) Data() bool { return p.has(data) }

// Sums reports whether these data are terms of sums, which may round a change away.
func (p Place) Sums() bool { return p.has(sums) }

// Places lists all places.
func Places() (all []Place) {
	for p := range places {
		all = append(all, Place(p))
	}
	return all
}
