// Package trainer runs the training loop on every rank: batches in, optimizer steps, metrics,
// evaluation and checkpoints out. A job (job.go) starts ranks (start.go, rank.go), which run the
// loop (loop.go) of steps (step.go).
package trainer

// A training job: what is checked and opened before its ranks start, and how they start.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"spmoe/collective"
	"spmoe/datasets"
	"spmoe/launcher/checkpoint"
	"spmoe/launcher/record"
	"spmoe/launcher/spmd"
	"spmoe/launcher/system"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/estimate"
	"spmoe/launcher/trainer/events"
	"spmoe/launcher/trainer/observe"
	"spmoe/launcher/trainer/save"
	"spmoe/launcher/trainer/state"
	"spmoe/launcher/weights"
	"spmoe/moe"
	"spmoe/tensor"
	"spmoe/tensor/cpu"
)

// CheckDisk returns an error if the file system of the run's folder lacks the space for the
// checkpoints that the run will hold at the same time: those that it keeps, and one that is being
// written. Those that exist have their space already. It deletes what killed saves have left.
func (j *Job) CheckDisk() error {
	if err := checkpoint.Tidy(checkpoint.Disk{Folder: j.Folder}, j.cfg.Out); err != nil {
		return err
	}
	free, ok := system.FreeSpace(j.cfg.Out)
	if !ok {
		return nil
	}
	return estimate.CheckSpace(j.cfg, j.ranks, j.progress.Step, checkpoint.Count(j.cfg.Out), free)
}

// Job is a run that has been checked: its data is read, and the checkpoint that it resumes, if any,
// is open and verified.
type Job struct {
	Profile bool     // report the time of a step by kind of work at the end
	Notes   []string // to report at the start, before those of the configuration

	// Folder is the run's folder, which this job holds; nil: Run holds the one at the path. If it
	// loses its name or its lock, nothing is written there.
	Folder *system.FolderLock

	// Disturb, if not nil, is called on every rank for every operand that a linear layer is about
	// to multiply, including evaluations and the first weights. It may change codes and scales, and
	// the changed ones are multiplied: tests use it to break a recipe. Goroutine ranks call it
	// concurrently. Weights that several ranks hold must be changed in the same way on all of them.
	Disturb func(moe.Quantized)

	Settings []Setting // beyond the configuration, that must be the same on all ranks

	// corrupt, if not nil, is called on every rank before and after each computation of a step's
	// gradients: tests use it to corrupt memory.
	corrupt func(r *rank, computed bool)

	cfg     config.Config
	ranks   int
	first   []int // the first rank of each host
	report  events.Reporter
	corpus  datasets.Counts
	text    Text
	data    *datasets.Data
	train   datasets.Stream
	heldOut datasets.Stream

	tokenizer     datasets.Tokenizer
	tokenizerFile []byte  // the run's copy; nil: the name is enough
	tokenBytes    []int32 // bytes of text of each id
	separator     int32   // the id that ends a document; set with document_mask

	resume   *checkpoint.Reader // nil in a new run
	source   *weights.Source    // first weights of a new run; nil: random
	started  atomic.Bool        // all ranks have read these, and they are closed
	files    checkpoint.Files   // for writing checkpoints; nil: the run's folder
	progress state.Progress
	clock    *save.Clock
	late     bool // this process has joined a running job

	cores       int  // of all ranks; known when they run
	interrupted bool // set by rank 0 at the end
	// last training and validation loss, set by rank 0 at the end unless the run was interrupted
	lossOfEnd [2]float64

	meter  atomic.Pointer[observe.Meter] // of rank 0, once it runs in this process
	differ atomic.Pointer[DisagreementError]
}

// Prepare checks that n ranks can run cfg on this machine, and reads the data. resume is the
// checkpoint or run folder to continue from, or empty. Its errors are user errors, and nothing has
// been written.
func Prepare(cfg config.Config, n int, resume string, report events.Reporter) (*Job, error) {
	return PrepareOn(cfg, n, estimate.Goroutines(n), resume, Text{}, report)
}

