// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Virtualnode is any number of nodes of a cluster whose pods run in the memory of this program, for those who test schedulers,
// controllers and autoscalers: Node objects, leases, statuses and events are those of an agent, but no container does anything. Each
// starts at once and is ready. Init containers exit with 0, those of pods that are not to be restarted after -jobs, and those of a
// pod with the annotation virtualnode/exit-code with that code. Volumes, probes, hooks and resource claims are left out.
//
//	virtualnode -kubeconfig admin.conf -cpu 8 -memory 16Gi n1 n2 n3
//
// When it is stopped the nodes stay until somebody deletes them, and their pods are started anew the next time.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/nodestatus"
	"github.com/seed81659283/nodeagent/nodestatus/kubeconfig"
)

// flags are what all nodes have in common.
type flags struct {
	kubeconfig string
	cpus, pods int
	memory     resource.QuantityValue
	jobs       time.Duration
	log        *slog.Logger
}

func main() {
	f := &flags{log: slog.New(slog.DiscardHandler), memory: resource.QuantityValue{Quantity: resource.MustParse("16Gi")}}
	flag.StringVar(&f.kubeconfig, "kubeconfig", "", "of a user who may be all of these nodes: system:node:NAME, or an administrator")
	flag.IntVar(&f.cpus, "cpu", 4, "processors of each node")
	flag.Var(&f.memory, "memory", "memory of each node")
	flag.IntVar(&f.pods, "pods", nodestatus.DefaultMaxPods, "pods that each node may have")
	flag.DurationVar(&f.jobs, "jobs", 5*time.Second, "how long a container runs that is not to be restarted")
	flag.BoolFunc("v", "log what is done", func(string) error { f.log = slog.Default(); return nil })
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := f.run(ctx, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "virtualnode:", err)
		os.Exit(1)
	}
}

// run runs the nodes of these names until ctx ends or a part of one fails.
func (f *flags) run(ctx context.Context, names []string) error {
	if f.kubeconfig == "" || len(names) == 0 {
		return errors.New("-kubeconfig and the names of nodes are required")
	}
	config, err := kubeconfig.Load(f.kubeconfig)
	if err != nil {
		return err
	}
	var all []part
	for i, name := range names {
		n := &node{flags: f, name: name, ip: address(10, 87, i), log: f.log.With("virtual", name)}
		parts, err := n.parts(config, netip.PrefixFrom(address(10, 128+i/256, i<<8), 24))
		if err != nil {
			return err
		}
		all = append(all, parts...)
	}
	running, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var wg sync.WaitGroup
	for _, run := range all {
		wg.Go(func() {
			if err := run(running); err != nil {
				fail(err)
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return context.Cause(running)
}

// address returns an address that nothing answers at. The last two bytes of it are a number.
func address(a, b, number int) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(a), byte(b), byte(number >> 8), byte(number)})
}
