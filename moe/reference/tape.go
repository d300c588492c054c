package reference

// node is a value with its gradient.
type node struct{}

// tape records operations.
type tape struct{}
