package pipeline

// Lists in files, in the form in which torch prints pipeline_order:
//
//	{"schedules": {"ScheduleZBVZeroBubble pp=2 microbatches=4 stages=4": {"0": ["0F0", …], …}}}

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// document is the content of a file.
type document struct {
	About     string                         `json:"about,omitempty"`
	Schedules map[string]map[string][]string `json:"schedules"`
}

// Title returns the name of the schedule with its size, as in files.
func (s *Schedule) Title() string {
	return fmt.Sprintf("Schedule%s pp=%d microbatches=%d stages=%d", s.Name, len(s.Ranks), s.Microbatches, s.Stages)
}

// PipelineOrder returns the lists as torch 2.11 prints them, by rank. It numbers the forward passes
// of 1F1B's last rank from 1 on instead of 0. Read undoes that.
func (s *Schedule) PipelineOrder() map[string][]string {
	order := map[string][]string{}
	for rank, list := range s.Ranks {
		text := make([]string, len(list))
		for i, slot := range list {
			if s.numbersFromOne(rank) {
				slot = shifted(slot, 1)
			}
			text[i] = slot.String()
		}
		order[strconv.Itoa(rank)] = text
	}
	return order
}

// numbersFromOne reports whether torch prints the forward passes of a rank with numbers from 1 on.
func (s *Schedule) numbersFromOne(rank int) bool {
	return s.Name == makers[0].name && rank == len(s.Ranks)-1
}

// shifted adds n to the micro-batch of a forward pass.
func shifted(slot Slot, n int) Slot {
	if len(slot) != 1 || slot[0].Kind != Forward {
		return slot
	}
	a := slot[0]
	a.Microbatch += n
	return Slot{a}
}

// Write writes schedules as JSON.
func Write(w io.Writer, schedules ...*Schedule) error {
	d := document{
		About:     "actions of each rank in order, as torch prints pipeline_order; an empty one is a bubble",
		Schedules: map[string]map[string][]string{},
	}
	for _, s := range schedules {
		d.Schedules[s.Title()] = s.PipelineOrder()
	}
	return json.NewEncoder(w).Encode(d)
}

// mostFile is the largest file that Read takes.
const mostFile = 64 << 20

// Read reads the schedules of a file, in the order of their titles. It does not check their lists.
func Read(r io.Reader) (all []*Schedule, err error) {
	text, err := io.ReadAll(io.LimitReader(r, mostFile+1))
	if err != nil {
		return nil, err
	}
	if len(text) > mostFile {
		return nil, fmt.Errorf("a file of schedules is longer than %d bytes", mostFile)
	}
	var d document
	if err := json.Unmarshal(text, &d); err != nil {
		return nil, fmt.Errorf("a file of schedules: %w", err)
	}
	for _, title := range slices.Sorted(maps.Keys(d.Schedules)) {
		s, err := parse(title, d.Schedules[title])
		if err != nil {
			return nil, fmt.Errorf("schedule %.80q: %w", title, err)
		}
		all = append(all, s)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf(`no schedule: give {"schedules": {"NAME": {"0": ["0F0", "0B0"]}}}`)
	}
	return all, nil
}

// parse reads the lists of a schedule. The numbers of stages and micro-batches are those in them.
func parse(title string, order map[string][]string) (*Schedule, error) {
	name, _, _ := strings.Cut(title, " ")
	s := &Schedule{Name: strings.TrimPrefix(name, "Schedule"), Ranks: make([][]Slot, len(order))}
	for rank := range s.Ranks {
		list, ok := order[strconv.Itoa(rank)]
		if !ok {
			return nil, fmt.Errorf("%d lists without one for rank %d: give ranks 0 to %d", len(order), rank, len(order)-1)
		}
		for i, text := range list {
			slot, err := parseSlot(text)
			if err != nil {
				return nil, fmt.Errorf("%v: %w", place{rank, i}, err)
			}
			if s.numbersFromOne(rank) && !slices.Contains(list, fmt.Sprintf("%dF0", len(order)-1)) {
				slot = shifted(slot, -1)
			}
			for _, a := range slot {
				if a.Stage >= most || a.Microbatch >= most {
					return nil, fmt.Errorf("%v, %v: give numbers below %d", a, place{rank, i}, most)
				}
				s.Stages, s.Microbatches = max(s.Stages, a.Stage+1), max(s.Microbatches, a.Microbatch+1)
			}
			s.Ranks[rank] = append(s.Ranks[rank], slot)
		}
	}
	return s, nil
}
