package trainer

// An attack on everything that a rank reaches: one random bit of a random kind of field, such as
// ep.Handle.packed, flips at a random moment of a step. Kinds count, not bytes, so that small
// things are hit as often as large ones. The runs are made by a process that is started again when
// it has crashed.

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"reflect"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"spmoe/collective"
	"spmoe/launcher/spmd"
	"spmoe/launcher/trainer/config"
	"spmoe/tensor"
)

// plainData collects plain data by kind: the type and the name of the field that holds or leads to
// it.
type plainData struct {
	seen map[visited]bool
	data map[string][][]byte
}

type visited struct {
	at unsafe.Pointer
	of reflect.Type
}

// reachable returns the plain data that a rank reaches. It excludes what other packages than the
// project's hold, text, maps, and what the test itself has added.
func reachable(r *rank) map[string][][]byte {
	p := plainData{map[visited]bool{}, map[string][][]byte{}}
	p.walk(reflect.ValueOf(&r).Elem(), "")
	return p.data
}

func (p *plainData) add(kind string, at unsafe.Pointer, n int) {
	if n > 0 {
		p.data[kind] = append(p.data[kind], unsafe.Slice((*byte)(at), n))
	}
}

var tensorType = reflect.TypeFor[tensor.Tensor]()

// walk collects what an addressable value holds.
func (p *plainData) walk(v reflect.Value, kind string) {
	switch t := v.Type(); t.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			p.walk(v.Elem(), kind)
		}
	case reflect.Interface:
		p.walkInterface(v, kind)
	case reflect.Struct:
		if !strings.HasPrefix(t.PkgPath(), "spmoe/") && t.Name() != "" || t == reflect.TypeFor[reports]() {
			return
		}
		if at := (visited{v.Addr().UnsafePointer(), t}); p.seen[at] {
			return
		} else {
			p.seen[at] = true
		}
		if t == tensorType {
			if x := (*tensor.Tensor)(v.Addr().UnsafePointer()); x.Valid() {
				p.add(kind, unsafe.Pointer(unsafe.SliceData(x.Bytes())), len(x.Bytes()))
			}
		}
		for i := range t.NumField() {
			p.walk(v.Field(i), t.String()+"."+t.Field(i).Name)
		}
	case reflect.Slice:
		if n := v.Len(); plain(t.Elem().Kind()) {
			p.add(kind, v.UnsafePointer(), n*int(t.Elem().Size()))
		} else {
			for i := range n {
				p.walk(v.Index(i), kind)
			}
		}
	case reflect.Array:
		for i := range v.Len() {
			p.walk(v.Index(i), kind)
		}
	default:
		if plain(t.Kind()) {
			p.add(kind, v.Addr().UnsafePointer(), int(t.Size()))
		}
	}
}

// walkInterface collects what an interface holds, a pointer or a struct.
func (p *plainData) walkInterface(v reflect.Value, kind string) {
	switch held := v.Elem(); held.Kind() {
	case reflect.Pointer:
		if !held.IsNil() && strings.HasPrefix(held.Type().Elem().PkgPath(), "spmoe/") {
			p.walk(held.Elem(), kind)
		}
	case reflect.Struct:
		words := (*[2]unsafe.Pointer)(v.Addr().UnsafePointer())
		p.walk(reflect.NewAt(held.Type(), words[1]).Elem(), kind)
	}
}

func plain(k reflect.Kind) bool {
	return k >= reflect.Bool && k <= reflect.Float64 && k != reflect.Uintptr
}

// fieldStrike is a flip of the attack.
type fieldStrike struct {
	seed  uint64
	kinds *regexp.Regexp // to choose from
	took  time.Duration  // of a step
	kind  string         // that was hit
	of    int            // number of kinds to choose from
}

// start starts the strike when a rank begins its step.
func (s *fieldStrike) start(r *rank, done chan<- struct{}) {
	rng := rand.New(rand.NewPCG(19, s.seed))
	all := reachable(r)
	var kinds []string
	for kind := range all {
		if s.kinds.MatchString(kind) {
			kinds = append(kinds, kind)
		}
	}
	s.of = len(kinds)
	slices.Sort(kinds)
	s.kind = kinds[rng.IntN(len(kinds))]
	total := 0
	for _, b := range all[s.kind] {
		total += len(b)
	}
	at, bit, wait := rng.IntN(total), rng.IntN(8), time.Duration(rng.Int64N(int64(s.took)))
	for _, b := range all[s.kind] {
		if at >= len(b) {
			at -= len(b)
			continue
		}
		go func() {
			defer close(done)
			defer func() {
				if recover() != nil {
					s.kind += " (constant)" // the memory is not writable
				}
			}()
			debug.SetPanicOnFault(true)
			time.Sleep(wait)
			b[at] ^= 1 << bit
		}()
		return
	}
}

