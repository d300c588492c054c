//go:build !linux

package fault

import "errors"

// Arm fails: rank processes need Linux.
func Arm(string) error { return errors.New(Variable + ": faults are made on Linux alone") }

func (i *injector) note(Order)                      {}
func (i *injector) execute(Order, corruption) error { return nil }
