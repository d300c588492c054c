package fault

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
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
	Loop  // computes for ever
	Sleep // for a tenth of a second
	Slow  // from then on all work takes ten times as long
	NaN   // some of the data become NaN
	Flip  // inverts one bit of the data
	Full  // no space is left on the device
	numActions
)

var actionNames = [numActions]string{"kill", "stop", "segv", "exit0", "exit1", "panic", "loop", "sleep", "slow", "nan", "flip", "full"}

// String returns the action's name, such as "kill".
func (a Action) String() string { return actionNames[a] }

// fits reports whether an action is possible at a place.
func (a Action) fits(p Place) bool {
	switch a {
	case NaN, Flip:
		return p.HasData()
	case Full:
		return p.CanFail()
	}
	return true
}

// Order tells a process what to do when it passes a place for the Count-th time, from 1, after
// receiving the order.
type Order struct {
	Action Action
	Place  Place
	Count  int64
}

// String returns the order's text, such as kill@collective/meet/inside#37.
func (o Order) String() string { return fmt.Sprintf("%v@%v#%d", o.Action, o.Place, o.Count) }

// ParseOrder is the inverse of String.
func ParseOrder(text string) (o Order, err error) {
	wrong := func(problem string) (Order, error) {
		return Order{}, fmt.Errorf("order %q: %s: give ACTION@PLACE#COUNT, such as kill@%v#37", text, problem, InMeeting)
	}
	what, rest, ok := strings.Cut(text, "@")
	where, count, more := strings.Cut(rest, "#")
	if !ok || !more {
		return wrong("it has not three parts")
	}
	action := slices.Index(actionNames[:], what)
	if action < 0 {
		return wrong(fmt.Sprintf("the actions are %s", strings.Join(actionNames[:], ", ")))
	}
	at := slices.IndexFunc(places[:], func(p place) bool { return p.name == where })
	if at < 0 {
		return wrong(fmt.Sprintf("there is no place %q", where))
	}
	o = Order{Action: Action(action), Place: Place(at)}
	if !o.Action.fits(o.Place) {
		return wrong(fmt.Sprintf("%v cannot %v", o.Place, o.Action))
	}
	if o.Count, err = strconv.ParseInt(count, 10, 64); err != nil || o.Count < 1 || count[0] == '+' || count[0] == '0' {
		return wrong("the count is a whole number, 1 or more")
	}
	return o, nil
}

// Variable is the environment variable that arms the process of a rank. A launcher sets it for
// chosen processes and removes it for all others.
const Variable = "SPMOE_FAULT"

// Setting returns the value of Variable: an order, if there is one, and the folder in which the
// process notes what it does and receives orders, if it is not empty.
func Setting(order *Order, folder string) string {
	text := "none"
	if order != nil {
		text = order.String()
	}
	if folder != "" {
		text += " " + folder
	}
	return text
}

// parseSetting is the inverse of Setting.
func parseSetting(text string) (order *Order, folder string, err error) {
	first, folder, ok := strings.Cut(text, " ")
	if ok && folder == "" {
		return nil, "", fmt.Errorf("%q names no folder", text)
	}
	if first == "none" {
		return nil, folder, nil
	}
	o, err := ParseOrder(first)
	return &o, folder, err
}
