// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Agent runs the pods of a node: those of a directory of manifests and of an HTTP endpoint, in containerd, CRI-O or as
// plain processes, with cgroups, probes, pull secrets, config maps, log rotation, and a copy on disk of what it was told
// last, which it runs when it starts without its sources. When it is stopped the pods go on.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cgroups/driver"
	"github.com/seed81659283/nodeagent/cgroups/podtree"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/logs"
	"github.com/seed81659283/nodeagent/cri/process"
	"github.com/seed81659283/nodeagent/cri/remote"
	"github.com/seed81659283/nodeagent/images"
	"github.com/seed81659283/nodeagent/images/credential"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/objects"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
	"github.com/seed81659283/nodeagent/lifecycle/podstore"
	"github.com/seed81659283/nodeagent/lifecycle/source"
	"github.com/seed81659283/nodeagent/lifecycle/userns"
	"github.com/seed81659283/nodeagent/pleg"
	"github.com/seed81659283/nodeagent/probe"
	"github.com/seed81659283/nodeagent/probe/grpcprobe"
	"github.com/seed81659283/nodeagent/probe/httpprobe"
	"github.com/seed81659283/nodeagent/probe/podprobe"
)

// agent is the parts of a node agent.
type agent struct {
	*lifecycle.Reconciler
	config
	log       *slog.Logger
	runtime   runtime
	client    *remote.Client // the runtime as well; nil: pods are plain processes
	generator *pleg.Generator
	rotator   *logs.Rotator
	store     *podstore.Store
	parts     []func(context.Context) error // to run
}

// runtime is what both runtimes can do.
type runtime interface {
	cri.Runtime
	cri.Execer
	cri.LogReopener
	Close() error
}

func main() {
	process.Main() // returns at once unless this program was started as the keeper of a process
	c, err := parse(os.Args[1:])
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
		defer stop()
		a := &agent{config: c, log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: c.LogLevel}))}
		if err = a.build(ctx); err == nil {
			err = a.run(ctx)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err)
		os.Exit(1)
	}
}

// run runs the parts until ctx ends. They outlive it where the pods have to be taken down first.
func (a *agent) run(ctx context.Context) error {
	parts, end := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	defer func() { end(); wg.Wait(); _ = a.runtime.Close() }()
	sets, err := a.store.Load() // before it is run
	if err != nil {
		a.log.Error("the pods last wanted are lost; what runs is left running", "error", err)
	}
	for _, set := range sets {
		a.set(set)
	}
	running, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	for _, part := range a.parts {
		wg.Go(func() {
			if err := part(parts); err != nil {
				a.log.Error("a part ended", "error", err)
				fail(err) // as when another agent has the directory
			}
		})
	}
	a.watch(running)
	if ctx.Err() == nil {
		return context.Cause(running)
	}
	if !a.StopOnExit {
		return nil
	}
	ctx, cancel := context.WithTimeout(parts, 5*time.Minute)
	defer cancel()
	return a.Drain(ctx)
}

