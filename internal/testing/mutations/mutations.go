// Package mutations has published mistakes of parallel training, each as a change of this program's
// source. Its test builds one launcher that has all of them, makes one at a time and expects
// verify-layouts to find and to name it. Nothing in the program knows of the changes: go build
// -overlay makes them.
package mutations

// Mutation is one mistake.
type Mutation struct {
	Name string // of the test
	Text string // what is wrong
	File string // that is changed, from the root of the repository
	Old  string // text that occurs exactly once in File
	New  string // in its place
	Args string // further flags of verify-layouts

	// what verify-layouts must name
	Axis   string // as it prints it
	Tensor Tensor
}

// Tensor describes where states may differ most.
type Tensor struct {
	Words string // for readers
	Layer string // a regular expression for the layer
	Name  string // a regular expression for the parameter
}
