package main

import (
	"testing"

	"spmoe/tensor/asmgen"
)

func TestGenerated(t *testing.T) {
	if err := asmgen.Check("..", files()); err != nil {
		t.Error(err)
	}
}
