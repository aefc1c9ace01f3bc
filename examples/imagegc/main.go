// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Imagegc prints which images of a node can be removed, and why the remaining images are kept. With -remove it removes them.
//
//	imagegc -runtime unix:///run/containerd/containerd.sock
//	imagegc -runtime unix:///run/containerd/containerd.sock -want 1073741824 -remove
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/remote"
	"github.com/seed81659283/nodeagent/gc"
)

// settings contains the values of the flags.
type settings struct {
	endpoint string
	ages     string
	want     uint64
	remove   bool
	policy   gc.ImagePolicy
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	s := settings{policy: gc.DefaultImagePolicy()}
	flag.StringVar(&s.endpoint, "runtime", "unix:///run/containerd/containerd.sock", "endpoint of the container runtime")
	flag.StringVar(&s.ages, "ages", "", "file that ages of images are kept in; empty: all are new, so that -min-age 0 is needed to remove any")
	flag.IntVar(&s.policy.HighThresholdPercent, "high", s.policy.HighThresholdPercent, "how full the disk must be, in percent, for images to go")
	flag.IntVar(&s.policy.LowThresholdPercent, "low", s.policy.LowThresholdPercent, "how full it may be then")
	flag.DurationVar(&s.policy.MinAge, "min-age", s.policy.MinAge, "for how long an image must be known to go")
	flag.DurationVar(&s.policy.MaxAge, "max-age", s.policy.MaxAge, "after how long without use it goes in any case; 0: never")
	flag.Uint64Var(&s.want, "want", 0, "bytes to free whatever the disk has; 0: what the thresholds ask for")
	flag.BoolVar(&s.remove, "remove", false, "remove what the plan says")
	flag.Parse()
	if err := runCollector(ctx, s, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "imagegc:", err)
		os.Exit(1)
	}
}

func runCollector(ctx context.Context, s settings, out io.Writer) error {
	client, err := remote.Dial(s.endpoint, remote.Options{})
	if err != nil {
		return err
	}
	defer client.Close()
	return printAndCollect(ctx, client, client, nil, s, out)
}

// printAndCollect prints the plan, and executes it if s.remove is set. If disk is nil, the runtime reports the disk usage.
func printAndCollect(
	ctx context.Context, images cri.Images, lister cri.Lister, disk func(context.Context) (gc.Disk, error), s settings, out io.Writer,
) error {
	collector, err := gc.NewImages(images, lister, gc.ImageOptions{
		Policy: &s.policy, Ages: s.ages, Disk: disk,
		Hooks: gc.ImageHooks{Removed: func(i gc.Image, reason gc.RemovalReason) {
			fmt.Fprintf(out, "removed %s, for %s\n", imageName(&i), reason)
		}},
	})
	if err != nil {
		return err
	}
	plan, is, err := collector.Plan(ctx)
	if err != nil {
		return err
	}
	want, _, err := s.policy.Excess(is)
	if err != nil {
		return err
	}
	want = cmp.Or(s.want, want)
	printPlan(out, &plan, is, want)
	switch {
	case !s.remove:
		return nil
	case s.want > 0:
		freed, err := collector.Reclaim(ctx, s.want)
		fmt.Fprintf(out, "freed %d bytes\n", freed)
		return err
	}
	err = collector.Collect(ctx)
	if short, ok := errors.AsType[*gc.ShortError](err); ok {
		fmt.Fprintf(out, "freed %d bytes\n", short.Freed)
	}
	return err
}

// printPlan prints a plan as a table. The header has want, the number of bytes to free.
func printPlan(out io.Writer, plan *gc.ImagePlan, disk gc.Disk, want uint64) {
	fmt.Fprintf(out, "%d%% of %d bytes used, %d bytes to free\n", disk.Used(), disk.Capacity, want)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	defer table.Flush()
	fmt.Fprintln(table, "PLAN\tIMAGE\tBYTES\tKNOWN SINCE\tWHY")
	row := func(what string, i *gc.Image, why string) {
		fmt.Fprintf(table, "%s\t%s\t%d\t%s\t%s\n", what, imageName(i), i.Size, i.FirstDetected.UTC().Format(time.DateTime), why)
	}
	for i := range plan.Old {
		row("goes", &plan.Old[i], "unused for too long")
	}
	first, _ := plan.CountToFree(want)
	for i := range plan.Unused {
		if i < first {
			row("goes", &plan.Unused[i], "room is needed")
		} else {
			row("may go", &plan.Unused[i], "unused")
		}
	}
	for i := range plan.Kept {
		row("stays", &plan.Kept[i].Image, string(plan.Kept[i].Reason))
	}
}

// imageName returns the names of an image, or its ID.
func imageName(i *gc.Image) string {
	return cmp.Or(strings.Join(i.Names, ","), i.ID, "?")
}
