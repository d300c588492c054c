//go:build !linux

package fault

import "errors"

// Arm fails: ranks are processes on Linux alone.
func Arm(string) error { return errors.New(Variable + ": faults are made on Linux alone") }

func (i *injector) note(Order)                {}
func (i *injector) strike(Order, spoil) error { return nil }
