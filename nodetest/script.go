// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/internal/scriptlines"
	"github.com/seed81659283/nodeagent/nodetest/machine"
)

// scriptMark begins a line of expected output.
const scriptMark = ">"

// updateVariable is the environment variable that makes RunScripts write the actual output to the scripts.
const updateVariable = "NODETEST_UPDATE"

// RunScripts plays each script in the files that match pattern as a subtest, twice: with a [Loop], and with a [Node] in a bubble of
// testing/synctest. A script has commands, and below each command its expected output in lines that begin with ">". A subtest fails if the
// output of one of the two differs.
//
// If the environment variable NODETEST_UPDATE is set, the output of the Node is written to the files instead.
//
// A file is a single script, or a comment followed by scripts that each begin with a line "-- NAME --". [PlayScript] describes the commands.
func RunScripts(t *testing.T, pattern string) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts in %s: %v", pattern, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var result strings.Builder
		for _, section := range scriptlines.Sections(string(text)) {
			actual := section.Text
			if section.Title != "" || !section.HasTitles {
				t.Run(strings.TrimSuffix(filepath.Base(file)+"/"+section.Title, "/"), func(t *testing.T) {
					actual = checkScript(t, section.Text)
				})
			}
			result.WriteString(section.Header + actual)
		}
		if os.Getenv(updateVariable) != "" && result.String() != string(text) {
			if err := os.WriteFile(file, []byte(result.String()), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// checkScript plays a script with a Node and with a Loop. It fails the test if an output differs, and returns the script with the output of the Node.
func checkScript(t *testing.T, script string) (actual string) {
	t.Helper()
	var log Log
	synctest.Test(t, func(t *testing.T) {
		actual, log = playScript(t.Context(), script, openNode)
	})
	want := script
	if os.Getenv(updateVariable) != "" {
		want = actual
	}
	if actual != want {
		t.Errorf("want\n%s\ngot of a Node\n%s\nlog of the node:\n%s", want, actual, log)
	}
	if actual, log := PlayScript(t.Context(), script); actual != want {
		t.Errorf("want\n%s\ngot of a Loop\n%s\nlog of the node:\n%s", want, actual, log)
	}
	return actual
}

// PlayScript plays a script with a [Loop], and returns it with its actual output, and the log of its node. A command that fails
// has the error as its output. If ctx ends, time no longer passes. Blank lines and comments, which begin with "#", have no effect. The commands before the first pod describe the node:
//
//	machine cpus=2 memory=4Gi swap=1Gi disk=50Gi tasks=1000     Options.Machine
//	system memory=500Mi cpu=0.1                                 Options.System
//	threshold memory.available 500Mi [1m30s]                    evictionHard or, with its grace period, evictionSoft
//	seed 7                                                      Options.Seed
//
// These commands act on the node:
//
//	pod NAME [cpu=100m] [memory=1Gi] [limits.cpu=1] [limits.memory=1Gi] [priority=5] [grace=10s] [restart=Never] [uses FIELDS]
//	    creates a pod with requests and limits; FIELDS are those of AnnotationUsage. NAME may have a range: web-{1..30} are 30 pods
//	delete NAME
//	after 10m                           waits
//	fault OP error|hang|DURATION [TIMES]   runtime calls fail, hang or are late
//	repair                              removes all faults
//	restart agent DURATION, reboot DURATION, cut network, connect network, fill disk 40Gi
//
// and these have output:
//
//	evicted, oom, conditions            in order, with their times
//	log [POD] [KIND [REASON]]           entries of the log; "-" matches all pods
//	phases POD, ready POD               how long it was in each phase, and not ready
//	cpu POD, memory POD                 usage and throttled time; working set and limit
//	node                                memory available, and CPU time used
func PlayScript(ctx context.Context, script string) (actual string, log Log) {
	return playScript(ctx, script, openLoop)
}

// scriptNode is a node that a script acts on: a Node or a Loop.
type scriptNode interface {
	ObservedNode
	Add(pods ...*corev1.Pod) error
	Delete(name string) error
	Advance(d time.Duration)
	Age() time.Duration
	Log() Log
	Stats(name string) (cgroups.Stats, error)
	Inject(f Fault) (remove func())
	RestartAgent(down time.Duration) error
	Reboot(down time.Duration) error
	CutNetwork(cut bool) error
	FillDisk(disk machine.DiskName, bytes int64)
}

// opener starts a node. The caller calls stop at the end.
type opener func(ctx context.Context, o Options) (node scriptNode, stop func(), err error)

// openNode starts a Node.
func openNode(ctx context.Context, o Options) (scriptNode, func(), error) {
	n, err := Open(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	return n, func() { _ = n.Close() }, nil // the script shows what is wrong
}

// openLoop starts a Loop.
func openLoop(ctx context.Context, o Options) (scriptNode, func(), error) {
	l, err := NewLoop(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	return l, func() {}, nil
}

// playScript runs the commands of a script on the node that open starts. It returns the script with the actual output, and
// the log of the node.
func playScript(ctx context.Context, script string, open opener) (actual string, log Log) {
	p := &player{ctx: ctx, open: open}
	actual = scriptlines.Lines(script, scriptMark, func(out *strings.Builder, words []string) {
		p.out = out
		if err := p.playCommand(words[0], words[1:]); err != nil {
			p.printLine("%v", err)
		}
	})
	if p.node != nil {
		log = p.node.Log()
		p.stop()
	}
	return actual, log
}

// player plays a script.
type player struct {
	ctx     context.Context //nolint:containedctx // of one playScript call
	open    opener
	options Options
	node    scriptNode // nil until the first command that needs it
	stop    func()     // stops node
	play    PlayOptions
	out     *strings.Builder
	repair  []func() // removes the faults
}

func (p *player) printLine(format string, args ...any) {
	fmt.Fprintln(p.out, strings.TrimSpace("> "+fmt.Sprintf(format, args...)))
}

// playCommand executes one command.
func (p *player) playCommand(command string, args []string) error {
	if configure := map[string]func([]string) error{
		"machine": p.setMachine, "system": p.setSystem, "threshold": p.setThreshold, "seed": p.setSeed,
	}[command]; configure != nil {
		if p.node != nil {
			return fmt.Errorf("%s: the node runs already", command)
		}
		return configure(args)
	}
	act := map[string]func([]string) error{
		"pod": p.addPod, "delete": p.deletePod, "after": p.waitFor, "fault": p.injectFault, "repair": p.repairAll, "restart": p.restartAgent, "reboot": p.rebootNode,
		"cut": p.cutNetwork, "connect": p.connectNetwork, "fill": p.fillDisk,
		"evicted": p.showEvicted, "oom": p.showOOM, "conditions": p.showConditions, "log": p.showLog, "phases": p.showPhases, "ready": p.showReady,
		"cpu": p.showCPU, "memory": p.showMemory, "node": p.showNode,
	}[command]
	if act == nil {
		return fmt.Errorf("no command %q", command)
	}
	if p.node == nil {
		if p.play.Adjust != nil {
			p.play.Adjust(&p.options)
		}
		var err error
		if p.node, p.stop, err = p.open(p.ctx, p.options); err != nil {
			return err
		}
	}
	return act(args)
}

// setMachine executes the script command machine: it sets fields of Options.Machine. args have the form KEY=AMOUNT.
func (p *player) setMachine(args []string) error {
	m := &p.options.Machine
	return parseSettings(args, func(key string, amount float64) bool {
		switch key {
		case "cpus":
			m.CPUs = int(amount)
		case "memory":
			m.Memory = int64(amount)
		case "swap":
			m.Swap = int64(amount)
		case "tasks":
			m.Tasks = int64(amount)
		case "disk":
			m.Disk.Bytes = int64(amount)
		case "inodes":
			m.Disk.Inodes = int64(amount)
		case "imagedisk":
			m.ImageDisk = &machine.Disk{Bytes: int64(amount)}
		default:
			return false
		}
		return true
	})
}

// parseSettings parses arguments of the form KEY=AMOUNT and calls set for each. If set returns false, the key is unknown and
// parseSettings returns an error.
func parseSettings(args []string, set func(key string, amount float64) bool) error {
	for _, arg := range args {
		key, value, _ := strings.Cut(arg, "=")
		amount, err := parseAmount(value)
		if err == nil && !set(key, amount) {
			err = errors.New("no such setting")
		}
		if err != nil {
			return fmt.Errorf("%s: %w", arg, err)
		}
	}
	return nil
}

func (p *player) setSystem(args []string) error {
	b, err := ParseBehavior(strings.Join(args, " "), 0)
	p.options.System = b.Usage
	return err
}

// setThreshold sets an eviction threshold in the configuration. args are SIGNAL AMOUNT for a hard threshold, and SIGNAL
// AMOUNT GRACE for a soft threshold.
func (p *player) setThreshold(args []string) error {
	if len(args) < 2 {
		return errors.New("threshold SIGNAL AMOUNT [GRACE]")
	}
	k := &p.options.Config.Kubelet
	if len(args) == 2 {
		k.EvictionHard = withEntry(k.EvictionHard, args[0], args[1])
		return nil
	}
	k.EvictionSoft, k.EvictionSoftGracePeriod = withEntry(k.EvictionSoft, args[0], args[1]), withEntry(k.EvictionSoftGracePeriod, args[0], args[2])
	return nil
}

// withEntry returns m with an entry, a new map if m is nil.
func withEntry(m map[string]string, key, value string) map[string]string {
	if m == nil {
		m = map[string]string{}
	}
	m[key] = value
	return m
}

func (p *player) setSeed(args []string) error {
	amount, err := parseAmount(strings.Join(args, " "))
	p.options.Seed = uint64(amount)
	return err
}

func (p *player) waitFor(args []string) error {
	d, err := parseDuration(strings.Join(args, ""))
	if err != nil || p.play.Observe == nil {
		p.node.Advance(d)
		return err
	}
	return p.waitObserved(d)
}

func (p *player) deletePod(args []string) error { return p.node.Delete(strings.Join(args, " ")) }