// PrepareOn is Prepare for ranks in other processes, or on several machines.
func PrepareOn(cfg config.Config, n int, on estimate.Host, resume string, text Text, report events.Reporter) (*Job, error) {
	if err := cfg.Validate(n); err != nil {
		return nil, err
	}
	if err := cfg.OnHosts(n, on.FirstRanks(n)); err != nil {
		return nil, err
	}
	if err := estimate.Fits(cfg, n, on); err != nil {
		return nil, err
	}
	j := newJob(cfg, n, report)
	j.text, j.first = text, on.FirstRanks(n)
	if err := j.read(resume); err != nil {
		return nil, err
	}
	var err error
	if resume == "" {
		err = j.openNew()
	} else {
		err = j.open(resume)
	}
	if err = cmp.Or(err, j.checkRoutes()); err != nil {
		j.Close()
		return nil, err
	}
	return j, nil
}

// Rejoin is Prepare for a process that replaces a rank of a running job and continues from the
// state that the ranks keep. It accepts the files that the run has written, in the folder that the
// job holds, and the memory that it uses.
func Rejoin(cfg config.Config, n int, folder *system.FolderLock, text Text, report events.Reporter) (*Job, error) {
	j := newJob(cfg, n, report)
	j.late, j.clock.Late, j.Folder, j.text = true, true, folder, text
	return j, j.read(cfg.Out)
}

func newJob(cfg config.Config, n int, report events.Reporter) *Job {
	return &Job{cfg: cfg, ranks: n, report: newSerialReporter(report), clock: &save.Clock{Now: time.Now}}
}

// openStart opens what a running job has started from: its newest checkpoint, if there is one. It
// is used as long as the vaults hold no state.
func (j *Job) openStart() error {
	if err := j.Folder.Check(); err != nil {
		return err
	}
	path, err := checkpoint.Latest(j.cfg.Out)
	if errors.Is(err, checkpoint.ErrNone) {
		return j.openSource()
	} else if err != nil {
		return err
	}
	return j.open(path)
}

// openNew opens what a new run starts from. It refuses to overwrite an old run.
func (j *Job) openNew() error {
	path, err := checkpoint.Latest(j.cfg.Out)
	if errors.Is(err, checkpoint.ErrNone) {
		return j.openSource()
	} else if err != nil {
		return err
	}
	return fmt.Errorf("%s holds %s of an earlier run: add --resume to continue it, or give another --out", j.cfg.Out, filepath.Base(path))
}

// open reads and verifies the checkpoint, and compares it with the configuration.
func (j *Job) open(path string) (err error) {
	if j.resume, err = checkpoint.Open(path, state.CheckState); err != nil {
		return fmt.Errorf("%w (a run resumes from its newest checkpoint: to go back to the previous one, move that folder away)", err)
	}
	if j.progress, err = state.ReadProgress(j.resume); err != nil {
		return err
	}
	j.progress.Run = j.resume.Run()
	if !j.resume.Summed() {
		j.Notes = append(j.Notes, fmt.Sprintf("%s has no checksums of the state in training (guard.every was 0, or the version was an older one): only its files are known to be as they were written", filepath.Base(j.resume.Path())))
	}
	for _, a := range j.resume.SetAside() {
		j.report.Alarm(events.Alarm{Step: j.progress.Step, Text: fmt.Sprintf("%v; going on from %s", a, filepath.Base(j.resume.Path()))})
	}
	if j.progress.Step > j.cfg.Steps {
		return fmt.Errorf("%s is at step %d, after the end of the run: give --steps %d or more", j.resume.Path(), j.progress.Step, j.progress.Step)
	}
	if err := config.SameOptimizer(j.resume, j.cfg); err != nil {
		return err
	}
	l, err := j.loader(0)
	if err != nil {
		return err
	}
	if j.text.New && j.progress.Loader.Fingerprint != j.train.Fingerprint() {
		j.progress.BeginData(j.train.Fingerprint())
	}
	if change := j.progress.DataChange(); change != "" {
		j.Notes = append(j.Notes, change)
	}
	if err := l.Restore(j.progress.Loader); err != nil {
		err = fmt.Errorf("%s does not fit this run: %w", j.resume.Path(), err)
		if j.progress.Loader.Fingerprint != j.train.Fingerprint() {
			err = fmt.Errorf("%w, or add --allow-changes to --data to go on with this data from its start", err)
		}
		if before := j.progress.Before; before != nil && before.Fingerprint == j.train.Fingerprint() {
			err = fmt.Errorf("%w (the run left this data after %d sequences: leave --data out to go on with what it reads since)", err, before.Pos)
		}
		if was, is := j.progress.Text, j.corpus.Builtin; is != "" && was != "" {
			err = fmt.Errorf("%w (without --data it was trained on %.300q; here that is %q)", err, was, is)
		}
		return err
	}
	return nil
}

