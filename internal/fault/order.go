package fault

import (
	"encoding/json"
	"fmt"
	"slices"
)

// Action is what a process does to itself.
type Action uint8

// The actions.
const (
	Kill  Action = iota // SIGKILL
	Stop                // SIGSTOP
	Segv                // a write to memory that must not be written
	Exit0               // ends as if all work were done
	Exit1
	Panic
	Loop // computes for ever
	Slow // from then on all work takes ten times as long
	NaN  // some of the data become NaN
	Flip // inverts one bit of the data
	Full // no space is left on the device
)

var actionNames = []string{"kill", "stop", "segv", "exit0", "exit1", "panic", "loop", "slow", "nan", "flip", "full"}

// String returns the action's name, such as "kill".
func (a Action) String() string { return actionNames[a] }

// Failures are the names of the actions after which a process needs a replacement.
func Failures() []string { return actionNames[:Slow] }

// ParseAction is the inverse of String.
func ParseAction(name string) (Action, error) {
	i := slices.Index(actionNames, name)
	if i < 0 {
		return 0, fmt.Errorf("unknown action %q: use one of %q", name, actionNames)
	}
	return Action(i), nil
}

// Order tells a process what to do when it passes a place for the Count-th time, from 1, after
// receiving the order. NaN and Flip are for places with data, Full for those that can fail.
type Order struct {
	Action Action
	Place  Place
	Count  int64
}

// String returns the order's text, such as kill@collective/meet/inside#37.
func (o Order) String() string { return fmt.Sprintf("%v@%v#%d", o.Action, o.Place, o.Count) }

// Variable is the environment variable that arms the process of a rank. A launcher sets it for
// chosen processes and removes it for all others.
const Variable = "SPMOE_FAULT"

// setting is the content of Variable.
type setting struct {
	Order  *Order // nil: none yet
	Folder string // in which the process notes what it does and receives orders; empty: neither
}

// Setting returns the value of Variable: an order, if there is one, and the folder in which the
// process notes what it does and receives orders, if it is not empty.
func Setting(order *Order, folder string) string { return encode(setting{order, folder}) }

func encode(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return string(text)
}