// fieldRun makes a run of tiny ranks, which a strike hits unless it is nil. result is everything
// that must be right at the end.
func fieldRun(cfg config.Config, s *fieldStrike) (result string, took time.Duration, alarms []string, err error) {
	report := &reports{}
	job, err := Prepare(cfg, attackedRanks, "", report)
	if err != nil {
		return "", 0, nil, err
	}
	defer job.Close()
	done := make(chan struct{})
	var once atomic.Bool
	if s == nil {
		close(done)
	} else {
		job.corrupt = func(r *rank, computed bool) {
			if r.Progress.Step == 2 && r.comm.Rank() == int(s.seed%attackedRanks) && once.CompareAndSwap(false, true) {
				s.start(r, done)
			}
		}
	}
	var results [attackedRanks]string
	err = spmd.Goroutines{N: attackedRanks, Limits: collective.Limits{Wait: 8 * time.Second}}.Run(func(c *collective.Comm) error {
		ex := tensor.NewExec()
		defer ex.Close()
		r, err := newRank(job, c, ex, 1)
		if err != nil {
			return err
		}
		defer r.Data.Loader.Close()
		var losses []float64
		for r.Progress.Step < cfg.Steps {
			begin := time.Now()
			step, _, err := r.step(context.Background())
			if err != nil {
				return err
			}
			losses = append(losses, float64(step.Loss), float64(step.MTPLoss))
			if r.lead() && r.Progress.Step == cfg.Steps {
				took = time.Since(begin)
			}
		}
		p := r.Snapshot()
		p.Run = "" // random
		results[c.Rank()] = fmt.Sprintf("%x %v %+v", stateSum(r), losses, p)
		return nil
	})
	if once.Load() {
		<-done
	}
	return strings.Join(results[:], "\n"), took, report.texts(), err
}

// fieldAttack makes the runs of seeds [from, to) and prints how each ended. "alarm" is an alarm and
// other bits.
func fieldAttack(t *testing.T, from, to int) {
	cfg := tiny(t, func(c *config.Config) { c.Steps = 8 })
	cfg.Guard.Replay, _ = strconv.Atoi(os.Getenv("SPMOE_REPLAY"))
	if err := os.MkdirAll(cfg.Out, 0o777); err != nil {
		t.Fatal(err)
	}
	kinds := regexp.MustCompile(os.Getenv("SPMOE_KINDS"))
	var want string
	var took time.Duration
	for range 3 {
		var err error
		if want, took, _, err = fieldRun(cfg, nil); err != nil {
			t.Fatal(err)
		}
	}
	for seed := from; seed < to; seed++ {
		s := &fieldStrike{seed: uint64(seed), kinds: kinds, took: took}
		fmt.Println("SEED", seed)
		watchdog := time.AfterFunc(time.Minute, func() {
			fmt.Printf("RESULT %d hang %s\n", seed, s.kind)
			os.Exit(3)
		})
		got, _, alarms, err := fieldRun(cfg, s)
		watchdog.Stop()
		outcome := "WRONG"
		switch {
		case err != nil:
			outcome = "ended"
		case got == want && len(alarms) > 0:
			outcome = "healed"
		case got == want:
			outcome = "harmless"
		case len(alarms) > 0:
			outcome = "alarm"
		}
		fmt.Printf("RESULT %d %s %s of %d kinds: %.200q %.200q\n", seed, outcome, s.kind, s.of, fmt.Sprint(err), alarms)
	}
}

// TestAttackFields attacks kinds of fields. It races with the ranks on purpose. By default there
// are few flips, in places that guards cover and where others have waited for a rank that had
// ended; SPMOE_FLIPS is a number of flips in any kinds, or in those that match SPMOE_KINDS. None
// may make a run wait beyond the limit, or end the process.
func TestAttackFields(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(attackedRanks + 1)) // the attack must not wait for ranks
	if given := os.Getenv("SPMOE_SEEDS"); given != "" {
		var from, to int
		fmt.Sscanf(given, "%d:%d", &from, &to)
		fieldAttack(t, from, to)
		return
	}
	flips, kinds := 24, "RotaryTable|dataLoader|LoaderConfig|AdamW|Schedule|rmsNorm|progress|router.load|weight.rows|Handle.owners|Timer.family|group.hosts|heap.Part"
	if given, _ := strconv.Atoi(os.Getenv("SPMOE_FLIPS")); given > 0 {
		flips, kinds = given, os.Getenv("SPMOE_KINDS")
	}
	counts, unnoticed := map[string]int{}, []string{}
	for from := 0; from < flips; {
		cmd := exec.Command(os.Args[0], "-test.run=^TestAttackFields$")
		cmd.Env = append(os.Environ(), fmt.Sprintf("SPMOE_SEEDS=%d:%d", from, flips), "SPMOE_KINDS="+kinds)
		var out, crash strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &crash
		err := cmd.Run()
		seed, ended := from-1, from-1
		for line := range strings.Lines(out.String()) {
			var outcome, kind string
			fmt.Sscanf(line, "SEED %d", &seed)
			if n, _ := fmt.Sscanf(line, "RESULT %d %s %s", &ended, &outcome, &kind); n < 3 {
				continue
			}
			t.Log(strings.TrimSpace(line))
			if counts[outcome]++; outcome == "WRONG" || outcome == "hang" {
				unnoticed = append(unnoticed, kind)
			}
		}
		if seed < from {
			t.Fatalf("%v: %s%s", err, out.String(), crash.String())
		}
		if ended < seed {
			counts["crash"]++
			unnoticed = append(unnoticed, "crash")
			t.Logf("RESULT %d crash %.1500s", seed, crash.String())
		}
		from = seed + 1
	}
	t.Log(counts, unnoticed)
	harmful := flips - counts["harmless"]
	if len(unnoticed) > 1+harmful/50 || counts["hang"]+counts["crash"] > 0 ||
		slices.ContainsFunc(unnoticed, func(kind string) bool { return strings.Contains(kind, "RotaryTable") }) {
		t.Errorf("%d of %d harmful flips were not noticed: %q", len(unnoticed), harmful, unnoticed)
	}
}