// Close closes the checkpoint, the initial weights and the data. It may be called more than once.
func (j *Job) Close() (err error) {
	err = j.closeStart()
	if j.data != nil {
		err = errors.Join(err, j.data.Close())
	}
	j.resume, j.source, j.data, j.train, j.heldOut = nil, nil, nil, datasets.Stream{}, datasets.Stream{}
	return err
}

// corePeaks caches the measured peaks by type, for the next runs of this process.
var corePeaks sync.Map

// corePeak returns the peak of the cores of this process, in FLOP/s.
func corePeak(dtype tensor.DType) float64 {
	known, ok := corePeaks.Load(dtype)
	if !ok {
		known, _ = corePeaks.LoadOrStore(dtype, tensor.Peak(dtype, 50*time.Millisecond))
	}
	return known.(float64)
}

// Run trains until the last step, or until ctx is cancelled. Then it stops at the next step
// boundary and returns ErrInterrupted. Either way it saves a checkpoint.
//
// The ranks are those of world; their number is that given to Prepare.
func (j *Job) Run(ctx context.Context, world spmd.World) error {
	defer j.Close()
	if j.Folder == nil {
		if err := os.MkdirAll(j.cfg.Out, 0o777); err != nil {
			return err
		}
		folder, err := system.HoldFolder(j.cfg.Out, "")
		if err != nil {
			return err
		}
		defer folder.Release()
		j.Folder = folder
	}
	dtype, err := j.cfg.DType()
	if err != nil {
		return err
	}
	if world.Ranks() != j.ranks {
		panic(fmt.Sprintf("trainer: %d ranks run a job for %d", world.Ranks(), j.ranks))
	}
	defer boundGarbage()()
	j.cores = world.Cores()
	peak := 0.0
	if world.Leads() && !world.Late() {
		if err := j.copyTokenizer(); err != nil {
			return err
		}
		// The cores that this process may use are a sample of all.
		peak = corePeak(dtype) * float64(world.Cores()) / float64(runtime.GOMAXPROCS(0))
		j.report.Start(j.start(peak, world.Cores()))
	}
	team := j.team(world)
	defer team.Close()
	defer j.announceStop(ctx, world)()
	err = world.Run(func(c *collective.Comm) error {
		ex := team.Join()
		defer ex.Close()
		if c.Shared() {
			ex.Allocator = c.Allocator()
		}
		r, err := newRank(j, c, ex, peak)
		if differ := (*DisagreementError)(nil); errors.As(err, &differ) {
			j.differ.Store(differ)
			return nil // no rank has failed, and none goes on
		} else if err != nil {
			return err
		}
		return r.run(ctx)
	})
	if differ := j.differ.Load(); err == nil && differ != nil {
		return differ
	}
	if err == nil && j.interrupted {
		return events.ErrInterrupted
	}
	return err
}

// Complete returns the record of the end of a run that this job resumes, and whether it has one: no
// step is left, and the last evaluation and the sample are made.
func (j *Job) Complete() (done record.Done, ok bool) {
	if j.resume == nil || j.progress.Step < j.cfg.Steps {
		return done, false
	}
	log, err := record.Read(j.cfg.Out)
	if err != nil || log.Done == nil || log.Done.Step != j.progress.Step {
		return done, false // the run makes up for it
	}
	j.lossOfEnd = [2]float64{j.progress.Recent.Last(), float64(log.Done.HeldOut)}
	return *log.Done, true
}

