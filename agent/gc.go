// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"

	"github.com/seed81659283/nodeagent/gc"
	"github.com/seed81659283/nodeagent/images"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
)

// collectImages makes the engine that removes images every 5 minutes while their disk is too full.
func (a *Agent) collectImages(runtime imageRuntime, puller *images.Puller) error {
	policy := a.config.Kubelet.ImagePolicy()
	collector, err := gc.NewImages(runtime, a.runtime, gc.ImageOptions{
		Policy: &policy, Ages: a.config.path("image_ages.json"), Puller: puller, Wanted: a.pods.Images, Logger: a.log,
		Ready: func() bool { _, all := a.pods.Active(); return all }, Hooks: a.meter.ImageGC(a.options.Hooks.ImageGC, gc.ImageHooks{Event: a.nodeEvent}),
	})
	if err != nil {
		return fmt.Errorf("gc: %w", err)
	}
	a.unused = collector
	a.add("image GC", collector.Run)
	return nil
}

// collectLeftovers makes the engine that removes, every minute, containers and directories of pods that no agent runs any more.
func (a *Agent) collectLeftovers(o *lifecycle.Options) error {
	release := func(context.Context, string) error { return nil }
	if o.Volumes != nil {
		release = o.Volumes.Release
	}
	collector, err := gc.NewContainers(a.runtime, gc.ContainerOptions{
		Pod:     gc.OwnedBy(a.pods.Owned),
		Mine:    func(map[string]string) bool { return a.config.Node.ForeignPods },
		LogRoot: a.config.Kubelet.PodLogsDir, LogLinks: a.config.Node.ContainerLogsDir, PodRoot: o.Dirs.Pods, Release: release, Logger: a.log,
		// Other agents have their logs there, too. The reconciler removes those of its own pods.
		KeepLogs: a.config.Kubelet.PodLogsDir == podspec.DefaultLogRoot && !a.config.Node.ForeignPods,
		Hooks:    a.containerHooks(),
	})
	if err != nil {
		return fmt.Errorf("gc: %w", err)
	}
	a.add("container GC", collector.Run)
	return nil
}

func (a *Agent) containerHooks() gc.ContainerHooks {
	hooks := a.options.Hooks.ContainerGC
	own := hooks.Event
	hooks.Event = func(reason, message string) {
		a.nodeEvent(reason, message)
		if own != nil {
			own(reason, message)
		}
	}
	return hooks
}

// nodeEvent logs an event of the node.
func (a *Agent) nodeEvent(reason, message string) {
	a.log.Warn("node event", "reason", reason, "message", message)
}
