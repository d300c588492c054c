package observe

import (
	"fmt"
	"slices"
	"time"

	"spmoe/collective"
	"spmoe/launcher/trainer/state"
	"spmoe/moe"
)

// A straggler is a rank that computes much longer for its part of the steps than the others, which
// wait for it. A rank's score is the median of the ranks' times divided by its own time, without
// waiting.
//
// Only the time counts in which a rank had a processor: on a busy machine any rank may have to wait
// for one, and no one can speed it up. A rank is named if it was slow several times in a row.

const (
	// StragglerSteps is the number of steps that are judged together.
	StragglerSteps = 10
	// StragglerTimes is how many times in a row a slow rank must be slow.
	StragglerTimes = 3
	// stragglerScore is the lowest score that is not slow.
	stragglerScore = 0.5
	// stragglerSeconds is the least loss of time that is worth an alarm, in StragglerSteps steps.
	stragglerSeconds = 0.1
	// stragglerLoad is how many times the mean number of tokens explains a slow rank.
	stragglerLoad = 1.5
)

// Stragglers detects slow ranks. It is an [observer].
type Stragglers struct {
	comm      *collective.Comm // all ranks
	Peers     int              // ranks with the same stages, which are neighbors and compared
	Balancer  *state.Balancer
	expert    *collective.Comm     // the ranks that hold each expert once
	waiting   func() time.Duration // of this rank for others so far
	alarms    *state.Alarms
	here      int                  // ranks of each process
	threads   int                  // of each rank
	processor func() time.Duration // processor time of this process so far

	waited time.Duration // before the current steps
	used   time.Duration // processor time before the current steps
	busy   float64       // seconds of this rank in these steps
	Tokens float64       // for this rank's experts in these steps
	steps  int
	slow   []int // how many times in a row each rank has been slow
}

// NewStragglers returns what finds slow ranks; here is the number of ranks of each process.
func NewStragglers(l Links, m moe.Mesh, b *state.Balancer, a *state.Alarms, here, threads int) *Stragglers {
	return &Stragglers{
		comm: l[0].Comm, Peers: m.World.Size(), Balancer: b, expert: m.EP, waiting: l.waited, alarms: a,
		here: max(here, 1), threads: max(threads, 1), processor: processorTime, used: processorTime(), slow: make([]int, l[0].Size()),
	}
}

// Before implements [observer].
func (s *Stragglers) Before(int) { s.waited = s.waiting() }

// After implements [observer]. It raises alarms about the ranks whose speed has changed.
func (s *Stragglers) After(step FinishedStep) error {
	for _, route := range s.Balancer.Routings {
		load, rank, ranks := s.Balancer.Load(route.Layer), s.expert.Rank(), s.expert.Size()
		for _, n := range load[len(load)*rank/ranks : len(load)*(rank+1)/ranks] {
			// Replicas have about the same share of an expert's tokens.
			s.Tokens += float64(n) * float64(ranks) / float64(s.Peers)
		}
	}
	news, err := s.add(step.took)
	for _, text := range news {
		s.alarms.Raise("%s", text)
	}
	return err
}

// add counts a step. Every StragglerSteps steps it returns a text about each rank whose speed has
// changed. It is collective.
func (s *Stragglers) add(took time.Duration) (news []string, err error) {
	s.busy += max(took-(s.waiting()-s.waited), 0).Seconds()
	if s.steps++; s.steps < StragglerSteps {
		return nil, nil
	}
	n, me, now := s.comm.Size(), s.comm.Rank(), s.processor()
	all := make([]float64, 3*n)
	busy, processor, tokens := all[:n], all[n:2*n], all[2*n:]
	busy[me], processor[me], tokens[me] = s.busy, (now - s.used).Seconds(), s.Tokens
	s.steps, s.busy, s.used, s.Tokens = 0, 0, now, 0
	if err := collective.AllReduce(s.comm, all, collective.Sum); err != nil {
		return nil, fmt.Errorf("looking for stragglers: %w", err)
	}
	return s.Compare(busy, processor, tokens), nil
}

// Compare judges the ranks of each stage. It has the seconds and the tokens of all ranks.
func (s *Stragglers) Compare(busy, processor, tokens []float64) (news []string) {
	least, most := s.computed(busy, processor)
	for first := 0; first < len(busy); first += s.Peers {
		end := first + s.Peers
		news = append(news, s.Judge(first, least[first:end], state.Median(most[first:end]), tokens[first:end])...)
	}
	return news
}

// computed returns the least seconds in which each rank has computed: its busy seconds, less those
// in which it may have lacked a processor. most are the most seconds that it may have computed.
// processor has the seconds of each rank's process. If that has one rank, both are known. If it has
// several, it does not show which of them lacked a processor.
func (s *Stragglers) computed(busy, processor []float64) (least, most []float64) {
	least, most = slices.Clone(busy), slices.Clone(busy)
	for first := 0; first < len(busy); first += s.here {
		if s.here == 1 {
			least[first] = min(busy[first], processor[first]/float64(s.threads))
			most[first] = least[first]
			continue
		}
		lacked := -processor[first]
		ranks := least[first : first+s.here]
		for _, t := range ranks {
			lacked += t
		}
		for i := range ranks {
			ranks[i] = max(ranks[i]-max(lacked, 0), 0)
		}
	}
	return least, most
}

// Judge compares the seconds that some ranks have computed with what is usual. tokens are those of
// each rank's experts.
func (s *Stragglers) Judge(first int, seconds []float64, usual float64, tokens []float64) (news []string) {
	const instant = 1e-9 // shorter times are never slow
	for i, t := range seconds {
		r := first + i
		score := (usual + instant) / (t + instant)
		if score < stragglerScore && t-usual >= stragglerSeconds {
			if s.slow[r]++; s.slow[r] == StragglerTimes {
				news = append(news, fmt.Sprintf("rank %d is slow: it computed for %.2f s of processor time in the last %d steps, most others for %.2f s or less (score %.2f): %s",
					r, t, StragglerSteps, usual, score, Reason(tokens, i)))
			}
			continue
		}
		if s.slow[r] >= StragglerTimes {
			news = append(news, fmt.Sprintf("rank %d keeps up again (score %.2f)", r, score))
		}
		s.slow[r] = 0
	}
	return news
}

// Reason says why a rank is slow, and what helps.
func Reason(tokens []float64, rank int) string {
	var all float64
	for _, n := range tokens {
		all += n
	}
	if load := tokens[rank] * float64(len(tokens)) / max(all, 1); load >= stragglerLoad {
		return fmt.Sprintf("its experts get %.1f times the mean number of tokens, a higher --model.bias-speed evens them out", load)
	}
	return "its cores are slower than those of the others, look for a lower clock, a lower instruction tier (launcher version) or ranks that share a core (--bind-to core)"
}
