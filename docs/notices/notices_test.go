package main

import (
	"bytes"
	"os"
	"testing"
)

// THIRD_PARTY_NOTICES has the licences of the modules in use.
func TestNoticesAreCurrent(t *testing.T) {
	want, err := notices("../..")
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../THIRD_PARTY_NOTICES")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("THIRD_PARTY_NOTICES is stale: run go run ./docs/notices > THIRD_PARTY_NOTICES")
	}
}
