//go:build !linux

package main

// chaos on systems without rank processes.

import (
	"context"
	"errors"
	"flag"

	"spmoe/launcher/spmd"
)

// hooks do nothing: chaos needs rank processes.
type hooks struct {
	Fault func(rank int, generation uint32) string
	Event func(spmd.Event)
}

func defineChaos(*flag.FlagSet) action {
	return func(context.Context, env) error {
		return errors.New("chaos needs rank processes, which need Linux")
	}
}

func chaosCommands() []command { return nil }

func chaosActions() []string { return nil }
