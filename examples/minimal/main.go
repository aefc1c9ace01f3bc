// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Minimal is an agent in one function: [agent.run]. It runs the pods of a directory of manifests and prints a line for each
// change of a pod. With -cri it uses containerd or CRI-O; without it, pods run as plain processes of this machine. When the
// agent stops, the pods continue, and the next start finds them again; with -stop-on-exit it terminates them.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/process"
	"github.com/seed81659283/nodeagent/cri/remote"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
	"github.com/seed81659283/nodeagent/lifecycle/source"
	"github.com/seed81659283/nodeagent/pleg"
	"github.com/seed81659283/nodeagent/probe"
	"github.com/seed81659283/nodeagent/probe/podprobe"
)

// agent contains the values of the flags, and the last printed line of each pod.
type agent struct {
	endpoint, manifests, node, state, logs string
	stopPods                               bool
	log                                    *slog.Logger
	last                                   sync.Map // last printed line of each pod, by UID
}

// run runs the agent until ctx ends.
func (a *agent) run(ctx context.Context) error {
	o := lifecycle.Options{Dirs: lifecycle.Dirs{Pods: filepath.Join(a.state, "pods")}, Sources: []string{source.File}, Logger: a.log}
	o.Spec.LogRoot, o.Hooks.StatusChanged = a.logs, a.printStatus
	o.Hooks.PodRemoved = func(pod cri.PodIdentity) {
		fmt.Println(time.Now().Format(time.TimeOnly), pod.Namespace+"/"+pod.Name, "Gone")
	}
	runtime, err := a.openRuntime(ctx, &o) // runs containers
	if err != nil {
		return err
	}
	generator := pleg.New(runtime, pleg.Options{Logger: a.log})                                   // detects their state changes
	probes := probe.NewSet(probe.Options{Store: filepath.Join(a.state, "probes"), Logger: a.log}) // runs their probes
	o.Probes = podprobe.NewPods(probes, podprobe.Options{Execer: podprobe.CRI(runtime)})
	reconciler, err := lifecycle.New(runtime, generator, o) // starts and stops the containers of each pod
	if err != nil {
		return err
	}
	dir := source.NewDir(a.manifests, source.DirOptions{NodeName: a.node, Logger: a.log}) // lists the desired pods

	parts, end := context.WithCancel(context.WithoutCancel(ctx)) // these continue while pods terminate
	wanted, fail := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	defer func() { end(); wg.Wait(); _ = runtime.Close() }()
	wg.Go(func() { _ = generator.Run(parts) })
	wg.Go(func() { _ = probes.Run(parts) })
	wg.Go(func() { fail(reconciler.Run(parts)) }) // fails at once if another agent uses the directory
	_ = dir.Run(wanted, func(u source.Update) {
		for _, err := range u.Errs {
			fmt.Fprintln(os.Stderr, "minimal:", err)
		}
		if err := reconciler.Set(u.PodSet); err != nil {
			fmt.Fprintln(os.Stderr, "minimal:", err)
		}
	})
	switch {
	case ctx.Err() == nil:
		return context.Cause(wanted) // the error of the reconciler
	case a.stopPods:
		drain, cancel := context.WithTimeout(parts, 5*time.Minute)
		defer cancel()
		return reconciler.Drain(drain)
	}
	return nil
}

// runtime is implemented by both container runtimes.
type runtime interface {
	cri.Runtime
	cri.Execer
	Close() error
}

// openRuntime returns a client of the runtime at the endpoint. If there is no endpoint, it returns the embedded runtime.
func (a *agent) openRuntime(ctx context.Context, o *lifecycle.Options) (runtime, error) {
	if a.endpoint == "" { // plain processes have no mounts, and use the address of the host
		o.NoMounts, o.Spec.HostIPs = true, func() []netip.Addr { return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})} }
		return process.Open(a.state, process.Options{Logger: a.log})
	}
	client, err := remote.Dial(a.endpoint, remote.Options{})
	if err != nil {
		return nil, err
	}
	return client, client.Check(ctx) // Dial does not connect
}

func main() {
	process.Main() // returns at once unless this program was started as a shim
	a := &agent{log: slog.New(slog.DiscardHandler)}
	host, _ := os.Hostname()
	flag.StringVar(&a.endpoint, "cri", "", "runtime, such as unix:///run/containerd/containerd.sock (none: plain processes)")
	flag.StringVar(&a.manifests, "manifests", "", "directory of pod manifests, or a single file")
	flag.StringVar(&a.node, "node", strings.ToLower(host), "name of this node")
	flag.StringVar(&a.state, "state", "/var/lib/nodeagent", "directory of the agent's own files")
	flag.StringVar(&a.logs, "logs", podspec.DefaultLogRoot, "directory of the pods' logs")
	flag.BoolVar(&a.stopPods, "stop-on-exit", false, "take the pods down on SIGTERM and SIGINT")
	flag.BoolFunc("v", "log what is done", func(string) error { a.log = slog.Default(); return nil })
	flag.Parse()
	if a.manifests == "" || flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "minimal: -manifests is required; unexpected arguments: %q\n", flag.Args())
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := a.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "minimal:", err)
		os.Exit(1)
	}
}

// printStatus prints a line when the phase, the reason or a container state of a pod has changed.
func (a *agent) printStatus(pod *corev1.Pod, st *corev1.PodStatus) {
	now := &strings.Builder{}
	fmt.Fprint(now, st.Phase, " ", st.Reason)
	for _, c := range st.ContainerStatuses {
		fmt.Fprintf(now, " %s: ready=%t restarts=%d", c.Name, c.Ready, c.RestartCount)
		if w, t := c.State.Waiting, c.State.Terminated; w != nil {
			fmt.Fprint(now, " ", w.Reason, " ", w.Message)
		} else if t != nil {
			fmt.Fprintf(now, " %s exit=%d", t.Reason, t.ExitCode)
		}
	}
	if before, _ := a.last.Swap(pod.UID, now.String()); before != now.String() {
		fmt.Println(time.Now().Format(time.TimeOnly), pod.Namespace+"/"+pod.Name, now)
	}
}
