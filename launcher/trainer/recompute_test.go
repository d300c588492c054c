package trainer

import (
	"reflect"
	"testing"

	"spmoe/launcher/record"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/events"
)

// A run has one result and one record, whatever the backward pass makes anew: with steps that are
// computed twice, in several passes, with documents, evaluations between steps, and measurements of
// what quantization does.
func TestRecompute(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ranks  int
		change func(*config.Config)
	}{
		"fp32":  {1, func(c *config.Config) { c.Precision = "fp32" }},
		"bf16":  {4, func(c *config.Config) { c.Precision, c.Model.ForceBalance = "bf16", true }},
		"mxfp8": {2, func(c *config.Config) { c.Precision = "mxfp8" }},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := onRows(t, shortRows(t, 1))
			cfg.Steps, cfg.DocumentMask, cfg.Guard.Replay, cfg.EvalEvery, cfg.RecordEvery = 2, true, 2, 1, 1
			cfg.Model.MTPLayers, cfg.Model.BalanceAlpha = 1, 0.01
			cfg.MicroBatch = cfg.Batch / c.ranks / 2
			c.change(&cfg)
			run := func(recompute string) (outcome, record.Log, []events.Alarm) {
				cfg := cfg
				cfg.Recompute, cfg.Out = recompute, t.TempDir()
				o, reported := outcomeOn(t, cfg, []int{c.ranks}, "", nil)
				return o, readRecord(t, cfg).Timeless(), reported.alarms
			}
			want, wantLog, alarms := run("none")
			if len(alarms) > 0 || len(wantLog.Loads) == 0 || (len(wantLog.Quantized) > 0) != (cfg.Precision == "mxfp8") {
				t.Fatalf("alarms %v, %d loads, %d operands", alarms, len(wantLog.Loads), len(wantLog.Quantized))
			}
			for _, recompute := range []string{"selective", "full"} {
				got, log, alarms := run(recompute)
				got.equals(t, recompute, want)
				if !reflect.DeepEqual(log, wantLog) {
					t.Errorf("%s: another record: %+v, want %+v", recompute, log, wantLog)
				}
				if len(alarms) > 0 {
					t.Errorf("%s: alarms %v", recompute, alarms)
				}
			}
		})
	}
}
