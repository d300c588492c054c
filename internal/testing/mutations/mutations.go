// Package mutations has the mistakes of parallel training that others have published, each as a
// change of this program's source. Its test builds the launcher with one change at a time and
// expects verify-layouts to find it. A change that no longer fits the source fails the test.
package mutations

// Mutation is one mistake.
type Mutation struct {
	Name string // of the test
	Text string // what is wrong
	File string // that has it, from the root of the repository
	Old  string // text that occurs exactly once in File
	New  string
	Args string // further flags of verify-layouts

	// what verify-layouts must name
	Axis   string // as it prints it
	Layer  string // a regular expression
	Tensor string // a regular expression
}
