// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/logs"
	"github.com/seed81659283/nodeagent/cri/process"
	"github.com/seed81659283/nodeagent/cri/remote"
	"github.com/seed81659283/nodeagent/gc"
	"github.com/seed81659283/nodeagent/images"
	"github.com/seed81659283/nodeagent/images/credential"
	"github.com/seed81659283/nodeagent/internal/embedded"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podevents"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
	"github.com/seed81659283/nodeagent/pleg"
)

// openRuntime opens the container runtime: Options.Runtime if set, otherwise the configured CRI endpoint, otherwise the embedded runtime.
func (a *Agent) openRuntime(ctx context.Context, _ *lifecycle.Options) (err error) {
	endpoint := a.config.Kubelet.ContainerRuntimeEndpoint
	switch {
	case a.options.Runtime != nil:
		a.runtime = a.options.Runtime
		return nil
	case endpoint == "":
		a.runtime, err = embedded.Open(ctx, a.filePath("processes"), &a.config.Kubelet, a.log)
		return err
	}
	if a.client, err = remote.Dial(endpoint, remote.Options{CallReturned: a.metrics.Runtime()}); err != nil {
		return err
	}
	a.runtime = a.client
	if err = a.client.Check(ctx); err == nil { // Dial does not connect
		a.config.Kubelet.SetPodCIDR(ctx, a.runtime, a.log)
	}
	return err
}

// createPLEG creates the PLEG, which lists the pods of the runtime. If the runtime can reopen log files, it also creates the log rotation.
func (a *Agent) createPLEG(context.Context, *lifecycle.Options) error {
	a.generator = pleg.New(a.runtime, pleg.Options{Logger: a.log, Rand: a.options.Rand, Hooks: a.metrics.PLEG(a.options.Hooks.PLEG)})
	a.parts.Add("PLEG", a.generator.Run)
	reopener, ok := a.runtime.(cri.LogReopener)
	if !ok || a.options.Ephemeral {
		return nil
	}
	policy, err := a.config.Kubelet.LogPolicy()
	if err != nil {
		return err
	}
	rotator, err := logs.NewRotator(reopener, logs.RotatorOptions{Policy: policy, Logger: a.log})
	if err != nil {
		return fmt.Errorf("containerLogMaxFiles: %w", err)
	}
	a.generator.Notify(func(...string) {
		pods, _ := a.generator.Pods() // the pods of the last list
		rotator.SetLogs(logs.RunningLogs(pods))
	})
	a.parts.Add("log rotation", rotator.Run)
	return nil
}

// createImageParts creates the image puller and the image garbage collection. The embedded runtime has no images and needs neither.
func (a *Agent) createImageParts(ctx context.Context, opts *lifecycle.Options) error {
	runtime, ok := a.runtime.(cri.ImageService)
	if _, plain := a.runtime.(*process.Runtime); !ok || plain { // the embedded runtime ignores the image and runs programs of the host
		return nil
	}
	n, k := &a.config.Node, &a.config.Kubelet
	providers, err := credential.NodeProviders(n.DockerConfigFiles, n.CredentialProviders,
		credential.PluginOptions{BinDir: n.CredentialProviderBinDir, Accounts: a.cluster.Accounts()})
	if err != nil {
		return err
	}
	logError := images.Hooks{Error: func(err error) { a.log.Warn("image", "error", err) }}
	puller, err := images.New(runtime, runtime, images.Options{
		Parallel: int(*k.MaxParallelImagePulls), QPS: float64(k.PullRate().PerSecond), Burst: k.PullRate().Burst,
		Providers: providers, Records: a.filePath("image_manager"), Logger: a.log,
		Hooks: a.metrics.Images(a.options.Hooks.Images, podevents.Images(a.recordEvent), logError),
	})
	if err != nil {
		return err
	}
	opts.Images = lifecycle.Images{Puller: puller, Objects: opts.Objects}
	if err := puller.Recover(ctx); err != nil || a.options.Ephemeral { // images that fill no disk stay
		return err
	}
	return a.createImageGC(runtime, puller)
}

// createImageGC creates the image garbage collector. Every 5 minutes the collector removes unused images if the disk usage exceeds a threshold.
func (a *Agent) createImageGC(runtime cri.ImageService, puller *images.Puller) error {
	policy := a.config.Kubelet.ImagePolicy()
	collector, err := gc.NewImages(runtime, a.runtime, gc.ImageOptions{
		Policy: &policy, Ages: a.filePath("image_ages.json"), Puller: puller, PodImages: a.pods.ImagesInUse, Logger: a.log,
		Ready: func() bool { _, all := a.pods.Active(); return all },
		Hooks: a.metrics.ImageGC(a.options.Hooks.ImageGC, gc.ImageHooks{Event: a.logNodeEvent}),
	})
	if err != nil {
		return fmt.Errorf("gc: %w", err)
	}
	a.unused = collector
	a.parts.Add("image GC", collector.Run)
	return nil
}

// createContainerGC creates the container garbage collector. Each minute it removes containers, logs and directories of pods that no source lists.
func (a *Agent) createContainerGC(_ context.Context, opts *lifecycle.Options) error {
	release := func(context.Context, string) error { return nil }
	if opts.Volumes != nil {
		release = opts.Volumes.Release
	}
	k, n := &a.config.Kubelet, &a.config.Node
	collector, err := gc.NewContainers(a.runtime, gc.ContainerOptions{
		Pod: gc.OwnedBy(a.pods.IsManaged), MayRemove: func(map[string]string) bool { return n.ForeignPods },
		LogRoot: k.PodLogsDir, LogLinks: n.ContainerLogsDir, PodRoot: opts.Dirs.Pods, Release: release, Logger: a.log,
		// The directory may have logs of other agents. The reconciler removes the logs of its own pods.
		KeepLogs: k.PodLogsDir == podspec.DefaultLogRoot && !n.ForeignPods && !n.AdoptPods,
		Hooks:    gc.JoinContainerHooks(gc.ContainerHooks{Event: a.logNodeEvent}, a.options.Hooks.ContainerGC),
	})
	if err != nil {
		return fmt.Errorf("gc: %w", err)
	}
	a.parts.Add("container GC", collector.Run)
	return nil
}

// logNodeEvent logs an event of the node, such as failed image garbage collection.
func (a *Agent) logNodeEvent(reason, message string) {
	a.log.Warn("node event", "reason", reason, "message", message)
}