// watch follows the sources until ctx ends.
func (a *agent) watch(ctx context.Context) {
	run := map[string]func(context.Context, func(source.Update)) error{
		source.File: source.NewDir(a.Manifests, source.DirOptions{NodeName: a.NodeName, Objects: a.Objects != "", Logger: a.log}).Run,
		source.URL:  source.NewHTTP(a.ManifestURL, source.HTTPOptions{NodeName: a.NodeName, Objects: a.Objects != ""}).Run,
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, name := range a.sources() {
		wg.Go(func() {
			_ = run[name](ctx, func(u source.Update) {
				for _, err := range u.Errs {
					a.log.Error("manifest", "error", err)
				}
				a.set(a.store.Update(podstore.Set{Source: name, Pods: u.Pods, Incomplete: !u.Complete}))
			})
		})
	}
}

func (a *agent) set(s podstore.Set) {
	if err := a.Set(lifecycle.PodSet(s)); err != nil {
		a.log.Error("pods", "error", err)
	}
}

// rotate has the logs of what runs now rotated.
func (a *agent) rotate(...string) {
	pods, _ := a.generator.Pods() // those that are known will do
	a.rotator.Set(logs.Running(pods))
}

// build makes the parts and puts them together.
func (a *agent) build(ctx context.Context) (err error) {
	if err := a.open(ctx); err != nil {
		return err
	}
	policy := logs.Policy{MaxSize: a.LogMaxSize.Value(), MaxFiles: a.LogMaxFiles}
	if a.rotator, err = logs.NewRotator(a.runtime, logs.RotatorOptions{Policy: policy, Logger: a.log}); err != nil {
		return fmt.Errorf("logMaxFiles: %w", err)
	}
	a.generator = pleg.New(a.runtime, pleg.Options{Logger: a.log})
	a.generator.Notify(a.rotate)
	a.store = podstore.New(a.state("pods.store"), podstore.Options{Sources: a.sources(), Logger: a.log})
	o := lifecycle.Options{
		Sources: a.sources(), Parallel: a.ParallelStarts, Sysctls: a.AllowedSysctls, Logger: a.log, Probes: a.probes(),
		Spec:    podspec.Options{HostIPs: func() []netip.Addr { return a.HostIPs }, LogRoot: a.LogDir, ClusterDNS: a.ClusterDNS, ClusterDomain: a.ClusterDomain},
		PodRoot: a.state("pods"), NoMounts: a.client == nil,
		Hooks: lifecycle.Hooks{Status: func(pod *corev1.Pod, st *corev1.PodStatus) {
			a.log.Info("status", "namespace", pod.Namespace, "pod", pod.Name, "phase", st.Phase, "summary", summary(st))
		}, Event: func(pod cri.PodIdentity, e lifecycle.Event) {
			a.log.Info("event", "namespace", pod.Namespace, "pod", pod.Name, "", e)
		}},
	}
	if a.Objects != "" {
		o.Objects = objects.NewDir(a.Objects)
	}
	if a.client != nil {
		if err := a.contain(ctx, &o); err != nil {
			return err
		}
	}
	if a.Reconciler, err = lifecycle.New(a.runtime, a.generator, o); err != nil {
		return err
	}
	a.parts = append(a.parts, a.generator.Run, a.Run, a.rotator.Run, a.store.Run)
	if tree, ok := o.Cgroups.(*podtree.Tree); ok {
		a.parts = append(a.parts, tree.Run)
		err = tree.Setup(ctx)
	}
	return err
}

// open opens the runtime of the config, or the embedded one.
func (a *agent) open(ctx context.Context) (err error) {
	if a.Runtime == "" {
		a.runtime, err = process.Open(a.state("processes"), process.Options{Logger: a.log})
		return err
	}
	if a.client, err = remote.Dial(a.Runtime, remote.Options{}); err != nil {
		return err
	}
	a.runtime = a.client
	return a.client.Check(ctx)
}

// probes makes what asks containers how they are, and keeps what it finds for the next agent.
func (a *agent) probes() *podprobe.Pods {
	pool := httpprobe.NewPool(httpprobe.PoolOptions{})
	set := probe.NewSet(probe.Options{Store: a.state("probes"), Logger: a.log})
	a.parts = append(a.parts, func(ctx context.Context) error { defer pool.Close(); return set.Run(ctx) })
	return podprobe.NewPods(set, podprobe.Options{
		Pool: pool, Execer: podprobe.CRI(a.runtime), GRPC: func(g podprobe.GRPC) (probe.Prober, error) {
			return grpcprobe.New(grpcprobe.Config{Host: g.Host, Port: g.Port, Service: g.Service, TLS: g.TLS})
		},
	})
}

// contain prepares what a runtime with images, cgroups, namespaces and mounts can give to pods.
func (a *agent) contain(ctx context.Context, o *lifecycle.Options) error {
	status, err := a.client.Status(ctx)
	if err != nil {
		return err
	}
	o.Spec.Handlers = func() []cri.RuntimeHandler { return status.Handlers }
	ranges, err := userns.New(o.PodRoot, userns.Options{})
	if err != nil {
		return err
	}
	o.Spec.UserNamespace = ranges.Of
	providers := []credential.Provider{credential.Files(a.DockerConfigs)}
	if len(a.CredentialPlugins.Providers) > 0 {
		plugins, err := credential.NewPlugins(a.CredentialPlugins, credential.PluginOptions{BinDir: a.CredentialPluginDir})
		if err != nil {
			return err
		}
		providers = append(providers, plugins)
	}
	puller, err := images.New(a.client, a.client, images.Options{
		Parallel: a.ParallelPulls, Providers: providers, Records: a.state("image_manager"), Logger: a.log,
	})
	if err != nil {
		return err
	}
	o.Images = lifecycle.Images{Puller: puller, Objects: o.Objects}
	if err := puller.Recover(ctx); err != nil || a.CgroupRoot == "" {
		return err
	}
	return a.limit(ctx, o)
}

// limit makes the cgroups of pods, named as the runtime takes them, for a node that is the whole machine.
func (a *agent) limit(ctx context.Context, o *lifecycle.Options) error {
	names, err := a.client.CgroupDriver(ctx)
	if err != nil {
		return err
	}
	host, err := podtree.HostOptions(os.DirFS("/proc"))
	if err != nil {
		return err
	}
	d, err := driver.Open(ctx, driver.Options{Root: a.CgroupRoot, Systemd: names == cri.CgroupDriverSystemd, Logger: a.log})
	if err != nil {
		return err
	}
	found := d.Host()
	host.Logger, host.Node.HugepageSizes = a.log, found.HugepageSizes
	host.Node.CgroupV1, host.Node.NoSwapController = found.Mode != driver.V2, !found.Has("swap")
	tree, err := podtree.New(d, a, host)
	if err != nil {
		return err
	}
	o.Cgroups, o.Spec.Node = tree, &host.Node
	o.Spec.CgroupParent = func(pod *corev1.Pod) string {
		name, _ := d.Name(tree.Path(pod)) // Ensure has refused what has no name
		return name
	}
	return nil
}

// summary is what kubectl would show of a pod.
func summary(st *corev1.PodStatus) string {
	ready, restarts, why := 0, int32(0), st.Reason
	for _, c := range st.ContainerStatuses {
		restarts += c.RestartCount
		switch s := c.State; {
		case c.Ready:
			ready++
		case s.Waiting != nil:
			why = s.Waiting.Reason
		case s.Terminated != nil:
			why = s.Terminated.Reason + " " + s.Terminated.Message
		}
	}
	return fmt.Sprintf("%d/%d restarts=%d %s", ready, len(st.ContainerStatuses), restarts, why)
}
