package fault

// Place is a place in the code where a fault can be injected.
type Place uint8

// The places, roughly in the order in which a step passes them.
const (
	BeforeMeeting Place = iota
	InMeeting           // this rank has arrived, others may have
	AfterMeeting
	BeforeReduction
	InReduction // part of the result is written
	AfterReduction
	InGather
	BeforePut
	InPut     // some rows are stored at their owners
	InMessage // data: a row that has just been stored there
	AfterPut
	BeforeGet
	InGet
	AfterGet
	BeforeStep
	InWeights     // data: weights and router biases of this rank, between two steps
	InState       // data: master weights and moments, between two steps
	InGradient    // data: of this rank, not yet summed
	BetweenPasses // forward and backward are done, the update is not
	InUpdate      // some of the new state is written
	InPublishing
	AfterStep
	BeforeRecord
	AfterRecord
	BeforeKeep
	InKeep // the state is written, but not declared
	AfterKeep
	InEvaluation
	InSnapshot
	InCreate
	InWrite // data: the second half of a write, whose first half is in the file
	InSync
	InRename
	AfterRename
	InManifest
	InPrune
	BeforeJoin
	AfterJoin
	InStart
	BeforePark
	AfterPark
	BeforeBack
	InBack // the notes are read, the state is unchanged
	AfterBack
	BeforeLeave
	InLeave // the rank has finished, others may not have
	AfterLeave
	numPlaces
)

// place holds the properties of a place.
type place struct {
	name  string
	often bool // passed in every step
	leads bool // only rank 0 passes it
	heals bool // passed only after a failure
	data  bool // passed with data that can be changed
	fails bool // passed by operations that can fail, such as on files
}

var places = [numPlaces]place{
	BeforeMeeting:   {name: "collective/meet/before", often: true},
	InMeeting:       {name: "collective/meet/inside", often: true},
	AfterMeeting:    {name: "collective/meet/after", often: true},
	BeforeReduction: {name: "collective/reduce/before", often: true},
	InReduction:     {name: "collective/reduce/inside", often: true},
	AfterReduction:  {name: "collective/reduce/after", often: true},
	InGather:        {name: "collective/gather/inside", often: true},
	BeforePut:       {name: "ep/put/before", often: true},
	InPut:           {name: "ep/put/inside", often: true},
	InMessage:       {name: "ep/put/message", often: true, data: true},
	AfterPut:        {name: "ep/put/after", often: true},
	BeforeGet:       {name: "ep/get/before", often: true},
	InGet:           {name: "ep/get/inside", often: true},
	AfterGet:        {name: "ep/get/after", often: true},
	BeforeStep:      {name: "trainer/step/before", often: true},
	InWeights:       {name: "trainer/step/weights", often: true, data: true},
	InState:         {name: "trainer/step/state", often: true, data: true},
	InGradient:      {name: "trainer/step/gradient", often: true, data: true},
	BetweenPasses:   {name: "trainer/step/inside", often: true},
	InUpdate:        {name: "optim/update/inside", often: true},
	InPublishing:    {name: "optim/publish/inside", often: true},
	AfterStep:       {name: "trainer/step/after", often: true},
	BeforeRecord:    {name: "record/push/before", often: true, leads: true},
	AfterRecord:     {name: "record/push/after", often: true, leads: true},
	BeforeKeep:      {name: "trainer/keep/before", often: true},
	InKeep:          {name: "trainer/keep/inside", often: true},
	AfterKeep:       {name: "trainer/keep/after", often: true},
	InEvaluation:    {name: "trainer/evaluate/inside"},
	InSnapshot:      {name: "trainer/snapshot/inside"},
	InCreate:        {name: "checkpoint/create"},
	InWrite:         {name: "checkpoint/write", data: true, fails: true},
	InSync:          {name: "checkpoint/sync"},
	InRename:        {name: "checkpoint/rename/before", leads: true},
	AfterRename:     {name: "checkpoint/rename/after", leads: true},
	InManifest:      {name: "checkpoint/manifest", leads: true},
	InPrune:         {name: "checkpoint/prune", leads: true},
	BeforeJoin:      {name: "spmd/join/before"},
	AfterJoin:       {name: "spmd/join/after"},
	InStart:         {name: "trainer/start"},
	BeforePark:      {name: "spmd/park/before", heals: true},
	AfterPark:       {name: "spmd/park/after", heals: true},
	BeforeBack:      {name: "trainer/back/before", heals: true},
	InBack:          {name: "trainer/back/inside", heals: true},
	AfterBack:       {name: "trainer/back/after", heals: true},
	BeforeLeave:     {name: "spmd/leave/before"},
	InLeave:         {name: "spmd/leave/inside"},
	AfterLeave:      {name: "spmd/leave/after"},
}

// String returns the place's name, such as "collective/meet/inside".
func (p Place) String() string { return places[p].name }

// Often reports whether every step passes the place.
func (p Place) Often() bool { return places[p].often }

// Leads reports whether only rank 0 passes the place.
func (p Place) Leads() bool { return places[p].leads }

// Heals reports whether the place is passed only after a failure.
func (p Place) Heals() bool { return places[p].heals }

// HasData reports whether the place is passed with data that a fault can change.
func (p Place) HasData() bool { return places[p].data }

// CanFail reports whether the operation at the place can fail.
func (p Place) CanFail() bool { return places[p].fails }

// Places lists all places.
func Places() (all []Place) {
	for p := range numPlaces {
		all = append(all, p)
	}
	return all
}
