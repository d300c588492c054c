//go:build !linux

// Package pages asks the system for large pages, where there is a way to.
package pages

// Advise does nothing here.
func Advise([]byte) {}
