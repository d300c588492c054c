package main

import (
	"testing"

	"spmoe/tensor/asmgen"
)

func TestGeneratedFilesAreUpToDate(t *testing.T) {
	if err := asmgen.Check("..", files()); err != nil {
		t.Error(err)
	}
}
