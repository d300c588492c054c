package pipeline

import (
	"fmt"
	"slices"
	"strings"
)

// Schedule holds the list of each rank.
type Schedule struct {
	Name         string
	Stages       int
	Microbatches int
	Ranks        [][]Slot
}

// maker makes the lists of a schedule. The sizes fit it.
type maker struct {
	name          string
	stagesPerRank int // 0: any number from 2 on
	make          func(z size) [][]Slot
	check         func(z size) error // nil: all sizes fit
}

// size is the size of a schedule.
type size struct{ ranks, perRank, microbatches int }

func (z size) stages() int { return z.ranks * z.perRank }

var makers = []maker{
	{"1F1B", 1, oneForwardOneBackward, nil},
	{"Interleaved1F1B", 0, interleaved, checkRounds},
	{"InterleavedZeroBubble", 0, interleavedZeroBubble, checkRounds},
	{"ZBVZeroBubble", 2, zeroBubbleV, nil},
	{"DualPipeV", 2, dualPipeV, checkDualPipeV},
}

// Names lists the schedules.
func Names() (names []string) {
	for _, m := range makers {
		names = append(names, m.name)
	}
	return names
}

// most bounds ranks, stages per rank and micro-batches, so that a wrong number is an error and not
// a list that fills the memory.
const most = 1 << 12

// New returns a schedule by its name. perRank is the number of stages of a rank; 0: the least that
// the schedule has, 1 or 2.
func New(name string, ranks, perRank, microbatches int) (*Schedule, error) {
	i := slices.IndexFunc(makers, func(m maker) bool { return strings.EqualFold(m.name, name) })
	if i < 0 {
		return nil, fmt.Errorf("unknown schedule %.40q: give one of %s", name, strings.Join(Names(), ", "))
	}
	m := makers[i]
	if perRank == 0 {
		perRank = max(m.stagesPerRank, 1)
		if m.stagesPerRank == 0 {
			perRank = 2
		}
	}
	z := size{ranks, perRank, microbatches}
	switch {
	case ranks < 1 || ranks > most:
		return nil, fmt.Errorf("%d pipeline ranks: give 1 to %d", ranks, most)
	case microbatches < 1 || microbatches > most:
		return nil, fmt.Errorf("%d micro-batches: give 1 to %d", microbatches, most)
	case perRank < 1 || perRank > most || ranks*perRank*microbatches > most*most:
		return nil, fmt.Errorf("%d stages per rank, %d ranks and %d micro-batches: give fewer", perRank, ranks, microbatches)
	case m.stagesPerRank > 0 && perRank != m.stagesPerRank:
		return nil, fmt.Errorf("%s has %d per rank, not %d", m.name, m.stagesPerRank, perRank)
	}
	if m.check != nil {
		if err := m.check(z); err != nil {
			return nil, fmt.Errorf("%s: %w", m.name, err)
		}
	}
	return &Schedule{Name: m.name, Stages: z.stages(), Microbatches: microbatches, Ranks: m.make(z)}, nil
}

// Title returns the name of the schedule with its size.
func (s *Schedule) Title() string {
	return fmt.Sprintf("Schedule%s pp=%d microbatches=%d stages=%d", s.Name, len(s.Ranks), s.Microbatches, s.Stages)
}

// Holders returns the rank of each stage: the one with most of its actions; -1: none has any.
func (s *Schedule) Holders() []int {
	counts := make([][]int, s.Stages)
	for rank, list := range s.Ranks {
		for _, slot := range list {
			for _, a := range slot {
				if a.Stage < 0 || a.Stage >= s.Stages {
					continue
				}
				if counts[a.Stage] == nil {
					counts[a.Stage] = make([]int, len(s.Ranks))
				}
				counts[a.Stage][rank]++
			}
		}
	}
	holders := slices.Repeat([]int{-1}, s.Stages)
	for stage, of := range counts {
		if of != nil {
			holders[stage] = slices.Index(of, slices.Max(of))
		}
	}
	return holders
}