// Diverged returns an error if a run that has ended has no usable weights, because its last losses
// are not finite. Only the process of rank 0 knows.
func (j *Job) Diverged() error {
	training, validation := j.lossOfEnd[0], j.lossOfEnd[1]
	if training-training == 0 && validation-validation == 0 {
		return nil
	}
	return fmt.Errorf("the run ended with a training loss of %g and a validation loss of %g: its weights are of no use: %s shows at which step it went wrong; train again with a lower --optimizer.lr or a longer optimizer.warmup",
		training, validation, filepath.Join(j.cfg.Out, record.File))
}

// start returns the event that begins a run. peak is the machine's, in FLOP/s.
func (j *Job) start(peak float64, cores int) events.Start {
	s := events.Start{
		Config: j.cfg, Ranks: j.ranks, Mesh: j.cfg.LayoutOrDefault(j.ranks), Counts: j.cfg.Model.Count(), Memory: estimate.Memory(j.cfg, j.ranks),
		FLOPs: j.cfg.Model.FLOPsPerToken(j.cfg.Seq), Peak: peak,
		CPU: cpu.Model(), Tier: cpu.Best().String(), Cores: cores,
		Corpus: j.corpus, Tokenizer: j.describeTokenizer(), From: j.progress.Step,
		Notes: slices.Concat(j.Notes, estimate.Notices(j.cfg, j.tokenizer), estimate.LayoutNotices(j.cfg, j.ranks, j.first), estimate.TextNotices(j.data, j.tokenizer)),
	}
	if j.resume != nil {
		s.Resumed = j.resume.Path()
		if was := j.progress.Tier; was != "" && was != cpu.Best() {
			s.Notes = append(s.Notes, fmt.Sprintf("the run so far was computed with the instruction tier %.20q, this part of it with %s: its last bits differ from those of a run on one tier (%s names another)", was, cpu.Best(), cpu.EnvVar))
		}
	}
	return s
}

// Heap is [Config.Heap] of the job.
func (j *Job) Heap() int64 { return estimate.Heap(j.cfg, j.ranks) }

// Vault is [Config.Vault] of the job.
func (j *Job) Vault() int64 { return estimate.Vault(j.cfg, j.ranks) }

// Look checks what a run would read, without reading the text: tokenizer, data and initial weights.
// from is the checkpoint that it would resume, or empty. It returns the run's notices.
func Look(cfg config.Config, from string) (notices []string, err error) {
	j := newJob(cfg, 1, nil)
	defer func() { err = errors.Join(err, j.Close()) }()
	if err := j.openTokenizer(from); err != nil {
		return nil, err
	}
	if err := datasets.Check(cfg.Data, j.tokenizer, dataOptions(cfg)); err != nil {
		return nil, err
	}
	if from == "" {
		if err := j.openSource(); err != nil {
			return nil, err
		}
	}
	return append(j.Notes, estimate.Notices(cfg, j.tokenizer)...), nil
}

// garbageBound is whether runs bound the garbage of Go's heap. The collector lets garbage grow to a
// share of all that is in use, by default as much again. Tensors are in that heap, so the share
// would be gigabytes. Collections are cheap all the same: tensors hold no pointers. Tests turn it
// off.
var garbageBound = true

// boundGarbage returns memory that is not in use to the system, for example that of reading the
// text, and bounds garbage until release. release returns the memory of the ranks, so that what
// follows a run, such as its report, does not add to it.
func boundGarbage() (release func()) {
	if !garbageBound {
		return func() {}
	}
	debug.FreeOSMemory()
	before := debug.SetGCPercent(estimate.GarbagePercent)
	return func() {
		debug.SetGCPercent(before)
		debug.FreeOSMemory()
	}
}
