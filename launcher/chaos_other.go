//go:build !linux

package main

// chaos on systems without rank processes.

import (
	"context"
	"errors"
	"flag"
)

func defineChaos(*flag.FlagSet) action {
	return func(context.Context, env) error {
		return errors.New("chaos needs rank processes, which need Linux")
	}
}

func chaosCommands() []command { return nil }
