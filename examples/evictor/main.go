// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Evictor observes this machine and prints which pods it would evict and why. The children of a cgroup stand for pods:
//
//	evictor -cgroup /kubepods/burstable -memory 10% -disk 15%
//
// On a terminal it prints a table for each observation, otherwise a line of JSON. It changes nothing.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/seed81659283/nodeagent/cgroups/driver"
	"github.com/seed81659283/nodeagent/eviction"
)

func main() {
	root := flag.String("cgroup", "/", "the cgroup whose children count as pods")
	dir := flag.String("dir", "/", "a directory of the filesystem that counts as nodefs")
	memory := flag.String("memory", "100Mi", "how much memory is kept free")
	disk := flag.String("disk", "10%", "how much of the filesystem is kept free")
	once := flag.Bool("once", false, "observe once and end")
	flag.Parse()
	hard := map[string]string{string(eviction.MemoryAvailable): *memory, string(eviction.NodeFSAvailable): *disk}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := watchMachine(ctx, machine{dir: *dir}, *root, hard, *once); err != nil {
		fmt.Fprintln(os.Stderr, "evictor:", err)
		os.Exit(1)
	}
}

// watchMachine observes the machine and prints eviction decisions until ctx ends. If once is true, it returns after the
// first decision.
func watchMachine(ctx context.Context, m machine, root string, hard map[string]string, once bool) (err error) {
	if m.cgroups, err = driver.Open(ctx, driver.Options{Root: root, OptionalControllers: []string{"cpu", "pids"}}); err != nil {
		return err
	}
	defer m.cgroups.Close()
	thresholds, err := eviction.ParseThresholds(eviction.Config{Hard: hard})
	if err != nil {
		return err
	}
	policy, err := eviction.NewPolicy(eviction.Rules{Thresholds: thresholds, NoLocalStorage: true})
	if err != nil {
		return err
	}
	terminal := isTerminal(os.Stdout)
	for state := (eviction.State{}); ; {
		o, err := m.observePods(ctx)
		if err != nil {
			return err
		}
		d := policy.Decide(state, o, time.Now())
		if d.Reclaim != nil { // the example has nothing to reclaim: decide as if that had freed nothing
			d = policy.Decide(d.State.Reclaimed(*d.Reclaim, 0, time.Now()), o, time.Now())
		}
		state = d.State
		for _, e := range d.Evict {
			state = state.Evicted(e.UID)
		}
		if err := printDecision(os.Stdout, terminal, o, d); err != nil || once {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(max(time.Until(d.Wake), time.Second)):
		}
	}
}

// printDecision prints an observation and the decision about it.
func printDecision(w io.Writer, terminal bool, o eviction.Observation, d eviction.Decision) error {
	if !terminal {
		return json.NewEncoder(w).Encode(map[string]any{
			"time": time.Now(), "readings": o.Readings, "conditions": d.Conditions, "evict": d.Evict, "pods": len(o.Candidates),
		})
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(table, "\x1b[H\x1b[2J") // clear the screen and move to its top
	for _, r := range o.Readings {
		fmt.Fprintf(table, "%s\t%d MiB of %d\t\n", r.Signal, r.Available>>20, r.Capacity>>20)
	}
	fmt.Fprintf(table, "conditions\t%v\t\n", d.Conditions)
	ranked := eviction.NewRanker(eviction.RankOptions{}).Rank(eviction.MemoryAvailable, o.Candidates)
	for _, c := range ranked[:min(len(ranked), 20)] {
		fmt.Fprintf(table, "%s\t%d MiB\t\n", c.Name, c.Memory>>20)
	}
	for _, e := range d.Evict {
		fmt.Fprintf(table, "would evict %s\t%s\t\n", e.Name, strings.TrimSpace(e.Message))
	}
	return table.Flush()
}

// isTerminal reports whether a file is a character device, such as a terminal.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
