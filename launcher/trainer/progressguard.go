package trainer

// The guard of the trainer's own state: the progress and the positions of optimizer and loader. It
// changes when a step is counted, and has a checksum and a copy in between.

import (
	"encoding/json"
	"reflect"

	"spmoe/datasets"
	"spmoe/internal/seal"
)

// sealedText is a text with the seal that it had when it was made.
type sealedText struct {
	text []byte
	seal uint64
}

// sealText returns the JSON of x with its seal.
func sealText(x any) (sealedText, error) {
	text, err := json.Marshal(x)
	return sealedText{text, seal.Of(text)}, err
}

// positions are what a step moves before it is counted.
type positions struct {
	OptimizerSteps int
	Loader         datasets.State
}

func (s *trainState) positions() positions { return positions{s.optim.Steps(), s.data.loader.State()} }

// sealProgress seals the progress and the positions after a step.
func (s *trainState) sealProgress() (err error) {
	if s.sealed.progress, err = sealText(s.progress); err == nil {
		s.sealed.positions, err = sealText(s.positions())
	}
	return err
}

// checkProgress compares the progress with its seal, and also the positions if no step has begun
// since. It restores what has changed. lost says that this is not possible.
func (s *trainState) checkProgress(between bool) (restored, lost bool) {
	if s.sealed.progress.text == nil {
		return false, false
	}
	p, q := s.progress, s.positions()
	restored, lost = s.sealed.progress.check(&p)
	if between && !lost {
		var moved bool
		moved, lost = s.sealed.positions.check(&q)
		restored = restored || moved
	}
	if !restored || lost {
		return false, lost
	}
	s.progress = p
	if between {
		s.optim.SetSteps(q.OptimizerSteps)
		lost = s.data.loader.Restore(q.Loader) != nil
	}
	return true, lost
}

// check compares x with the sealed text. If they differ, it makes x what the text says.
func (s *sealedText) check(x any) (restored, lost bool) {
	now, err := sealText(x)
	if err == nil && now.seal == s.seal {
		s.text = now.text
		return false, false
	}
	if _, lost := seal.Check(s.text, &s.seal); lost {
		return false, true
	}
	zero := reflect.ValueOf(x).Elem()
	zero.SetZero() // what is decoded does not share its memory
	return true, json.Unmarshal(s.text, x) != nil
}
