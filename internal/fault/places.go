package fault

// Place is a place in the code where a fault can be injected.
type Place string

// The places, roughly in the order in which a step passes them.
const (
	BeforeMeeting   Place = "collective/meet/before"
	InMeeting       Place = "collective/meet/inside" // this rank has arrived, others may have
	AfterMeeting    Place = "collective/meet/after"
	BeforeReduction Place = "collective/reduce/before"
	InReduction     Place = "collective/reduce/inside" // part of the result is written
	AfterReduction  Place = "collective/reduce/after"
	InGather        Place = "collective/gather/inside"
	BeforePut       Place = "ep/put/before"
	InPut           Place = "ep/put/inside"  // some rows are stored at their owners
	InMessage       Place = "ep/put/message" // data: a row that has just been stored there
	AfterPut        Place = "ep/put/after"
	BeforeGet       Place = "ep/get/before"
	InGet           Place = "ep/get/inside"
	AfterGet        Place = "ep/get/after"
	BeforeStep      Place = "trainer/step/before"
	InWeights       Place = "trainer/step/weights"  // data: weights and router biases of this rank, between two steps
	InState         Place = "trainer/step/state"    // data: master weights and moments, between two steps
	InGradient      Place = "trainer/step/gradient" // data: of this rank, not yet summed
	BetweenPasses   Place = "trainer/step/inside"   // forward and backward are done, the update is not
	InUpdate        Place = "optim/update/inside"   // some of the new state is written
	InPublishing    Place = "optim/publish/inside"
	AfterStep       Place = "trainer/step/after"
	BeforeRecord    Place = "record/push/before"
	AfterRecord     Place = "record/push/after"
	BeforeKeep      Place = "trainer/keep/before"
	InKeep          Place = "trainer/keep/inside" // the state is written, but not declared
	AfterKeep       Place = "trainer/keep/after"
	InEvaluation    Place = "trainer/evaluate/inside"
	InSnapshot      Place = "trainer/snapshot/inside"
	InCreate        Place = "checkpoint/create"
	InWrite         Place = "checkpoint/write" // data: the second half of a write, whose first half is in the file
	InSync          Place = "checkpoint/sync"
	InRename        Place = "checkpoint/rename/before"
	AfterRename     Place = "checkpoint/rename/after"
	InManifest      Place = "checkpoint/manifest"
	InPrune         Place = "checkpoint/prune"
	BeforeJoin      Place = "spmd/join/before"
	AfterJoin       Place = "spmd/join/after"
	InStart         Place = "trainer/start"
	BeforePark      Place = "spmd/park/before"
	AfterPark       Place = "spmd/park/after"
	BeforeBack      Place = "trainer/back/before"
	InBack          Place = "trainer/back/inside" // the notes are read, the state is unchanged
	AfterBack       Place = "trainer/back/after"
	BeforeLeave     Place = "spmd/leave/before"
	InLeave         Place = "spmd/leave/inside" // the rank has finished, others may not have
	AfterLeave      Place = "spmd/leave/after"
)
