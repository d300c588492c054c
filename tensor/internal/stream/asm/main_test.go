package main

import (
	"testing"

	"spmoe/tensor/asmgen"
)

func TestGeneratedFilesAreCurrent(t *testing.T) {
	if err := asmgen.Check("..", files()); err != nil {
		t.Error(err)
	}
}
